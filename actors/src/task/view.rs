//! What callers see of a task: its record, put together from row, folder and living shim.

use std::time::UNIX_EPOCH;

use schemars::JsonSchema;
use serde::Serialize;

use super::folder::Folder;
use super::output;
use super::record::{End, Notify, NotifyState, Record, State, Usage};
use super::row::{self, TaskRow};
use super::wire::{Io, StreamName};
use crate::error::{Error, Result};
use crate::house::{House, now_ms};
use crate::limits::{ANNOUNCE_OVERDUE_MS, CANDIDATES_MAX, TAIL_BYTES};

/// The row that `id`, a whole id or an unambiguous prefix, means.
pub async fn find(house: &House, id: &str) -> Result<TaskRow> {
    if id.is_empty() {
        return Err(Error::invalid("id", "is empty; `weft ps` lists the tasks"));
    }
    let id = id.to_owned();
    house
        .store
        .read(move |sql| {
            Ok((|| {
                if let Some(row) = row::get(sql, &id)? {
                    return Ok(row);
                }
                let mut candidates = row::ids_with_prefix(sql, &id, CANDIDATES_MAX + 1)?;
                match (candidates.len(), candidates.first()) {
                    (1, Some(only)) => row::get(sql, only)?.ok_or_else(|| Error::no_task(&id)),
                    (0, _) => Err(Error::no_task(&id)),
                    _ => {
                        candidates.truncate(CANDIDATES_MAX);
                        Err(Error::Ambiguous {
                            prefix: id.clone(),
                            candidates,
                        })
                    }
                }
            })())
        })
        .await?
}

/// As [`find`], refused where the caller looked up another run of that id.
pub async fn find_incarnation(
    house: &House,
    id: &str,
    incarnation: Option<&str>,
) -> Result<TaskRow> {
    let row = find(house, id).await?;
    if incarnation.is_some_and(|incarnation| incarnation != row.spec.incarnation) {
        return Err(Error::Stale {
            what: "task",
            id: row.spec.id,
        });
    }
    Ok(row)
}

/// The record of a row. Looks into the task's folder where the row does not have the end yet: short, but not for a hot path.
pub fn record(house: &House, row: &TaskRow) -> Record {
    let spec = &row.spec;
    let path = house.home.task(&spec.id);
    // With its end the row is the truth, and the folder is left alone: a list of a thousand opens no file.
    let folder = if row.end.is_none() {
        Folder::open(&path).ok()
    } else {
        None
    };
    // An end that could not be announced yet, for want of space say, is one all the same.
    let unannounced = folder
        .as_ref()
        .and_then(|folder| unannounced_end(folder, &spec.id));
    let end = row.end.as_ref().or(unannounced.as_ref());
    let started = folder
        .as_ref()
        .and_then(|folder| folder.started().ok().flatten());
    let state = match (end, &started) {
        (Some(end), _) => end.state,
        (None, Some(_)) => State::Running,
        (None, None) => State::Starting,
    };
    let started_at = end
        .and_then(|end| end.started_at)
        .or(started.as_ref().map(|started| started.started_at));
    let (output_bytes, last_output_at) = match end {
        Some(end) => (end.output_bytes(), end.last_output_at),
        None => live_output(folder.as_ref(), &spec.streams),
    };
    Record {
        id: spec.id.clone(),
        session: row.session.clone(),
        by: spec.by.clone(),
        label: spec.label.clone(),
        command: spec.command.clone(),
        argv: spec.argv.clone(),
        cwd: spec.cwd.clone(),
        lease: Some(row.lease),
        io: Some(spec.io),
        tty: spec.io == Io::Pty,
        streams: spec.streams.iter().map(ToString::to_string).collect(),
        state,
        running: !state.is_final(),
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal.clone()),
        reason: end.and_then(|end| end.reason.clone()),
        pid: started
            .as_ref()
            .map(|started| started.pid)
            .or(end.and_then(|end| end.pid)),
        started_at,
        finished_at: end.map(|end| end.finished_at),
        // A file's time is taken from a clock of a few milliseconds.
        last_output_at: last_output_at.max(started_at.filter(|_| last_output_at.is_some())),
        output_bytes,
        log_path: path
            .join(
                spec.streams
                    .first()
                    .map_or("output", |stream| stream.as_str()),
            )
            .to_string_lossy()
            .into_owned(),
        deadline_at: spec
            .timeout_ms
            .zip(started_at)
            .map(|(timeout, started)| started + timeout),
        streams_held_open: end.is_some_and(|end| end.streams_held_open),
        survivors: end.map(|end| end.survivors.clone()).unwrap_or_default(),
        descendants: end.and_then(|end| end.descendants.clone()),
        notify: spec.notify.as_ref().map(|notify| Notify {
            topic: notify.topic.clone(),
            kind: notify.kind.clone(),
            grant_id: notify.grant_id.clone(),
            state: row.notify_state.unwrap_or(NotifyState::Pending),
            reason: row.notify_reason.clone(),
        }),
        monitor: None,
        target: None,
        usage: end.map_or(
            Usage {
                processes: u32::from(started.is_some()),
                ..Usage::default()
            },
            |end| end.usage,
        ),
        adopted: row.adopted,
        incarnation: spec.incarnation.clone(),
        node: house.node_id(),
    }
}

