//! What a token says. Only [`verify_grant`](crate::verify_grant) and
//! [`verify_access`](crate::verify_access) make these out of a token.

use serde::{Deserialize, Serialize};

use crate::{Scopes, error::ScopeError};

/// What a grant allows: so many events of one kind to one topic. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantClaims {
    /// The node that minted it, owner of the signing key.
    pub iss: String,
    /// The mesh it is for: `weft:mesh:<meshId>`.
    pub aud: String,
    /// The grant's id, under which the mesh counts and revokes it.
    pub jti: String,
    /// The one topic it may post to.
    pub topic: String,
    /// The one kind it may post; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The one event id it may post, for completions; a caller's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eid: Option<String>,
    /// How many events it may post, see [`GRANT_USES`](crate::limits::GRANT_USES).
    pub uses: u32,
    /// When it was minted.
    pub iat: u64,
    /// When it becomes valid, if later than `iat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// When it ends.
    pub exp: u64,
}

/// What an access token allows: calls within its scopes. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessClaims {
    /// The node that minted it, owner of the signing key.
    pub iss: String,
    /// The API it is for.
    pub aud: String,
    /// The token's id, under which it can be revoked.
    pub jti: String,
    /// Whom it stands for.
    pub sub: String,
    /// What it may do: scopes with single spaces between them, see [`Scopes`].
    pub scope: String,
    /// When it was minted.
    pub iat: u64,
    /// When it becomes valid, if later than `iat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// When it ends.
    pub exp: u64,
}

impl AccessClaims {
    /// The scopes as values. Claims that come from [`verify_access`](crate::verify_access) always
    /// have them.
    ///
    /// # Errors
    /// [`ScopeError`] when `scope` is not a list of scopes.
    pub fn scopes(&self) -> Result<Scopes, ScopeError> {
        self.scope.parse()
    }
}
