//! `tasks.read`: bytes or text of a stream, by an offset that never resets.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weft_grants::Right;

use super::tasks_wait::long_poll_ms;
use crate::action::{Ctx, Verb};
use crate::check;
use crate::error::{Error, Result};
use crate::house::House;
use crate::limits::{READ_BYTES_MAX, SHIM_ANSWER_MS, TAIL_LINES_REACH};
use crate::task::announce;
use crate::task::control::Control;
use crate::task::folder::Folder;
use crate::task::output;
use crate::task::record::State;
use crate::task::row::{self, TaskRow};
use crate::task::view::{blocking, find, record};
use crate::task::wire::{Ask, Status, StreamName};

/// Reads output.
pub(crate) struct Read;

/// What to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReadInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// `output`, `stdout` or `stderr`; the task's first stream unless given.
    #[serde(default)]
    stream: Option<String>,
    /// Bytes since launch; 0 unless given.
    #[serde(default)]
    offset: Option<u64>,
    /// Begin so many lines from the end (0 or a negative number), instead of at an offset.
    #[serde(default)]
    lines: Option<i64>,
    /// Bytes at most, 1 to 65536.
    #[serde(default)]
    max: Option<usize>,
    /// Wait so long for bytes or the end, 0 to 300000 milliseconds.
    #[serde(default)]
    wait_ms: Option<u64>,
    /// `text`, or `base64` for exact bytes.
    #[serde(default)]
    encoding: Encoding,
}

/// How the bytes come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    /// Whole characters, malformed bytes as U+FFFD.
    #[default]
    Text,
    /// The bytes as they are.
    Base64,
}

/// The read record. `text` or `data`, by the encoding.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadOutput {
    id: String,
    stream: String,
    /// Where the bytes stand.
    offset: u64,
    /// How many there are.
    bytes: u64,
    /// Bytes before `offset` that are no longer kept.
    omitted_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    /// Pass it back as `offset`.
    next: u64,
    /// The task has ended and there is nothing past `next`.
    eof: bool,
    state: State,
}

impl Verb for Read {
    const REF: &'static str = "tasks.read";
    const SUMMARY: &'static str = "output of a task from a byte offset, waiting for more if asked";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = ReadInput;
    type Out = ReadOutput;

    async fn run(ctx: Ctx, input: ReadInput) -> Result<ReadOutput> {
        check::within("max", input.max, 1..=READ_BYTES_MAX)?;
        let max = input.max.unwrap_or(READ_BYTES_MAX);
        let wait_ms = long_poll_ms(input.wait_ms)?;
        let row = find(&ctx.house, &input.id).await?;
        let stream = chosen_stream(&row, input.stream.as_deref())?;
        let at = Place {
            offset: start(&ctx.house, &row, stream, &input).await?,
            max,
            encoding: input.encoding,
        };
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        read_until(&ctx.house, &row.spec.id, stream, at, deadline).await
    }
}

/// The stream that `name` means: the task's first unless given.
pub(crate) fn chosen_stream(row: &TaskRow, name: Option<&str>) -> Result<StreamName> {
    let has = || {
        row.spec
            .streams
            .iter()
            .map(|stream| stream.as_str())
            .collect::<Vec<_>>()
            .join(" and ")
    };
    match name {
        None => row
            .spec
            .streams
            .first()
            .copied()
            .ok_or_else(|| Error::Internal("a task without streams".into())),
        Some(name) => StreamName::parse(name)
            .filter(|stream| row.spec.streams.contains(stream))
            .ok_or_else(|| {
                Error::invalid(
                    "stream",
                    format!("{name:?} is none of this task; it has {}", has()),
                )
            }),
    }
}

async fn start(house: &House, row: &TaskRow, stream: StreamName, input: &ReadInput) -> Result<u64> {
    match (input.offset, input.lines) {
        (offset, None) => Ok(offset.unwrap_or(0)),
        // Of no lines there is what comes from now on.
        (None, Some(lines)) if lines <= 0 => {
            let path = house.home.task(&row.spec.id);
            let known = known(row, stream);
            let lines = usize::try_from(lines.unsigned_abs()).unwrap_or(usize::MAX);
            blocking(move || {
                Folder::open(&path)
                    .and_then(|folder| {
                        output::last_lines(&folder, stream, lines, TAIL_LINES_REACH, known)
                    })
                    .map_err(|error| Error::io("reading the output", error))
            })
            .await
        }
        (None, Some(lines)) => Err(Error::invalid(
            "lines",
            format!("counts from the end: give 0 or a negative number, not {lines}"),
        )),
        (Some(_), Some(_)) => Err(Error::invalid(
            "lines",
            "comes instead of `offset`, not beside it",
        )),
    }
}

fn known(row: &TaskRow, stream: StreamName) -> u64 {
    row.end
        .as_ref()
        .and_then(|end| end.streams.get(&stream))
        .copied()
        .unwrap_or(0)
}

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    max: usize,
    encoding: Encoding,
}

