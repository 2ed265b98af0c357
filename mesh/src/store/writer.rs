//! The writer thread: takes whatever waits, commits it as one transaction, then answers all.
//!
//! Invariant: no answer and no wake before the commit is on stable storage, and no two writers of one file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use super::copier::Copier;
use super::disk::Floor;
use super::job::{Ended, Job, panic_text};
use super::mark::{Mark, Place, Seen};
use super::open;
use super::options::StoreOptions;
use super::queue::Queue;
use super::shared::Shared;
use super::state::State;
use super::trim;
use super::tx::Tx;
use crate::error::MeshError;
use crate::limits::{COMMIT_BYTES_MAX, COMMIT_REQUESTS_MAX, GATHER_US, QUEUE_UNIT_BYTES};

const REST: Duration = Duration::from_hours(1);
const GATHER: Duration = Duration::from_micros(GATHER_US);

pub(super) type Requests = Queue<Box<dyn Job>>;

/// Everything the writer thread owns.
pub(super) struct Writer {
    pub(super) options: StoreOptions,
    pub(super) conn: Connection,
    pub(super) state: State,
    pub(super) mark: Mark,
    pub(super) place: Place,
    pub(super) floor: Floor,
    pub(super) copier: Copier,
    pub(super) shared: Arc<Shared>,
    pub(super) requests: Arc<Requests>,
    /// Requests in the last batch; as many are likely to come again.
    pub(super) answered: usize,
    /// Whether retention has more to do than the last commit could.
    pub(super) has_backlog: bool,
    /// Whether the connection must be opened anew before the next commit.
    pub(super) is_broken: bool,
}

impl Writer {
    /// Serves until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut batch = Vec::new();
        while self.gather(&mut batch) {
            self.commit(&mut batch);
            self.copier.after_commit(&self.conn);
        }
        self.copier.at_end(&self.conn);
        self.shared.registry.wake_all();
    }

    /// Waits for requests and takes them. While retention has more to do and nobody asks for anything, an empty batch.
    fn gather(&mut self, batch: &mut Vec<Box<dyn Job>>) -> bool {
        const BOUNDS: (usize, usize) = (COMMIT_REQUESTS_MAX, COMMIT_BYTES_MAX / QUEUE_UNIT_BYTES);
        if self.has_backlog && self.requests.is_empty() {
            return true;
        }
        // Retention by age has its time in a quiet store too. Bounded, since the wall clock may be set meanwhile.
        let now = (self.options.now)();
        let rest = Duration::from_millis(self.state.age_due.saturating_sub(now)).min(REST);
        let is_open = self
            .requests
            .pop_many(BOUNDS, self.answered, GATHER, rest, batch);
        self.answered = batch.len();
        is_open
    }

    /// Commits a batch and answers it.
    fn commit(&mut self, batch: &mut Vec<Box<dyn Job>>) {
        // A panic here is a bug of the writer's own; the next commit begins from what the file says.
        let ended =
            catch_unwind(AssertUnwindSafe(|| self.transact(batch))).unwrap_or_else(|panic| {
                Err(MeshError::Panicked {
                    detail: panic_text(&*panic),
                })
            });
        // What failed is not tried again at once; the next request's commit finds the same to do.
        self.has_backlog &= ended.is_ok();
        let (ended, keys) = match ended {
            Ok(keys) => self.settle(keys),
            Err(error) => (self.abandon(error), Vec::new()),
        };
        let is_committed = matches!(ended, Ended::Committed);
        let before = self.shared.newest.load(Ordering::Acquire);
        if is_committed {
            self.publish_progress();
        }
        for job in batch.drain(..) {
            job.answer(&ended);
        }
        if is_committed {
            let appended = self
                .state
                .changed()
                .iter()
                .map(|index| self.state.topic(*index));
            let appended = appended.filter(|topic| topic.counts.last > before);
            self.shared
                .registry
                .wake(appended.map(|topic| &topic.name), &keys);
        }
        self.state.settle();
    }

    /// Does everything up to the commit itself, and gives the keys to wake. An error means that nothing is stored.
    fn transact(&mut self, batch: &mut [Box<dyn Job>]) -> Result<Vec<String>, MeshError> {
        if self.is_broken {
            self.reopen()?;
        }
        self.place.check()?;
        let now = (self.options.now)();
        let no_room = self.floor.refusal();
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let changes = self.conn.total_changes();
        let mut tx = Tx::new(
            &self.conn,
            &mut self.state,
            &self.shared.epoch,
            now,
            no_room,
        )?;
        for job in batch.iter_mut() {
            job.apply(&mut tx)?;
        }
        let keys = tx.into_keys();
        self.has_backlog = trim::trim(&self.conn, &mut self.state, self.options.hold, now)?;
        // A commit that changed nothing costs no flush.
        if self.conn.total_changes() != changes {
            self.state.flush(&self.conn)?;
        }
        Ok(keys)
    }

    /// Commits, and finds out what became of it.
    fn settle(&mut self, keys: Vec<String>) -> (Ended, Vec<String>) {
        let committed = self
            .conn
            .prepare_cached("COMMIT")
            .and_then(|mut commit| commit.execute([]));
        let Err(error) = committed else {
            return match self.place.check_committed() {
                Ok(()) => (Ended::Committed, keys),
                Err(gone) => (self.abandon(gone), Vec::new()),
            };
        };
        self.has_backlog = false;
        if !self.conn.is_autocommit() {
            // The transaction is still open, so it is certainly not committed.
            return (self.abandon(error.into()), Vec::new());
        }
        let expected = self.state.commits;
        tracing::error!(%error, "a commit failed; looking whether it is there");
        self.is_broken = true;
        let ended = match self.reopen() {
            // Which topics were changed went with the connection, so everybody has to look.
            Ok(()) => {
                self.shared.registry.wake_all();
                judge(&error, self.state.commits >= expected)
            }
            Err(_) => unseen(&error),
        };
        let ended = match ended {
            Ended::Refused(error) => Ended::Refused(self.explained(error)),
            other => other,
        };
        self.shared
            .set_trouble(self.is_broken.then(|| error.into()));
        (ended, keys)
    }

    /// Undoes a batch that failed before its commit.
    fn abandon(&mut self, error: MeshError) -> Ended {
        let error = self.explained(error);
        tracing::warn!(%error, "a commit was refused");
        if !self.conn.is_autocommit() && self.conn.execute_batch("ROLLBACK").is_err() {
            self.is_broken = true;
        }
        match State::load(&self.conn) {
            Ok(state) => self.state = state,
            Err(_) => self.is_broken = true,
        }
        self.shared.set_trouble(Some(error.clone()));
        Ended::Refused(error)
    }

    /// Gives an error the figures that only the writer knows.
    fn explained(&self, error: MeshError) -> MeshError {
        match error {
            MeshError::NoSpace { .. } => self.floor.met(),
            MeshError::StoreBusy { .. } => MeshError::StoreBusy {
                waited_ms: self.options.busy_patience_ms,
            },
            other => other.at(&self.options.path),
        }
    }

    /// Opens the file anew and loads what it says.
    fn reopen(&mut self) -> Result<(), MeshError> {
        let mut conn = open::reconnect(&self.options)?;
        if open::epoch(&conn)? != *self.shared.epoch {
            return Err(MeshError::StoreFailed {
                detail: "another store lies where this one was".to_owned(),
            });
        }
        self.state = State::load(&conn)?;
        self.copier.listen(&mut conn)?;
        self.conn = conn;
        self.place.forget_log();
        self.is_broken = false;
        Ok(())
    }

    /// Lets readers and the next start know how far the store is.
    fn publish_progress(&mut self) {
        let sequence = self.state.last;
        self.shared.set_trouble(None);
        if self.shared.newest.swap(sequence, Ordering::AcqRel) == sequence {
            return;
        }
        let (device, inode) = self.place.file;
        let seen = Seen {
            epoch: self.shared.epoch.to_string(),
            sequence,
            device,
            inode,
        };
        if let Err(error) = self.mark.write(&seen) {
            tracing::warn!(%error, "the store's mark could not be rewritten");
        }
    }
}

