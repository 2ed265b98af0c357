//! Reconcile: from a task's folder to its announced end. Called at node start, when a shim is gone, and again with back-off
//! while an ended task is unannounced. It ends in the same `announce` as the shim's own post, so twice is impossible.

use std::collections::BTreeMap;
use std::path::Path;

use super::announce::{self, Announced};
use super::folder::{Folder, Probe};
use super::output;
use super::record::{End, State, Usage};
use super::row::{self, TaskRow};
use super::view::blocking;
use super::wire::{Receipt, Started, StreamName};
use crate::error::{Error, Result};
use crate::house::{House, now_ms};
use crate::limits::SUMMARY_CHARS_MAX;
use crate::sys::{self, Descendants};

/// The reason of a lost task whose command never ran a byte: its node ended between the row and the start.
pub const NEVER_STARTED: &str = "never-started";

/// What became of a task.
#[derive(Debug)]
pub enum Settled {
    /// Its shim lives.
    Alive,
    /// Its end is announced, now or before.
    Announced,
    /// Its end is told by somebody else, or never.
    Left,
    /// There is no such row (any more).
    Gone,
}

/// Looks what became of task `id` and announces its end if it has one.
pub async fn settle(house: &House, id: &str) -> Result<Settled> {
    settle_unless(house, id, async |_, _| Ok(false)).await
}

/// As [`settle`], but for an end that is for somebody else to tell.
pub async fn settle_unless(
    house: &House,
    id: &str,
    is_left: impl AsyncFnOnce(&TaskRow, &End) -> Result<bool>,
) -> Result<Settled> {
    let row = {
        let id = id.to_owned();
        house.look(move |sql| row::get(sql, &id)).await?
    };
    let Some(row) = row else {
        return Ok(Settled::Gone);
    };
    if row.announced {
        return Ok(Settled::Announced);
    }
    let path = house.home.task(id);
    let (task, streams) = (id.to_owned(), row.spec.streams.clone());
    let found = blocking(move || look(&path, &task, &streams)).await?;
    let Found::Ended(told) = found else {
        return Ok(Settled::Alive);
    };
    if is_left(&row, &told.end).await? {
        return Ok(Settled::Left);
    }
    announce_end(house, id, *told).await?;
    Ok(Settled::Announced)
}

/// Announces the end that the receipt of task `id` tells; refused while there is none.
pub async fn announce_receipt(house: &House, id: &str) -> Result<Announced> {
    let path = house.home.task(id);
    let end = blocking(move || {
        let read = || {
            let folder = Folder::open(&path)?;
            Ok(folder
                .receipt()?
                .map(|receipt| told(&folder, ended(&folder, receipt))))
        };
        read().map_err(|error| Error::io("reading the receipt", error))
    })
    .await?;
    match end {
        Some(told) => announce_end(house, id, told).await,
        None => Err(Error::Mesh(weft_mesh::MeshError::GrantEarly)),
    }
}

/// An end with the last of the output: all that its announcement needs.
struct Told {
    end: End,
    summary: Option<String>,
}

fn told(folder: &Folder, end: End) -> Told {
    Told {
        summary: summary(folder, &end.streams),
        end,
    }
}

async fn announce_end(house: &House, id: &str, told: Told) -> Result<Announced> {
    let (task, path) = (id.to_owned(), house.home.task(id));
    let announced = house
        .commit(move |tx| announce::announce(tx, &task, &told.end, told.summary))
        .await?;
    // Only a store that was replaced reads this mark, to know that a folder without a row was announced. Nobody waits for it,
    // and its loss costs nothing while the row is there.
    tokio::task::spawn_blocking(move || {
        Folder::open(&path).and_then(|folder| folder.mark_announced())
    });
    Ok(announced)
}

