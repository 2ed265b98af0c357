//! Reader threads: each with its own connection, which can only read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use super::job::panic_text;
use super::queue::Queue;
use crate::error::MeshError;
use crate::limits::{BUSY_PATIENCE_MS, READER_THREADS};

type Read = Box<dyn FnOnce(&Connection) + Send>;
pub(super) type Reads = Queue<Read>;

/// Starts the threads. They end when the queue is closed and empty.
pub(super) fn start(path: &Path, reads: &Arc<Reads>) -> Result<Vec<JoinHandle<()>>, MeshError> {
    (0..READER_THREADS)
        .map(|_| {
            let conn = connect(path)?;
            let reads = Arc::clone(reads);
            let serve = move || {
                while let Some(read) = reads.pop() {
                    read(&conn);
                }
            };
            let thread = std::thread::Builder::new().name("weft-reader".to_owned());
            thread.spawn(serve).map_err(|error| MeshError::StoreFailed {
                detail: format!("starting a thread: {error}"),
            })
        })
        .collect()
}

/// Makes a read of a closure and the place where its answer goes.
pub(super) fn prepare<T, F>(run: F) -> (Read, oneshot::Receiver<Result<T, MeshError>>)
where
    F: FnOnce(&Connection) -> Result<T, MeshError> + Send + 'static,
    T: Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let read = move |conn: &Connection| {
        let result = catch_unwind(AssertUnwindSafe(|| run(conn)));
        let result = result.unwrap_or_else(|panic| {
            Err(MeshError::Panicked {
                detail: panic_text(&*panic),
            })
        });
        // A snapshot that outlives its read would keep the write-ahead log from beginning anew.
        if !conn.is_autocommit() {
            drop(conn.execute_batch("ROLLBACK"));
        }
        drop(sender.send(result));
    };
    (Box::new(read), receiver)
}

fn connect(path: &Path) -> Result<Connection, MeshError> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    conn.busy_timeout(Duration::from_millis(BUSY_PATIENCE_MS))?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}
