//! Taking in folders without a row: only when the store is another one than before (a new epoch), since only then can rows be
//! missing. A folder whose end was announced gets a finished row and no event; any other gets its row back, and its end is announced
//! from its receipt under the same id. The same holds for rows that an older copy of the store, put back, has as unannounced.

use rusqlite::{Connection, OptionalExtension, params};
use tracing::{info, warn};

use super::folder::{self, Folder};
use super::launch::SpecFile;
use super::record::{End, NotifyState, State};
use super::row::{self, TaskRow};
use super::settle::{ended, lost};
use super::view::blocking;
use crate::error::{Error, Result};
use crate::house::House;
use crate::limits::INTAKE_BATCH;

/// Which epochs were taken in already.
pub const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS intake (
  epoch TEXT PRIMARY KEY
) WITHOUT ROWID;
";

struct Found {
    row: TaskRow,
    /// The end of one that was announced before.
    announced: Option<End>,
}

/// Takes in what this epoch has not seen. Nothing to do, and no folder is opened, where it did before.
pub async fn take_in(house: &House) -> Result<()> {
    let epoch = house.store.epoch().to_owned();
    let known = {
        let epoch = epoch.clone();
        house.look(move |sql| Ok(known_epoch(sql, &epoch)?)).await?
    };
    if known {
        return Ok(());
    }
    let tasks = house.home.tasks();
    let found = blocking(move || scan(&tasks)).await?;
    let mut count = 0;
    let mut batches = found.into_iter().peekable();
    while batches.peek().is_some() {
        let batch: Vec<Found> = batches.by_ref().take(INTAKE_BATCH).collect();
        count += house
            .commit(move |tx| {
                batch
                    .iter()
                    .try_fold(0, |count, found| Ok(count + insert(tx.sql(), found)?))
            })
            .await?;
    }
    house
        .commit(move |tx| {
            tx.sql().execute(
                "INSERT OR IGNORE INTO intake (epoch) VALUES (?1)",
                params![epoch],
            )?;
            Ok(())
        })
        .await?;
    if count > 0 {
        info!(
            count,
            "this store is a new one: took in the tasks of this home by their folders"
        );
    }
    Ok(())
}

fn known_epoch(sql: &Connection, epoch: &str) -> rusqlite::Result<bool> {
    Ok(sql
        .query_row("SELECT 1 FROM intake WHERE epoch = ?1", [epoch], |_| Ok(()))
        .optional()?
        .is_some())
}

fn insert(sql: &Connection, found: &Found) -> Result<usize> {
    let id = &found.row.spec.id;
    let known = row::get(sql, id)?;
    // A store that was put back from a copy may know the task and not its end.
    if known.as_ref().is_some_and(|row| row.announced) {
        return Ok(0);
    }
    if known.is_none() {
        row::insert(sql, &found.row)?;
    }
    if let Some(end) = &found.announced {
        let notify = found
            .row
            .spec
            .notify
            .as_ref()
            .map(|_| (NotifyState::Posted, None));
        row::set_announced(sql, id, end, notify)?;
    }
    Ok(usize::from(known.is_none()))
}

fn scan(tasks: &std::path::Path) -> Result<Vec<Found>> {
    let context = || format!("reading {}", tasks.display());
    let entries = match std::fs::read_dir(tasks) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(context(), error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Error::io(context(), error))?.path();
        match look(&path) {
            Ok(Some(one)) => found.push(one),
            Ok(None) => {}
            // One folder that cannot be read must not keep the others from being announced.
            Err(error) => {
                warn!(folder = %path.display(), %error, "a task's folder cannot be taken in");
            }
        }
    }
    Ok(found)
}

fn look(path: &std::path::Path) -> std::io::Result<Option<Found>> {
    let folder = Folder::open(path)?;
    let Some(file) = folder.read_json::<SpecFile>(folder::SPEC)? else {
        return Ok(None);
    };
    if path
        .file_name()
        .is_none_or(|name| name != file.spec.id.as_str())
    {
        return Err(std::io::Error::other("its spec is of another task"));
    }
    let announced = if folder.is_announced() {
        Some(match folder.receipt()? {
            Some(receipt) => ended(&folder, receipt),
            None => lost(folder.started()?, "shim-gone", None),
        })
    } else {
        None
    };
    let row = TaskRow {
        notify_state: file.spec.notify.as_ref().map(|_| NotifyState::Pending),
        spec: file.spec,
        session: file.session,
        lease: file.lease,
        key: file.key,
        state: State::Starting,
        announced: false,
        discard_item: false,
        adopted: false,
        notify_reason: None,
        end: None,
    };
    Ok(Some(Found { row, announced }))
}
