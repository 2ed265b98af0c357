//! The ledger's side of grants: what a post claims, and the row that counts it. Signatures are checked elsewhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::GrantClaims;

use crate::error::MeshError;
use crate::event::Draft;
use crate::limits::{GRANT_POST_BYTES_MAX, LEEWAY_SECS};
use crate::name::{EventId, Kind, Topic};

/// The claims of a grant whose signature has been verified: what may be posted, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spend {
    /// The grant's id.
    pub jti: String,
    /// The one topic it is for.
    pub topic: String,
    /// The one kind it is for, if it is bound to one.
    pub kind: Option<String>,
    /// The one event id it is for, if it is bound to one.
    pub eid: Option<String>,
    /// When it was made, in epoch seconds.
    pub iat: u64,
    /// From when it is valid, in epoch seconds.
    pub nbf: Option<u64>,
    /// Until when it is valid, in epoch seconds.
    pub exp: u64,
}

impl From<GrantClaims> for Spend {
    fn from(claims: GrantClaims) -> Self {
        let GrantClaims {
            jti,
            topic,
            kind,
            eid,
            iat,
            nbf,
            exp,
            ..
        } = claims;
        Self {
            jti,
            topic,
            kind,
            eid,
            iat,
            nbf,
            exp,
        }
    }
}

impl Spend {
    /// Checks a draft against the claims and gives it what they fix: the event id, and how long that is remembered.
    pub(crate) fn admit(&self, draft: &mut Draft, now_ms: u64) -> Result<(), MeshError> {
        let now = now_ms / 1000;
        if self.exp.saturating_add(LEEWAY_SECS) <= now {
            return Err(MeshError::GrantExpired);
        }
        if self.iat.max(self.nbf.unwrap_or(0)) > now.saturating_add(LEEWAY_SECS) {
            return Err(MeshError::GrantEarly);
        }
        if self.topic != draft.topic.as_str() {
            return Err(MeshError::GrantTopic {
                granted: self.topic.clone(),
            });
        }
        if let Some(granted) = self
            .kind
            .as_ref()
            .filter(|kind| *kind != draft.kind.as_str())
        {
            return Err(MeshError::GrantKind {
                granted: granted.clone(),
            });
        }
        let size = draft.bytes();
        if size > GRANT_POST_BYTES_MAX {
            return Err(MeshError::PayloadTooLarge {
                field: "data",
                size,
                limit: GRANT_POST_BYTES_MAX,
            });
        }
        self.admit_id(draft)?;
        let remembered = self.exp.saturating_add(LEEWAY_SECS).saturating_mul(1000);
        draft.keep_id_until = draft.keep_id_until.max(Some(remembered));
        Ok(())
    }

    fn admit_id(&self, draft: &mut Draft) -> Result<(), MeshError> {
        let Some(eid) = &self.eid else { return Ok(()) };
        match &draft.id {
            Some(id) if id.as_str() != eid => {
                return Err(MeshError::IdReserved { id: id.to_string() });
            }
            Some(_) => {}
            None => draft.id = Some(eid.parse::<EventId>()?),
        }
        // The id stands in a claim that weft signed, so it is weft's own choice.
        draft.by_weft |= !draft.topic.is_reserved();
        Ok(())
    }
}

/// A grant to be entered in the ledger.
#[derive(Debug, Clone)]
pub struct NewGrant {
    /// Its id.
    pub jti: String,
    /// The one topic it is for.
    pub topic: Topic,
    /// The one kind it is for.
    pub kind: Option<Kind>,
    /// The one event id it is for.
    pub eid: Option<EventId>,
    /// How many posts it allows.
    pub uses: u32,
    /// Until when it is valid, in epoch seconds.
    pub exp: u64,
    /// What its maker says it is for.
    pub description: Option<String>,
    /// Who had it made, for instance `session:cli`.
    pub minted_by: String,
}

/// A grant as the ledger has it. Its token is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantRow {
    /// Its id.
    pub jti: String,
    /// The one topic it is for.
    pub topic: Topic,
    /// The one kind it is for.
    pub kind: Option<Kind>,
    /// The one event id it is for.
    pub eid: Option<EventId>,
    /// How many posts it allows.
    pub uses: u32,
    /// How many were made.
    pub used: u32,
    /// Until when it is valid, in epoch seconds.
    pub exp: u64,
    /// What its maker says it is for.
    pub description: Option<String>,
    /// When it was made, in epoch milliseconds.
    pub created_at: u64,
    /// When it was revoked, in epoch milliseconds. A grant of an older epoch counts as revoked.
    pub revoked_at: Option<u64>,
    /// When it was last used, in epoch milliseconds.
    pub last_used_at: Option<u64>,
    /// Who had it made.
    pub minted_by: String,
    /// The epoch it was made in.
    pub epoch: String,
}

impl GrantRow {
    /// Uses it has left, whether or not it is still valid.
    pub fn uses_left(&self) -> u32 {
        self.uses.saturating_sub(self.used)
    }
}