struct Got {
    output: ReadOutput,
    total: u64,
}

impl Got {
    fn tells_something(&self) -> bool {
        self.output.bytes > 0 || self.output.omitted_bytes > 0 || self.output.eof
    }
}

/// Reads, and while there is nothing to tell waits for the shim to say that there is.
async fn read_until(
    house: &House,
    id: &str,
    stream: StreamName,
    at: Place,
    deadline: Instant,
) -> Result<ReadOutput> {
    let mut is_second_look = false;
    loop {
        // Registered before the row is read, so that an end in between is not missed.
        let mut ended = house.store.watch_key(&announce::wake_key(id));
        let this = id.to_owned();
        let row = house.look(move |sql| row::get(sql, &this)).await?;
        let row = row.ok_or_else(|| Error::no_task(id))?;
        let mut got = look(house, &row, stream, at, known(&row, stream)).await?;
        if !got.tells_something() && row.end.is_none() {
            // Somebody may have cut or removed the file; only the shim knows how long the stream is then.
            match size_told(house, id, stream).await {
                Some(size) if size > got.total => {
                    got = look(house, &row, stream, at, size).await?;
                }
                None if at.offset > got.total && !is_second_look => {
                    // It is ending: the row is about to say how long the stream was.
                    is_second_look = true;
                    let bound = Duration::from_millis(SHIM_ANSWER_MS);
                    let _ = tokio::time::timeout(bound, ended.changed()).await;
                    continue;
                }
                _ => {}
            }
        }
        if at.offset > got.total {
            return Err(Error::invalid(
                "offset",
                format!(
                    "is {}, past the {} bytes that the stream has",
                    at.offset, got.total
                ),
            ));
        }
        if got.tells_something() || Instant::now() >= deadline {
            return Ok(got.output);
        }
        let more = more_output(house, id, stream, got.total);
        let waited = async {
            tokio::select! {
                () = more => {}
                () = ended.changed() => {}
            }
        };
        // The timeout ends the wait, not the read: one more look, which returns.
        let _ = house
            .unless_stopping(tokio::time::timeout_at(deadline, waited))
            .await?;
    }
}

/// The way to a living task's shim: its actor's connection, or one of our own. An actor that has just begun, or is being rebuilt,
/// has none, and whoever took that for "no shim" would sleep through all that the task says.
async fn control(house: &House, id: &str) -> Option<Control> {
    match house.live.get(id) {
        Some(live) => Some(live.control),
        None => Control::connect(&house.home.task(id)).await.ok(),
    }
}

/// Ends when the stream of a living task has more than `after` bytes; never for one without a shim, whose end is told otherwise.
pub(crate) async fn more_output(house: &House, id: &str, stream: StreamName, after: u64) {
    if let Some(control) = control(house, id).await
        && control.ask_together(Ask::Await { stream, after }).await
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// The size of a living task's stream as its shim counts it; none without a shim, or where it does not answer soon.
pub(crate) async fn size_told(house: &House, id: &str, stream: StreamName) -> Option<u64> {
    let told = tokio::time::timeout(Duration::from_millis(SHIM_ANSWER_MS), async {
        control(house, id).await?.ask(Ask::Status).await.ok()
    });
    let status: Status = serde_json::from_value(told.await.ok()??).ok()?;
    status.sizes.get(&stream).copied()
}

async fn look(
    house: &House,
    row: &TaskRow,
    stream: StreamName,
    at: Place,
    known: u64,
) -> Result<Got> {
    let path = house.home.task(&row.spec.id);
    let ended = row.end.is_some();
    let state = record(house, row).state;
    let id = row.spec.id.clone();
    blocking(move || {
        let read = || -> std::io::Result<Got> {
            let folder = Folder::open(&path)?;
            let (offset, omitted, next, total, text, data) = match at.encoding {
                Encoding::Text => {
                    let chunk =
                        output::read_text(&folder, stream, at.offset, at.max, known, ended)?;
                    (
                        chunk.offset,
                        chunk.omitted,
                        chunk.next,
                        chunk.total,
                        Some(chunk.text),
                        None,
                    )
                }
                Encoding::Base64 => {
                    let chunk = output::read(&folder, stream, at.offset, at.max, known)?;
                    (
                        chunk.offset,
                        chunk.omitted,
                        chunk.next,
                        chunk.total,
                        None,
                        Some(BASE64_STANDARD.encode(&chunk.bytes)),
                    )
                }
            };
            let output = ReadOutput {
                id,
                stream: stream.to_string(),
                offset,
                bytes: next - offset,
                omitted_bytes: omitted,
                text,
                data,
                next,
                eof: ended && next >= total,
                state,
            };
            Ok(Got { output, total })
        };
        read().map_err(|error| Error::io("reading the output", error))
    })
    .await
}
