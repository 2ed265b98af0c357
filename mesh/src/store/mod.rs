//! The handle of a store: every verb of the mesh, answered by its writer and reader threads.

mod tx;

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;

use crate::clock;
use crate::error::{MeshError, WriteError};
use crate::event::{Appended, Draft, Posted};
use crate::grant::{GrantRow, Spend};
use crate::limits::BUSY_PATIENCE_MS;
use crate::name::Topic;
use crate::pattern::Pattern;
use crate::query::{Page, Query, Retention, TopicInfo};
use crate::wake::Watcher;

pub use tx::Tx;

/// Gives, for a topic at a time in epoch milliseconds, the lowest sequence that must be kept because a reader has
/// not handled it yet. It is asked inside the commit that would trim, and heeded for seven days.
pub type Hold = fn(&Connection, &Topic, u64) -> rusqlite::Result<Option<u64>>;

/// How to open a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The SQLite file; made when it is missing.
    pub path: PathBuf,
    /// The mark, a small file kept apart from the store that tells which store, and how far, was last seen here.
    pub mark: PathBuf,
    /// `CREATE … IF NOT EXISTS` statements of other parts, run in the first commit.
    pub schema: Vec<&'static str>,
    /// Bytes of the file system that stay free: none for the default (1 GiB, or 2% if smaller), 0 for no floor.
    pub free_floor: Option<u64>,
    /// The clock, in epoch milliseconds.
    pub now: fn() -> u64,
    /// Who else needs old events.
    pub hold: Option<Hold>,
    /// How long a commit waits for another process that holds the store's write lock, in milliseconds.
    pub busy_patience_ms: u64,
}

impl StoreOptions {
    /// Options with the system's clock and defaults.
    pub fn new(path: impl Into<PathBuf>, mark: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            mark: mark.into(),
            schema: Vec::new(),
            free_floor: None,
            now: clock::now_ms,
            hold: None,
            busy_patience_ms: BUSY_PATIENCE_MS,
        }
    }
}

/// One ordered, durable log and everything committed with it. Clones are handles of the same store.
///
/// When the last handle is dropped, what was handed in is still committed and the threads end. Dropping the future of
/// a write does not undo the write.
#[derive(Clone)]
pub struct Store {
    _inner: Arc<()>,
}

#[expect(
    clippy::unused_async,
    clippy::missing_panics_doc,
    clippy::unused_self,
    unused_variables,
    reason = "signatures first, bodies follow"
)]
impl Store {
    /// Opens the store, or makes it. Blocks while the file is read.
    ///
    /// A damaged, foreign or newer file is refused and nothing in it is changed.
    pub fn open(options: StoreOptions) -> Result<Self, MeshError> {
        todo!()
    }

    /// The store's epoch: random, without `-`. It changes when the store is made, or is not the one of its mark.
    pub fn epoch(&self) -> &str {
        todo!()
    }

    /// The newest sequence committed, 0 before the first event.
    pub fn newest(&self) -> u64 {
        todo!()
    }

    /// Runs a closure inside the next commit, and answers after that commit.
    ///
    /// What the closure writes is undone when it returns an error or panics; others in the same commit are not
    /// touched. It must be quick and must not wait: everybody's writes stand behind it.
    pub async fn write<T, E, F>(&self, f: F) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        todo!()
    }

    /// [`Store::write`] for threads that may block.
    pub fn write_blocking<T, E, F>(&self, f: F) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        todo!()
    }

    /// Runs a closure on a reader thread, with a connection that can only read.
    pub async fn read<T, F>(&self, f: F) -> Result<T, MeshError>
    where
        F: FnOnce(&Connection) -> Result<T, MeshError> + Send + 'static,
        T: Send + 'static,
    {
        todo!()
    }

    /// Appends one event. Answered when it is on stable storage.
    pub async fn publish(&self, draft: Draft) -> Result<Appended, MeshError> {
        todo!()
    }

    /// Appends up to 100 events, all or none.
    pub async fn publish_batch(&self, drafts: Vec<Draft>) -> Result<Vec<Appended>, MeshError> {
        todo!()
    }

    /// Appends one event and spends one use of a grant, both or neither. The signature must have been verified.
    ///
    /// The same id with the same content from the same grant again is a duplicate and spends nothing.
    pub async fn post(&self, claims: impl Into<Spend>, draft: Draft) -> Result<Posted, MeshError> {
        todo!()
    }

    /// Reads events after a cursor.
    pub async fn read_events(&self, query: Query) -> Result<Page, MeshError> {
        todo!()
    }

    /// Registers for events whose topics match.
    pub fn watch(&self, patterns: &[Pattern]) -> Watcher {
        todo!()
    }

    /// Registers for a key that closures wake with [`Tx::wake`].
    pub fn watch_key(&self, key: &str) -> Watcher {
        todo!()
    }

    /// All topics, by name.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>, MeshError> {
        todo!()
    }

    /// All grants of the ledger, newest first.
    pub async fn grants(&self) -> Result<Vec<GrantRow>, MeshError> {
        todo!()
    }

    /// Revokes a grant. True if it was there; a second time changes nothing.
    pub async fn revoke(&self, jti: &str) -> Result<bool, MeshError> {
        todo!()
    }

    /// Sets the retention of a topic, or with no topic the default; no retention takes a topic's own away.
    pub async fn set_retention(
        &self,
        topic: Option<Topic>,
        retention: Option<Retention>,
    ) -> Result<(), MeshError> {
        todo!()
    }

    /// Closes the store: what was handed in is committed, then the threads end. Blocks until then.
    pub fn close(&self) {
        todo!()
    }
}
