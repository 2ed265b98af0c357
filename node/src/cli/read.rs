//! `read` and `watch`: a task's output by offset, and the lines of it that hold a text.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use weft_actors::limits::WATCH_MS_DEFAULT;

use super::given;
use crate::app::{App, block_on, colour, on_terminal, print, print_bytes, print_json, say};
use crate::client::Client;
use crate::duration::parse_ms;
use crate::exit::{self, Failure};
use crate::limits::WAIT_MS_MAX;
use crate::render::{self, list, log::Filter, text};

/// Options of `read`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft read t-3f                      the first 64 KiB of its output\n  weft read t-3f stderr 4096 --wait 30s\n\nInto a file or pipe the bytes go as they are; the next offset is told on stderr."
)]
pub(super) struct Read {
    /// The task's id, or the beginning of it
    id: String,
    /// The stream: output, stdout or stderr
    stream: Option<String>,
    /// Bytes since launch to begin at
    offset: Option<u64>,
    /// At most this many bytes, 1 to 65536
    #[arg(long, value_name = "BYTES")]
    max: Option<u64>,
    /// Wait this long for more
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    wait: Option<u64>,
    /// `base64` for the exact bytes in text form
    #[arg(long, value_name = "ENCODING", value_parser = ["text", "base64"])]
    encoding: Option<String>,
}

impl Read {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        // `read ID 4096` means the offset: no stream is called by a number.
        let (stream, offset) = match (&self.stream, self.offset) {
            (Some(word), None) if word.bytes().all(|byte| byte.is_ascii_digit()) => (
                None,
                Some(
                    word.parse()
                        .map_err(|_| Failure::Usage(format!("{word}: too large for an offset")))?,
                ),
            ),
            (stream, offset) => (stream.clone(), offset),
        };
        let exact = !app.globals.json && self.encoding.is_none() && !on_terminal();
        let encoding = if exact {
            Some("base64".to_owned())
        } else {
            self.encoding.clone()
        };
        let input = given([
            ("id", Some(self.id.into())),
            ("stream", stream.map(Into::into)),
            ("offset", offset.map(Into::into)),
            ("max", self.max.map(Into::into)),
            ("encoding", encoding.map(Into::into)),
        ]);
        let mut client = app.client()?;
        let wait = Duration::from_millis(self.wait.unwrap_or(0));
        let record = block_on(wait_for_more(&mut client, input, wait))?;
        if app.globals.json {
            print_json(&record)?;
            return Ok(exit::DONE);
        }
        if exact {
            print_bytes(&decode(&record)?)?;
        } else if self.encoding.as_deref() == Some("base64") {
            print(&format!("{}\n", text(&record, "data")))?;
        } else {
            let mut filter = Filter::new(colour());
            print(&(filter.push(text(&record, "text")) + filter.finish()))?;
        }
        say(&position(&record));
        Ok(exit::DONE)
    }
}

/// One read that waits for bytes, asking again while the node's own bound, not ours, ended the wait.
async fn wait_for_more(
    client: &mut Client,
    mut input: Value,
    wait: Duration,
) -> Result<Value, Failure> {
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        input["waitMs"] = bounded_ms(left).into();
        let record = client.wait("tasks.read", input.clone()).await?;
        let is_empty = text(&record, "text").is_empty() && text(&record, "data").is_empty();
        if !is_empty || record["eof"] == true || Instant::now() >= until {
            return Ok(record);
        }
    }
}

/// As much of a wait as one call may take, in milliseconds.
fn bounded_ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).map_or(WAIT_MS_MAX, |ms| ms.min(WAIT_MS_MAX))
}

/// The exact bytes of a read.
pub(super) fn decode(record: &Value) -> Result<Vec<u8>, Failure> {
    BASE64_STANDARD
        .decode(text(record, "data"))
        .map_err(|error| Failure::Protocol(error.to_string()))
}

/// Where a read stands, for the next one.
fn position(record: &Value) -> String {
    let mut line = match record["eof"].as_bool() {
        Some(true) => format!(
            "end of {} at {}",
            text(record, "stream"),
            render::plain(&record["next"])
        ),
        _ => format!("next offset {}", render::plain(&record["next"])),
    };
    if let Some(omitted) = record["omittedBytes"]
        .as_u64()
        .filter(|&omitted| omitted > 0)
    {
        let _ = write!(line, "; {omitted} bytes before it are no longer kept");
    }
    line
}

/// Options of `watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ends with 0 where lines hold the text, else with 1: the task has ended without one, or the time is over.\n\nExample:\n  weft watch t-3f 'listening on' --timeout 1m && ./use-the-server"
)]
pub(super) struct Watch {
    /// The task's id, or the beginning of it
    id: String,
    /// Show lines that hold this text, as it is written
    literal: Option<String>,
    /// Go on after this cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<u64>,
    /// Wait this long for a line
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    timeout: Option<u64>,
}

impl Watch {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let input = given([
            ("id", Some(self.id.as_str().into())),
            ("match", self.literal.clone().map(Into::into)),
            ("after", self.after.map(Into::into)),
        ]);
        let mut client = app.client()?;
        let record = block_on(self.watch(&mut client, input))?;
        app.answer(&record, |record| {
            list(record, "lines")
                .iter()
                .fold(String::new(), |mut out, line| {
                    let _ = writeln!(out, "{}", render::visible(text(line, "text")));
                    out
                })
        })?;
        app.tell(&format!(
            "{}; next cursor {}",
            text(&record, "reason"),
            render::plain(&record["nextCursor"])
        ));
        Ok(if record["reason"] == "match" {
            exit::DONE
        } else {
            exit::REFUSED
        })
    }

    /// Watches on from the cursor while the node's own bound, not ours, ended the watch.
    async fn watch(&self, client: &mut Client, mut input: Value) -> Result<Value, Failure> {
        let wait = Duration::from_millis(self.timeout.unwrap_or(WATCH_MS_DEFAULT));
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            input["timeoutMs"] = bounded_ms(left).max(1).into();
            let record = client.wait("tasks.watch", input.clone()).await?;
            if record["reason"] != "timeout" || Instant::now() >= until {
                return Ok(record);
            }
            input["after"] = record["nextCursor"].clone();
        }
    }
}
