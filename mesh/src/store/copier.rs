//! Keeping the write-ahead log short: a thread of its own copies it into the store while commits go on, then the
//! writer copies the small rest between two commits, after which the log begins anew in place.
//!
//! The writer's part is needed because a log that is written all the time is never found wholly copied.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use crate::error::MeshError;
use crate::limits::{BUSY_PATIENCE_MS, WAL_PAGES_COPY, WAL_PAGES_FINISH};

/// The writer's side.
pub(super) struct Copier {
    /// Pages in the log, as SQLite told after the last commit.
    pages: Arc<AtomicU32>,
    /// Set by the thread when a round is over.
    is_copied: Arc<AtomicBool>,
    start: Option<SyncSender<()>>,
    is_copying: bool,
    /// Pages at which the next round begins; moved on when a reader kept a round from reaching the end.
    next_at: u32,
}

impl Copier {
    /// Starts the thread. It ends when the writer's side is dropped.
    pub(super) fn start(path: &Path) -> Result<(Self, JoinHandle<()>), MeshError> {
        let conn = connect(path)?;
        let (start, rounds) = sync_channel(1);
        let is_copied = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_copied);
        let thread = std::thread::Builder::new().name("weft-copier".to_owned());
        let thread = thread.spawn(move || copy_rounds(&conn, &rounds, &done));
        let thread = thread.map_err(|error| MeshError::StoreFailed {
            detail: format!("starting a thread: {error}"),
        })?;
        let pages = Arc::new(AtomicU32::new(0));
        Ok((
            Self {
                pages,
                is_copied,
                start: Some(start),
                is_copying: false,
                next_at: WAL_PAGES_COPY,
            },
            thread,
        ))
    }

    /// Follows the length of the log of the writer's connection.
    pub(super) fn listen(&self, conn: &mut Connection) -> Result<(), MeshError> {
        let pages = Arc::clone(&self.pages);
        conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, in_log: i32| {
            pages.store(in_log.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(())
    }

    /// Called between two commits.
    pub(super) fn after_commit(&mut self, conn: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if self.is_copying {
            if self.is_copied.swap(false, Ordering::AcqRel) {
                self.is_copying = false;
                self.finish(conn, pages);
            }
        } else if pages >= self.next_at {
            let is_started = self
                .start
                .as_ref()
                .is_some_and(|start| start.try_send(()).is_ok());
            self.is_copying = is_started;
            if !is_started && pages >= WAL_PAGES_FINISH {
                self.finish(conn, pages);
            }
        } else if pages < WAL_PAGES_COPY {
            self.next_at = WAL_PAGES_COPY;
        }
    }

    /// Called once, after the last commit: a store at rest is whole in its one file.
    pub(super) fn at_end(&mut self, conn: &Connection) {
        self.start = None;
        self.finish(conn, 0);
    }

    /// Copies the rest. If all is copied, the next commit begins the log anew.
    fn finish(&mut self, conn: &Connection, pages: u32) {
        let is_complete = matches!(checkpoint(conn), Ok((in_log, copied)) if in_log == copied);
        self.next_at = if is_complete {
            WAL_PAGES_COPY
        } else {
            pages.saturating_add(WAL_PAGES_COPY)
        };
    }
}

fn copy_rounds(conn: &Connection, rounds: &Receiver<()>, is_copied: &AtomicBool) {
    while rounds.recv().is_ok() {
        if let Err(error) = checkpoint(conn) {
            tracing::warn!(%error, "the write-ahead log could not be copied");
        }
        is_copied.store(true, Ordering::Release);
    }
}

/// Copies what can be copied without waiting for anybody.
fn checkpoint(conn: &Connection) -> rusqlite::Result<(i32, i32)> {
    conn.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE)
}

fn connect(path: &Path) -> Result<Connection, MeshError> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(Duration::from_millis(BUSY_PATIENCE_MS))?;
    conn.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;")?;
    Ok(conn)
}
