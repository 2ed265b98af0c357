//! Every way a request can be refused at the door. What the actions refuse comes through as it is.

use thiserror::Error;
use weft_actors::error::Error as ActionError;
use weft_mesh::MeshError;

use crate::limits;

/// Why a request was refused. The text says what to do; [`Refused::slug`] is the stable name.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The action, the mesh or the ledger said no.
    #[error(transparent)]
    Action(#[from] ActionError),
    /// Nothing has this path.
    #[error("no route has this path; `POST /v1/call/{{ref}}` calls any action")]
    NoRoute,
    /// The path has no such method.
    #[error("this path does not take {0}; the header Allow names what it takes")]
    Method(String),
    /// The body is not JSON at all.
    #[error("the body is not JSON: {0}")]
    Json(String),
    /// The body is of another type.
    #[error("send a body as `Content-Type: application/json`, without a content encoding")]
    ContentType,
    /// The body is too large.
    #[error(
        "the body has more than {} bytes; send less, or send a reference",
        limits::BODY_BYTES_MAX
    )]
    BodyTooLarge,
    /// The body did not come in time.
    #[error("the body did not come whole within {} ms", limits::BODY_MS)]
    BodySlow,
    /// The body broke off.
    #[error("the body broke off before its end")]
    BodyCut,
    /// The `Host` is not ours.
    #[error(
        "this node does not answer to that Host; use a loopback name, the listen address or a configured name, with its port"
    )]
    Host,
    /// `Host` is missing, doubled or contradicted.
    #[error("{0}")]
    BadRequest(&'static str),
    /// A page of another origin.
    #[error(
        "requests of other origins are refused; leave Origin out, or send it from the node's own page"
    )]
    Origin,
    /// A token where logs and histories keep it.
    #[error(
        "a token in a query string is refused, since logs keep it; send `Authorization: Bearer`, and revoke the token that was sent"
    )]
    TokenInQuery,
    /// A process of another user.
    #[error("this home belongs to another user; only its owner and root may use its socket")]
    Stranger,
    /// The process that opened the connection cannot be found.
    #[error(
        "the process that opened this connection has ended, so it cannot be told who calls; open a new one"
    )]
    PeerGone,
    /// All connections are taken.
    #[error(
        "{} connections are open, as many as there may be; close some, then try again",
        limits::CONNECTIONS_MAX
    )]
    Connections,
    /// All streams are taken.
    #[error(
        "{} streams are open, as many as there may be; close some, then try again",
        limits::STREAMS_MAX
    )]
    Streams,
    /// The store does not answer.
    #[error("the store cannot be written: {0}")]
    NotReady(String),
    /// The credential of a stream ran out.
    #[error("the token has expired; ask for a new one and resume from the last id")]
    StreamExpired,
}

impl Refused {
    /// The stable name of this reason, for programs.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Action(error) => error.slug(),
            Self::NoRoute => "no-route",
            Self::Method(_) => "method-not-allowed",
            Self::Json(_) => "invalid-json",
            Self::ContentType => "content-type",
            Self::BodyTooLarge => "body-too-large",
            Self::BodySlow => "body-slow",
            Self::BodyCut => "body-cut",
            Self::Host => "host-refused",
            Self::BadRequest(_) => "bad-request",
            Self::Origin => "origin-refused",
            Self::TokenInQuery => "token-in-query",
            Self::Stranger => "stranger",
            Self::PeerGone => "peer-gone",
            Self::Connections => "too-many-connections",
            Self::Streams => "too-many-streams",
            Self::NotReady(_) => "not-ready",
            Self::StreamExpired => "token-expired",
        }
    }

    /// Refuses the argument `field` for `reason`.
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Action(ActionError::invalid(field, reason))
    }

    /// No usable credential.
    pub(crate) fn unauthorized(why: &str) -> Self {
        Self::Action(ActionError::Unauthorized(why.to_owned()))
    }
}

impl From<MeshError> for Refused {
    fn from(error: MeshError) -> Self {
        Self::Action(error.into())
    }
}

impl From<weft_grants::Refusal> for Refused {
    fn from(refusal: weft_grants::Refusal) -> Self {
        Self::Action(refusal.into())
    }
}