/// What a failed commit means while the file cannot be read again, as on a disk that stays full.
fn unseen(error: &rusqlite::Error) -> Ended {
    match error.sqlite_error_code() {
        // The space ended before the last frame was whole, and without that no reader takes the others for a commit.
        Some(ErrorCode::DiskFull) => Ended::Refused(MeshError::NoSpace { free: 0, floor: 0 }),
        _ => Ended::Unknown(error.to_string()),
    }
}

/// What a failed commit that left no transaction means, once the file could be read again.
fn judge(error: &rusqlite::Error, is_there: bool) -> Ended {
    // After a failed flush the file's pages may be read back from memory without being on the disk.
    let flush_failed = error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_FSYNC);
    match (is_there, flush_failed) {
        (true, false) => Ended::Committed,
        (true, true) => Ended::Unknown(error.to_string()),
        (false, _) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
            Ended::Refused(MeshError::NoSpace { free: 0, floor: 0 })
        }
        (false, _) => Ended::Refused(MeshError::StoreFailed {
            detail: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn judged(code: i32, is_there: bool) -> Ended {
        judge(
            &rusqlite::Error::SqliteFailure(ffi::Error::new(code), None),
            is_there,
        )
    }

    #[test]
    fn a_failed_commit_is_answered_by_what_the_file_says() {
        assert!(matches!(
            judged(ffi::SQLITE_IOERR_WRITE, true),
            Ended::Committed
        ));
        assert!(matches!(
            judged(ffi::SQLITE_IOERR_WRITE, false),
            Ended::Refused(MeshError::StoreFailed { .. })
        ));
        assert!(matches!(
            judged(ffi::SQLITE_IOERR_FSYNC, true),
            Ended::Unknown(_)
        ));
        assert!(matches!(
            judged(ffi::SQLITE_IOERR_FSYNC, false),
            Ended::Refused(_)
        ));
        assert!(matches!(
            judged(ffi::SQLITE_FULL, false),
            Ended::Refused(MeshError::NoSpace { .. })
        ));
    }

    #[test]
    fn a_full_disk_leaves_no_doubt_and_a_failed_flush_does() {
        let unseen =
            |code: i32| super::unseen(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(matches!(
            unseen(ffi::SQLITE_FULL),
            Ended::Refused(MeshError::NoSpace { .. })
        ));
        assert!(matches!(unseen(ffi::SQLITE_IOERR_FSYNC), Ended::Unknown(_)));
        assert!(matches!(unseen(ffi::SQLITE_IOERR_WRITE), Ended::Unknown(_)));
    }
}
