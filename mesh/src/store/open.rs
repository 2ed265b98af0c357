//! Opening a store: look first, refuse what is damaged, foreign or newer, and only then write.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::ledger;
use super::mark::{Mark, Seen, identity};
use super::options::StoreOptions;
use super::schema::{APPLICATION_ID, FORMAT, TABLES};
use crate::error::MeshError;
use crate::limits::CHECK_BYTES_MAX;
use crate::name::next_uuid;

/// What every SQLite file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// A store that is open and whose epoch is settled.
pub(super) struct Opened {
    pub(super) conn: Connection,
    pub(super) mark: Mark,
    pub(super) epoch: String,
    pub(super) file: (u64, u64),
}

pub(super) fn open(options: &StoreOptions) -> Result<Opened, MeshError> {
    let (mark, seen) = Mark::open(&options.mark)?;
    let is_new = look(&options.path, seen.is_some())?;
    if !is_new {
        inspect(&options.path)?;
    }
    let mut conn = make(options).map_err(|error| error.at(&options.path))?;
    let (epoch, file) =
        prepare(&mut conn, options, seen.as_ref()).map_err(|error| error.at(&options.path))?;
    let sequence = conn.query_row("SELECT last FROM log", [], |row| row.get(0))?;
    let (device, inode) = file;
    let now_seen = Seen {
        epoch: epoch.clone(),
        sequence,
        device,
        inode,
    };
    if seen.as_ref() != Some(&now_seen) {
        mark.write(&now_seen)?;
        mark.sync()?;
    }
    Ok(Opened {
        conn,
        mark,
        epoch,
        file,
    })
}

/// Makes the file where it is missing, and connects.
fn make(options: &StoreOptions) -> Result<Connection, MeshError> {
    connect(
        options,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    )
}

/// Connects anew to a store that was open before. One that is gone is not made again.
pub(super) fn reconnect(options: &StoreOptions) -> Result<Connection, MeshError> {
    connect(options, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// Connects for writing, with the settings every commit relies on.
fn connect(options: &StoreOptions, flags: OpenFlags) -> Result<Connection, MeshError> {
    let conn = Connection::open_with_flags(&options.path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // First of all, since even the switch to the write-ahead log may meet another process.
    conn.busy_timeout(Duration::from_millis(options.busy_patience_ms))?;
    // Only before the first table does this take effect; without it a file never shrinks.
    conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL;")?;
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(MeshError::StoreFailed {
            detail: format!("the file system allows no write-ahead log (it gave {mode})"),
        });
    }
    conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -8000;",
    )?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

pub(super) fn epoch(conn: &Connection) -> Result<String, MeshError> {
    Ok(conn.query_row("SELECT epoch FROM log", [], |row| row.get(0))?)
}

/// Looks at the file without SQLite. True when it is to be made.
fn look(path: &Path, was_seen: bool) -> Result<bool, MeshError> {
    let corrupt = |detail: &str| MeshError::StoreCorrupt {
        path: path.to_owned(),
        detail: detail.to_owned(),
    };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(MeshError::io("opening the store", path, &error)),
    };
    let mut head = Vec::new();
    let read = file
        .by_ref()
        .take(MAGIC.len() as u64)
        .read_to_end(&mut head);
    read.map_err(|error| MeshError::io("reading the store", path, &error))?;
    match head.as_slice() {
        // SQLite makes the file before it fills it, so an empty one is a first start that was cut short.
        [] if !was_seen => Ok(true),
        [] => Err(corrupt("it is empty, but a store was here before")),
        head if head == MAGIC => Ok(false),
        _ => Err(corrupt("it is not a database")),
    }
}

/// Looks at the file with SQLite, by a connection that leaves it as it is.
fn inspect(path: &Path) -> Result<(), MeshError> {
    let looked = (|| {
        let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.busy_timeout(Duration::from_millis(crate::limits::BUSY_PATIENCE_MS))?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
        let (application, format) = (
            number("PRAGMA application_id")?,
            number("PRAGMA user_version")?,
        );
        let tables = number("SELECT count(*) FROM sqlite_schema")?;
        let bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
        let mut fault = None;
        if bytes <= CHECK_BYTES_MAX as i64 {
            let check = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
            fault = Some(check?).filter(|fault: &String| fault != "ok");
        }
        Ok((application, format, tables, fault))
    })();
    match looked.map_err(|error: rusqlite::Error| MeshError::from(error).at(path))? {
        (_, _, _, Some(detail)) => Err(MeshError::StoreCorrupt {
            path: path.to_owned(),
            detail,
        }),
        (APPLICATION_ID, found, _, _) if found > FORMAT => Err(MeshError::StoreNewer {
            path: path.to_owned(),
            found,
            known: FORMAT,
        }),
        (APPLICATION_ID, ..) | (0, 0, 0, _) => Ok(()),
        _ => Err(MeshError::StoreForeign {
            path: path.to_owned(),
        }),
    }
}

/// Makes what is missing and settles the epoch, in one transaction.
fn prepare(
    conn: &mut Connection,
    options: &StoreOptions,
    seen: Option<&Seen>,
) -> Result<(String, (u64, u64)), MeshError> {
    let file = identity(&options.path)?;
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if tx.query_row("PRAGMA application_id", [], |row| row.get::<_, i64>(0))? != APPLICATION_ID {
        tx.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
        ))?;
    }
    tx.execute_batch(TABLES)?;
    options
        .schema
        .iter()
        .try_for_each(|schema| tx.execute_batch(schema))?;
    let before: Option<(String, u64)> = tx
        .query_row("SELECT epoch, last FROM log", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let epoch = match (&before, seen) {
        (Some((epoch, last)), Some(seen)) if seen.is_of(epoch, *last, file) => epoch.clone(),
        _ => begin_epoch(
            &tx,
            before.map_or(0, |(_, last)| last),
            seen,
            (options.now)(),
        )?,
    };
    tx.commit()?;
    Ok((epoch, file))
}

/// Begins a new epoch. The counter goes on from wherever a store here is known to have been, so that even a cursor
/// that names no epoch does not pass over new events.
fn begin_epoch(
    conn: &Connection,
    last: u64,
    seen: Option<&Seen>,
    now: u64,
) -> Result<String, MeshError> {
    let epoch = make_epoch();
    let last = last.max(seen.map_or(0, |seen| seen.sequence));
    conn.execute(
        "INSERT INTO log (one, epoch, last, commits) VALUES (1, ?1, ?2, 0) \
         ON CONFLICT (one) DO UPDATE SET epoch = ?1, last = ?2",
        (&epoch, last),
    )?;
    ledger::revoke_other_epochs(conn, &epoch, now)?;
    tracing::info!(epoch, "the store begins a new epoch");
    Ok(epoch)
}

/// 62 random bits as text without `-`, the half of a UUID that no clock is in.
fn make_epoch() -> String {
    format!("{:016x}", next_uuid().as_u64_pair().1)
}
