//! `tasks.watch`: complete lines that hold a literal, from a byte cursor on.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weft_grants::Right;

use super::tasks_read::{chosen_stream, more_output, size_told};
use super::tasks_wait::checked_wait;
use crate::action::{Ctx, Verb};
use crate::error::{Error, Result};
use crate::limits::{MATCH_CHARS_MAX, READ_BYTES_MAX, WATCH_LINES_MAX, WATCH_MS_DEFAULT};
use crate::lines::{Line, LineScanner};
use crate::task::announce;
use crate::task::folder::Folder;
use crate::task::output;
use crate::task::row;
use crate::task::view::{blocking, find};
use crate::task::wire::StreamName;

/// Watches for lines.
pub(crate) struct Watch;

/// What for, and from where.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WatchInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// A case-sensitive literal, 1 to 256 characters.
    #[serde(default, rename = "match")]
    literal: Option<String>,
    /// A byte cursor; 0 unless given. Pass `nextCursor` back.
    #[serde(default)]
    after: u64,
    /// 1 to 300000 milliseconds; 5000 unless given.
    #[serde(default)]
    timeout_ms: Option<u64>,
}

/// Why the watch answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reason {
    /// There are lines.
    Match,
    /// The task has ended; no line is left.
    Finished,
    /// Nothing yet.
    Timeout,
}

/// The watch record.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WatchOutput {
    reason: Reason,
    lines: Vec<Line>,
    /// Bytes that are no longer kept and were not looked at.
    omitted_bytes: u64,
    /// There may be more at once: call again.
    more: bool,
    /// A byte offset at a line's beginning.
    next_cursor: u64,
}

impl Verb for Watch {
    const REF: &'static str = "tasks.watch";
    const SUMMARY: &'static str =
        "complete lines of a task that hold a literal, waiting for the first";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = WatchInput;
    type Out = WatchOutput;

    async fn run(ctx: Ctx, input: WatchInput) -> Result<WatchOutput> {
        let wait = checked_wait("timeoutMs", input.timeout_ms, WATCH_MS_DEFAULT)?;
        let literal = match input.literal {
            None => {
                return Err(Error::invalid(
                    "match",
                    "is missing: this task has no monitor, so give the literal to look for",
                ));
            }
            Some(literal) if (1..=MATCH_CHARS_MAX).contains(&literal.chars().count()) => literal,
            Some(_) => {
                return Err(Error::invalid(
                    "match",
                    format!("takes 1 to {MATCH_CHARS_MAX} characters"),
                ));
            }
        };
        let row = find(&ctx.house, &input.id).await?;
        let stream = chosen_stream(&row, None)?;
        let id = row.spec.id.clone();
        watch(
            &ctx,
            &id,
            stream,
            LineScanner::new(literal.into_bytes(), input.after),
            Instant::now() + wait,
        )
        .await
    }
}

async fn watch(
    ctx: &Ctx,
    id: &str,
    stream: StreamName,
    mut scanner: LineScanner,
    deadline: Instant,
) -> Result<WatchOutput> {
    let house = &ctx.house;
    let path = house.home.task(id);
    let mut omitted = 0;
    // A cursor may stand past the end of a file that somebody cut.
    let mut told = match scanner.position() {
        0 => 0,
        _ => size_told(house, id, stream).await.unwrap_or(0),
    };
    loop {
        let mut ended = house.store.watch_key(&announce::wake_key(id));
        let row = {
            let id = id.to_owned();
            house.look(move |sql| row::get(sql, &id)).await?
        };
        let row = row.ok_or_else(|| Error::no_task(id))?;
        let known = row
            .end
            .as_ref()
            .and_then(|end| end.streams.get(&stream))
            .copied()
            .unwrap_or(told);
        let page = scan(path.clone(), stream, scanner, known, row.end.is_some()).await?;
        scanner = page.scanner;
        omitted += page.omitted;
        let lines = scanner.take_lines();
        let reason = if !lines.is_empty() {
            Reason::Match
        } else if row.end.is_some() && page.at_end {
            Reason::Finished
        } else if Instant::now() >= deadline {
            Reason::Timeout
        } else {
            let total = scanner.position();
            if page.at_end && row.end.is_none() {
                told = size_told(house, id, stream).await.unwrap_or(0);
                if told > total {
                    // More than was looked at: it came meanwhile, or the file was cut and that is disclosed now.
                    continue;
                }
            }
            let waited = async {
                tokio::select! {
                    () = more_output(house, id, stream, total) => {}
                    () = ended.changed() => {}
                }
            };
            if page.at_end {
                let _ = house
                    .unless_stopping(tokio::time::timeout_at(deadline, waited))
                    .await?;
            }
            continue;
        };
        let more = lines.len() == WATCH_LINES_MAX || !page.at_end;
        return Ok(WatchOutput {
            reason,
            omitted_bytes: omitted,
            more: more && reason == Reason::Match,
            next_cursor: scanner.cursor(),
            lines,
        });
    }
}

struct Scanned {
    scanner: LineScanner,
    omitted: u64,
    at_end: bool,
}

/// Scans what is there, at most until the answer is full. Memory stays at one page, however long a line is.
async fn scan(
    path: PathBuf,
    stream: StreamName,
    mut scanner: LineScanner,
    known: u64,
    ended: bool,
) -> Result<Scanned> {
    /// Pages a call looks at before it lets others run.
    const PAGES: usize = 256;
    blocking(move || {
        let folder = Folder::open(&path).map_err(|error| Error::io("reading the output", error))?;
        let mut omitted = 0;
        for _ in 0..PAGES {
            if scanner.is_full() {
                return Ok(Scanned {
                    scanner,
                    omitted,
                    at_end: false,
                });
            }
            let at = scanner.position();
            let chunk = output::read(&folder, stream, at, READ_BYTES_MAX, known)
                .map_err(|error| Error::io("reading the output", error))?;
            if at > chunk.total {
                return Err(Error::invalid(
                    "after",
                    format!(
                        "is {at}, past the {} bytes that the stream has",
                        chunk.total
                    ),
                ));
            }
            if chunk.omitted > 0 {
                omitted += chunk.omitted;
                scanner.skip_to(chunk.offset);
            }
            scanner.push(&chunk.bytes);
            if chunk.next >= chunk.total {
                if ended && !scanner.is_full() {
                    scanner.finish();
                }
                let at_end = !scanner.has_unread();
                return Ok(Scanned {
                    scanner,
                    omitted,
                    at_end,
                });
            }
        }
        Ok(Scanned {
            scanner,
            omitted,
            at_end: false,
        })
    })
    .await
}
