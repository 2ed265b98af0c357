//! How a store is opened.

use std::path::PathBuf;

use rusqlite::Connection;

use crate::clock;
use crate::limits::BUSY_PATIENCE_MS;
use crate::name::Topic;

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
    /// `CREATE … IF NOT EXISTS` statements of other parts, run before the first request.
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
