//! What can be done inside a commit, by closures and by the verbs alike.

use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::append::{self, stored_time};
use super::entry::Entry;
use super::ledger;
use super::state::{State, parse_retention, row_id};
use crate::error::MeshError;
use crate::event::{Appended, Draft, Posted};
use crate::grant::{GrantRow, NewGrant, Spend};
use crate::name::{EventId, Topic};
use crate::query::Retention;

/// The writer's transaction, as a request sees it.
///
/// Nothing of it is visible to others, and no answer is given, before the commit.
pub struct Tx<'a> {
    conn: &'a Connection,
    insert: CachedStatement<'a>,
    state: &'a mut State,
    epoch: &'a str,
    now: u64,
    no_room: Option<MeshError>,
    /// The last error of an insert, which explains the loss of the transaction if it was lost.
    failure: Option<MeshError>,
    keys: Vec<String>,
    /// Keys there were at the savepoint.
    saved_keys: usize,
}

impl<'a> Tx<'a> {
    /// `no_room`: the refusal of all appends, if the disk is nearly full.
    pub(super) fn new(
        conn: &'a Connection,
        state: &'a mut State,
        epoch: &'a str,
        now: u64,
        no_room: Option<MeshError>,
    ) -> Result<Self, MeshError> {
        Ok(Self {
            conn,
            insert: append::prepare_insert(conn)?,
            state,
            epoch,
            now,
            no_room,
            failure: None,
            keys: Vec::new(),
            saved_keys: 0,
        })
    }

    /// The connection, for the caller's own tables. It must not begin, commit or roll back.
    pub fn sql(&self) -> &Connection {
        self.conn
    }

    /// The time of this commit, in epoch milliseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The store's epoch.
    pub fn epoch(&self) -> &str {
        self.epoch
    }

    /// Appends an event. After an error nothing of it is there, and the closure may go on.
    pub fn append(&mut self, draft: &Draft) -> Result<Appended, MeshError> {
        self.append_entry(Entry::new(draft.clone())?)
    }

    pub(super) fn append_entry(&mut self, entry: Entry) -> Result<Appended, MeshError> {
        match append::find_duplicate(self.conn, &entry)? {
            Some(first) => Ok(first),
            None => self.insert(entry),
        }
    }

    fn insert(&mut self, entry: Entry) -> Result<Appended, MeshError> {
        if let Some(refusal) = &self.no_room {
            return Err(refusal.clone());
        }
        let (conn, now) = (self.conn, self.now);
        let appended = append::insert(conn, &mut self.insert, self.state, entry, now);
        if let Err(error) = &appended {
            self.failure = Some(error.clone());
        }
        appended
    }

    /// Appends an event and spends one use of a grant, as [`crate::Store::post`] does.
    pub fn post(&mut self, claims: &Spend, draft: &Draft) -> Result<Posted, MeshError> {
        let mut draft = draft.clone();
        claims.admit(&mut draft, self.now)?;
        self.post_entry(&claims.jti, Entry::new(draft)?)
    }

    /// All checks come before the first change, so that a refusal leaves nothing behind.
    pub(super) fn post_entry(&mut self, jti: &str, entry: Entry) -> Result<Posted, MeshError> {
        let balance = ledger::balance(self.conn, jti, self.epoch)?;
        if let Some(appended) = append::find_duplicate(self.conn, &entry)? {
            return Ok(Posted {
                appended,
                uses_left: balance.uses.saturating_sub(balance.used),
            });
        }
        if balance.used >= balance.uses {
            return Err(MeshError::GrantSpent { uses: balance.uses });
        }
        let appended = self.insert(entry)?;
        Ok(Posted {
            appended,
            uses_left: ledger::spend(self.conn, jti, &balance, self.now)?,
        })
    }

    /// Spends one use of a grant without looking at its claims, and gives the uses left.
    ///
    /// This is for ends that weft itself announces. A grant that is unknown, revoked, of another epoch or spent is
    /// refused.
    pub fn spend(&mut self, jti: &str) -> Result<u32, MeshError> {
        let balance = ledger::balance(self.conn, jti, self.epoch)?;
        ledger::spend(self.conn, jti, &balance, self.now)
    }

    /// Enters a grant in the ledger, under this commit's epoch and time.
    pub fn insert_grant(&mut self, grant: &NewGrant) -> Result<(), MeshError> {
        ledger::insert(self.conn, grant, self.epoch, self.now)?;
        let forgotten_at = ledger::forgotten_at(grant.exp);
        self.state.forget_grants_at = self.state.forget_grants_at.min(forgotten_at);
        Ok(())
    }