/// The end of a task whose announcement is overdue. Before that the task counts as running: whoever sees an end may rely on its
/// event and delivery being there.
fn unannounced_end(folder: &Folder, id: &str) -> Option<End> {
    let receipt = folder.receipt().ok().flatten()?;
    let is_overdue = now_ms().saturating_sub(receipt.finished_at) > ANNOUNCE_OVERDUE_MS;
    (receipt.task_id == id && is_overdue).then(|| End::of_receipt(receipt, None))
}

/// Runs file work on a thread that may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::Internal(format!("file work failed inside: {error}"))))
}

/// Size and age of what a running task printed, by its files alone.
fn live_output(folder: Option<&Folder>, streams: &[StreamName]) -> (u64, Option<u64>) {
    let Some(folder) = folder else {
        return (0, None);
    };
    let mut bytes = 0;
    let mut last = None;
    for stream in streams {
        let total = output::read(folder, *stream, 0, 0, 0).map_or(0, |chunk| chunk.total);
        bytes += total;
        let written = folder
            .open_file(stream.as_str())
            .and_then(|file| file.metadata()?.modified())
            .ok();
        let written = written
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
            .map(|since| since.as_millis() as u64);
        if total > 0 {
            last = last.max(written);
        }
    }
    (bytes, last)
}

/// A stream's output in an answer: its beginning, its end, and how much lies between.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputEntry {
    /// The stream.
    pub stream: String,
    /// Its beginning; empty where only the tail was asked for.
    pub head: String,
    /// Bytes that are not shown.
    pub omitted_bytes: u64,
    /// Its end.
    pub tail: String,
}

/// The last bytes of each stream.
pub async fn tails(house: &House, row: &TaskRow) -> Result<Vec<OutputEntry>> {
    outputs(house, row, 0, TAIL_BYTES).await
}

/// Head and tail of each stream: at most `head` and `tail` bytes, cut at characters. A stream that fits into both is shown whole,
/// as its tail.
pub async fn outputs(
    house: &House,
    row: &TaskRow,
    head: usize,
    tail: usize,
) -> Result<Vec<OutputEntry>> {
    let path = house.home.task(&row.spec.id);
    let (streams, end) = (row.spec.streams.clone(), row.end.clone());
    blocking(move || {
        let folder = match Folder::open(&path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("opening the task's folder", error)),
        };
        let ended = end.is_some();
        streams
            .iter()
            .map(|stream| {
                let known = end
                    .as_ref()
                    .and_then(|end| end.streams.get(stream))
                    .copied()
                    .unwrap_or(0);
                entry(&folder, *stream, head, tail, known, ended)
                    .map_err(|error| Error::io("reading the output", error))
            })
            .collect()
    })
    .await
}

fn entry(
    folder: &Folder,
    stream: StreamName,
    head: usize,
    tail: usize,
    known: u64,
    ended: bool,
) -> std::io::Result<OutputEntry> {
    let last = output::tail_text(folder, stream, head + tail, known, ended)?;
    if last.offset == 0 || head == 0 {
        return Ok(OutputEntry {
            stream: stream.to_string(),
            head: String::new(),
            omitted_bytes: last.omitted,
            tail: last.text,
        });
    }
    let last = output::tail_text(folder, stream, tail, known, ended)?;
    let first = output::read_text(folder, stream, 0, head, known, ended)?;
    // Where retention already took the beginning, what is left of it may reach into the tail.
    if first.next > last.offset {
        return Ok(OutputEntry {
            stream: stream.to_string(),
            head: String::new(),
            omitted_bytes: last.omitted,
            tail: last.text,
        });
    }
    Ok(OutputEntry {
        stream: stream.to_string(),
        omitted_bytes: first.omitted + (last.offset - first.next),
        head: first.text,
        tail: last.text,
    })
}
