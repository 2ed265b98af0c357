//! Every way an action can be refused or fail: a reason, the words for a person, and a stable name for programs.

use thiserror::Error;
use weft_grants::Refusal;
use weft_mesh::MeshError;

/// What an action answers instead of its result.
///
/// Variants are reasons. The text says what was wrong and what to do; [`Error::slug`] is the stable name.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is missing, unknown, of the wrong type or outside its limits.
    #[error("{field}: {reason}")]
    Invalid {
        /// The argument's name, as the caller wrote it.
        field: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// No action has this ref.
    #[error("there is no action {0}; `weft call` lists them")]
    UnknownAction(String),
    /// Nothing of that kind has this name or id.
    #[error("there is no {what} {id}")]
    NotFound {
        /// `task`, `resident`, `grant`, …
        what: &'static str,
        /// What was asked for.
        id: String,
    },
    /// An id prefix that fits more than one.
    #[error("{prefix} fits {} tasks: {}; write more of the id", candidates.len(), candidates.join(" "))]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// At most eight ids that fit.
        candidates: Vec<String>,
    },
    /// Something of that name exists already.
    #[error("{what} {id} exists already")]
    Exists {
        /// The kind of thing.
        what: &'static str,
        /// Its name.
        id: String,
    },
    /// The command did not start; nothing of it is left.
    #[error("{message}")]
    NotStarted {
        /// What was to run.
        command: String,
        /// The system's reason, and a hint.
        message: String,
        /// The system's error number, where there was one.
        errno: Option<i32>,
    },
    /// The verb does not fit the task's state or kind.
    #[error("{0}")]
    WrongState(String),
    /// Looked up with an incarnation that is gone.
    #[error("{what} {id} is no longer the one you looked up; look it up again")]
    Stale {
        /// The kind of thing.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// The same request id came with another body.
    #[error("requestId {0} was used for another request; take a new one")]
    RequestIdReused(String),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// No usable credential.
    #[error("{0}")]
    Unauthorized(String),
    /// The access token was revoked, so that a client knows a new try with it is in vain.
    #[error("the token was revoked; make another with `weft token create`")]
    TokenRevoked,
    /// The node is ending; ask again, the next one will answer.
    #[error("the node is stopping; call again")]
    NodeStopping,
    /// An actor failed while it handled this; its supervisor restarts it.
    #[error("{0} failed inside and is being restarted; look at its state, then call again")]
    ActorFailed(String),
    /// A process of ours does not answer.
    #[error("{0}")]
    NoAnswer(String),
    /// A bound on what may be alive at once.
    #[error("{0}")]
    TooMany(String),
    /// The mesh or its store refused.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// A grant or token was refused.
    #[error("{0}")]
    Grant(#[from] Refusal),
    /// The system failed under us.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A broken promise of our own; a bug.
    #[error("weft failed inside: {0}")]
    Internal(String),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Error::Mesh(error.into())
    }
}

impl Error {
    /// The stable name of this reason, for programs.
    pub fn slug(&self) -> &'static str {
        match self {
            Error::Invalid { .. } => "invalid-argument",
            Error::UnknownAction(_) => "unknown-action",
            Error::NotFound { .. } => "not-found",
            Error::Ambiguous { .. } => "ambiguous-id",
            Error::Exists { .. } => "exists",
            Error::NotStarted { .. } => "not-started",
            Error::WrongState(_) => "wrong-state",
            Error::Stale { .. } => "stale-incarnation",
            Error::RequestIdReused(_) => "request-id-reused",
            Error::Forbidden(_) => "forbidden",
            Error::Unauthorized(_) => "unauthorized",
            Error::TokenRevoked => "token-revoked",
            Error::NodeStopping => "node-stopping",
            Error::ActorFailed(_) => "actor-failed",
            Error::NoAnswer(_) => "no-answer",
            Error::TooMany(_) => "too-many",
            Error::Mesh(error) => error.slug(),
            Error::Grant(refusal) => refusal.name(),
            Error::Io { source, .. } if source.raw_os_error() == Some(libc::ENOSPC) => "no-space",
            Error::Io { .. } => "io",
            Error::Internal(_) => "internal",
        }
    }

    /// Refuses the argument `field` for `reason`.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Invalid {
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// A system failure while doing `context`.
    pub fn io(context: impl Into<String>, source: std::io::Error) -> Self {
        Error::Io {
            context: context.into(),
            source,
        }
    }

    /// No task of this id.
    pub fn no_task(id: impl Into<String>) -> Self {
        Error::NotFound {
            what: "task",
            id: id.into(),
        }
    }
}

/// The result of anything in this crate that a caller waits for.
pub type Result<T, E = Error> = std::result::Result<T, E>;