    /// The ledger's row of a grant.
    pub fn grant(&self, jti: &str) -> Result<Option<GrantRow>, MeshError> {
        ledger::find(self.conn, jti)
    }

    /// Revokes a grant. True if it was there; a second time changes nothing.
    pub fn revoke_grant(&mut self, jti: &str) -> Result<bool, MeshError> {
        ledger::revoke(self.conn, jti, self.now)
    }

    /// The sequence under which an id was stored, also when its event has been taken away since.
    pub fn sequence_of(&self, id: &EventId) -> Result<Option<u64>, MeshError> {
        Ok(append::find_id(self.conn, id)?.map(|record| record.sequence))
    }

    /// Changes until when an id is remembered, in epoch milliseconds. Seven days after its event is the least.
    pub fn keep_id_until(&mut self, id: &EventId, until: u64) -> Result<(), MeshError> {
        let (id, until) = (id.as_str(), stored_time(until));
        self.conn
            .prepare_cached("UPDATE events SET keep_until = ?2 WHERE id = ?1")?
            .execute((id, until))?;
        self.conn
            .prepare_cached(
                "UPDATE past_ids SET keep_until = max(created_at + ?3, ?2) WHERE id = ?1",
            )?
            .execute((id, until, stored_time(crate::limits::ID_KEPT_MS)))?;
        Ok(())
    }

    /// The retention that holds for a topic, or with no topic the default.
    pub fn retention(&self, topic: Option<&Topic>) -> Result<Retention, MeshError> {
        let own: Option<String> = match topic {
            Some(topic) => self
                .conn
                .prepare_cached("SELECT retention FROM topics WHERE name = ?1")?
                .query_row([topic.as_str()], |row| row.get(0))
                .optional()?
                .flatten(),
            None => None,
        };
        Ok(parse_retention(own).unwrap_or(self.state.retention))
    }

    /// Sets the retention of a topic, or with no topic the default. No retention takes a topic's own away, or gives
    /// the default its first value again. It is applied from this commit on.
    pub fn set_retention(
        &mut self,
        topic: Option<&Topic>,
        retention: Option<Retention>,
    ) -> Result<(), MeshError> {
        let text = retention
            .map(|retention| serde_json::to_string(&retention))
            .transpose();
        let text = text.map_err(|error| MeshError::StoreFailed {
            detail: error.to_string(),
        })?;
        let Some(topic) = topic else {
            self.conn.execute("UPDATE log SET retention = ?1", [text])?;
            self.state
                .set_default_retention(retention.unwrap_or(super::state::DEFAULT_RETENTION));
            return Ok(());
        };
        let index = self.state.intern(self.conn, topic)?;
        self.conn.execute(
            "UPDATE topics SET retention = ?2 WHERE id = ?1",
            (row_id(index), text),
        )?;
        self.state
            .change(index, |counts| counts.retention = retention);
        Ok(())
    }

    /// After the commit, wakes those who watch this key.
    pub fn wake(&mut self, key: &str) {
        if !self.keys.iter().any(|known| known == key) {
            self.keys.push(key.to_owned());
        }
    }

    /// Begins a part that can be undone alone.
    pub(super) fn save(&mut self) -> Result<(), MeshError> {
        self.conn.prepare_cached("SAVEPOINT request")?.execute([])?;
        self.state.save();
        self.saved_keys = self.keys.len();
        Ok(())
    }

    /// Ends that part, kept or undone. An error means that the whole transaction is lost.
    pub(super) fn end(&mut self, is_kept: bool) -> Result<(), MeshError> {
        self.check()?;
        if !is_kept {
            self.conn
                .prepare_cached("ROLLBACK TO request")?
                .execute([])?;
            self.state.restore();
            self.keys.truncate(self.saved_keys);
        }
        self.conn.prepare_cached("RELEASE request")?.execute([])?;
        self.state.keep();
        Ok(())
    }

    /// SQLite may end the transaction by itself when the disk is full or failing; then nothing of it is there.
    pub(super) fn check(&self) -> Result<(), MeshError> {
        if self.conn.is_autocommit() {
            let detail = "the transaction was ended by an error".to_owned();
            return Err(self
                .failure
                .clone()
                .unwrap_or(MeshError::StoreFailed { detail }));
        }
        Ok(())
    }

    /// Ends the use of the state; gives the keys to wake.
    pub(super) fn into_keys(self) -> Vec<String> {
        self.keys
    }
}