/// The end of the output, as the inbox shows it.
fn summary(folder: &Folder, streams: &BTreeMap<StreamName, u64>) -> Option<String> {
    const BYTES_A_CHAR: usize = 4;
    let text: String = streams
        .iter()
        .filter_map(|(stream, size)| {
            output::tail_text(
                folder,
                *stream,
                BYTES_A_CHAR * SUMMARY_CHARS_MAX,
                *size,
                true,
            )
            .ok()
        })
        .map(|chunk| chunk.text)
        .collect();
    let chars = text.chars().count();
    let text: String = text
        .chars()
        .skip(chars.saturating_sub(SUMMARY_CHARS_MAX))
        .collect();
    (!text.is_empty()).then_some(text)
}

/// What the files alone tell of the streams' sizes.
fn sizes(folder: &Folder, streams: &[StreamName]) -> BTreeMap<StreamName, u64> {
    let size = |stream| output::read(folder, stream, 0, 0, 0).map_or(0, |chunk| chunk.total);
    streams
        .iter()
        .map(|stream| (*stream, size(*stream)))
        .collect()
}

enum Found {
    Alive,
    Ended(Box<Told>),
}

fn look(path: &Path, id: &str, streams: &[StreamName]) -> Result<Found> {
    let folder = match Folder::open(path) {
        Ok(folder) => folder,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(never_started());
        }
        Err(error) => {
            return Err(Error::io(
                format!("opening the task's folder {}", path.display()),
                error,
            ));
        }
    };
    let context = || format!("looking what became of task {id}");
    match folder
        .probe()
        .map_err(|error| Error::io(context(), error))?
    {
        Probe::Alive => Ok(Found::Alive),
        Probe::Ended(receipt) if receipt.task_id == id => Ok(Found::Ended(Box::new(told(
            &folder,
            ended(&folder, *receipt),
        )))),
        Probe::Ended(_) => gone(
            &folder,
            id,
            streams,
            folder.started().ok().flatten(),
            UNREADABLE,
        ),
        Probe::Damaged(started) => gone(&folder, id, streams, started, UNREADABLE),
        Probe::Lost(None) => Ok(never_started()),
        Probe::Lost(started) => gone(&folder, id, streams, started, "shim-gone"),
    }
}

/// The reason of a task whose receipt is damaged: the end is told as one that cannot be known, instead of never.
const UNREADABLE: &str = "receipt-unreadable";

/// The end of a task that has no shim and no receipt: lost, and its remains ended as far as they can be proved its own.
fn gone(
    folder: &Folder,
    id: &str,
    streams: &[StreamName],
    started: Option<Started>,
    reason: &str,
) -> Result<Found> {
    let (reason, remains) = match &started {
        // In a copied home the file tells of the original's processes, which are alive and well: nobody is signalled.
        Some(started) if !folder.is_where_started(started) => ("copied", Descendants::Unknown),
        Some(started) => {
            let remains = sys::kill_lost_task(id, started)
                .map_err(|error| Error::io(format!("ending what is left of task {id}"), error))?;
            (reason, remains)
        }
        None => (reason, Descendants::Unknown),
    };
    let end = End {
        streams: sizes(folder, streams),
        ..lost(started, reason, Some(remains.as_str()))
    };
    Ok(Found::Ended(Box::new(told(folder, end))))
}

fn never_started() -> Found {
    Found::Ended(Box::new(Told {
        end: lost(None, NEVER_STARTED, None),
        summary: None,
    }))
}

pub(super) fn ended(folder: &Folder, receipt: Receipt) -> End {
    End::of_receipt(
        receipt,
        folder.started().ok().flatten().map(|started| started.pid),
    )
}

pub(super) fn lost(started: Option<Started>, reason: &str, descendants: Option<&str>) -> End {
    End {
        state: State::Lost,
        exit_code: None,
        signal: None,
        reason: Some(reason.to_owned()),
        pid: started.as_ref().map(|started| started.pid),
        started_at: started.as_ref().map(|started| started.started_at),
        finished_at: now_ms(),
        last_output_at: None,
        streams: BTreeMap::new(),
        streams_held_open: false,
        survivors: Vec::new(),
        descendants: descendants.map(ToOwned::to_owned),
        usage: Usage::default(),
    }
}
