//! What a closure can do inside a commit.

use std::marker::PhantomData;

use rusqlite::Connection;

use crate::error::MeshError;
use crate::event::{Appended, Draft, Posted};
use crate::grant::{GrantRow, NewGrant, Spend};
use crate::name::EventId;

/// One request inside the writer's transaction.
pub struct Tx<'a> {
    _conn: PhantomData<&'a Connection>,
}

#[expect(
    clippy::missing_panics_doc,
    clippy::unused_self,
    unused_variables,
    reason = "signatures first, bodies follow"
)]
impl Tx<'_> {
    /// The connection, for the caller's own tables. It must not begin, commit or roll back.
    pub fn sql(&self) -> &Connection {
        todo!()
    }

    /// The time of this commit, in epoch milliseconds.
    pub fn now(&self) -> u64 {
        todo!()
    }

    /// The store's epoch.
    pub fn epoch(&self) -> &str {
        todo!()
    }

    /// Appends an event. After an error nothing of it is there, and the closure may go on.
    pub fn append(&mut self, draft: &Draft) -> Result<Appended, MeshError> {
        todo!()
    }

    /// Appends an event and spends one use of a grant, as [`crate::Store::post`] does.
    pub fn post(&mut self, claims: &Spend, draft: &Draft) -> Result<Posted, MeshError> {
        todo!()
    }

    /// Spends one use of a grant without looking at its claims and gives the uses left. For ends that weft itself
    /// announces; a grant that is revoked, of another epoch, unknown or spent is refused.
    pub fn spend(&mut self, jti: &str) -> Result<u32, MeshError> {
        todo!()
    }

    /// Enters a grant in the ledger, under this commit's epoch and time.
    pub fn insert_grant(&mut self, grant: &NewGrant) -> Result<(), MeshError> {
        todo!()
    }

    /// The ledger's row of a grant.
    pub fn grant(&self, jti: &str) -> Result<Option<GrantRow>, MeshError> {
        todo!()
    }

    /// Revokes a grant. True if it was there.
    pub fn revoke_grant(&mut self, jti: &str) -> Result<bool, MeshError> {
        todo!()
    }

    /// The sequence under which an id was stored, also when its event has been trimmed since.
    pub fn sequence_of(&self, id: &EventId) -> Result<Option<u64>, MeshError> {
        todo!()
    }

    /// Changes until when an id is remembered, in epoch milliseconds. Seven days after the event is the least.
    pub fn keep_id_until(&mut self, id: &EventId, until: u64) -> Result<(), MeshError> {
        todo!()
    }

    /// After the commit, wakes those who watch this key.
    pub fn wake(&mut self, key: &str) {
        todo!()
    }
}
