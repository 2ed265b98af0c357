//! Tokens that end while something of theirs is open: a stream, or a call that waits.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use weft_actors::tokens;
use weft_grants::AccessClaims;
use weft_mesh::Watcher;

use crate::auth::now_secs;
use crate::door::Door;
use crate::error::Refused;

/// A token that may end before its stream does.
pub(crate) struct Credential {
    claims: AccessClaims,
    ends_at: Instant,
    revoked: Watcher,
}

impl Credential {
    pub(crate) fn new(door: &Door, claims: AccessClaims) -> Self {
        // A stream takes no leeway: its clock is the one that made the token.
        let left = claims.exp.saturating_sub(now_secs());
        // A year at most, so that no clock overflows.
        let ends_at = Instant::now() + Duration::from_secs(left.min(366 * 24 * 3600));
        let revoked = revoked(door, &claims);
        Credential {
            claims,
            ends_at,
            revoked,
        }
    }

    /// Why it no longer holds, if so.
    pub(crate) async fn check(&self, door: &Door) -> Result<(), Refused> {
        if Instant::now() >= self.ends_at {
            return Err(Refused::StreamExpired);
        }
        tokens::check(&door.house, &self.claims).await?;
        Ok(())
    }
}

/// Waits until a credential must be looked at again; for ever where there is none.
pub(crate) async fn worth_a_look(credential: Option<&mut Credential>) {
    match credential {
        Some(credential) => tokio::select! {
            () = sleep_until(credential.ends_at) => {}
            () = credential.revoked.changed() => {}
        },
        None => std::future::pending().await,
    }
}

/// Wakes when a token is revoked.
fn revoked(door: &Door, claims: &AccessClaims) -> Watcher {
    door.house.store.watch_key(&tokens::wake_key(&claims.jti))
}

/// Does what may wait for as long as the caller's token is not revoked; what comes later is not answered.
pub(crate) async fn unless_revoked<T>(
    door: &Door,
    claims: Option<&AccessClaims>,
    work: impl Future<Output = T>,
) -> Result<T, Refused> {
    let Some(claims) = claims else {
        return Ok(work.await);
    };
    let (mut revoked, mut work) = (revoked(door, claims), pin!(work));
    loop {
        let done = tokio::select! {
            done = &mut work => Some(done),
            () = revoked.changed() => None,
        };
        tokens::check(&door.house, claims).await?;
        if let Some(done) = done {
            return Ok(done);
        }
    }
}
