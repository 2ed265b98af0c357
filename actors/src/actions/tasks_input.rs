//! `tasks.write`, `tasks.closeInput`, `tasks.resize` and `tasks.signal`: what a running task is given by others. The shim
//! does it, in the order in which it is asked.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};
use weft_grants::Right;

use super::tasks_wait::long_poll_ms;
use crate::action::{Ctx, Verb};
use crate::check;
use crate::error::{Error, Result};
use crate::limits::{INPUT_WRITE_BYTES_MAX, STOP_ANSWER_MS};
use crate::requests::RequestKey;
use crate::task::control::{Control, hear_or_wake};
use crate::task::row::TaskRow;
use crate::task::view::find_incarnation;
use crate::task::wire::{Ask, HAS_ENDED, INPUT_IS_FULL, Io, Mark};
use crate::watch_end::wait_end;

/// Writes to a task's input.
pub(crate) struct Write;

/// To which, and what: `text` or `data`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WriteInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// The text, at most 64 KiB. Either this or `data`, or neither with `enter`.
    #[serde(default)]
    text: Option<String>,
    /// The bytes in base64, at most 64 KiB of them.
    #[serde(default)]
    data: Option<String>,
    /// Adds the key that ends a line: a carriage return on a terminal, else a newline.
    #[serde(default)]
    enter: bool,
    /// Where a mebibyte of input waits that the task has not read, wait so long for room, 0 to 300000 milliseconds; refused
    /// at once unless given.
    #[serde(default)]
    wait_ms: Option<u64>,
    /// Refuse if the task is no longer the one that was looked up.
    #[serde(default)]
    incarnation: Option<String>,
    /// The same id again writes nothing more and gets the same answer.
    #[serde(default)]
    request_id: Option<String>,
}

/// What became of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WriteOutput {
    id: String,
    /// Bytes that were taken: all, or the call is refused.
    written: u64,
    /// The input takes nothing more.
    closed: bool,
}

impl Verb for Write {
    const REF: &'static str = "tasks.write";
    const SUMMARY: &'static str = "write to the input of a task with pipes or a terminal";
    const SCOPE: Right = Right::TasksRun;
    const CHANGES: bool = true;
    type In = WriteInput;
    type Out = WriteOutput;

    async fn run(ctx: Ctx, input: WriteInput) -> Result<WriteOutput> {
        let mut bytes = given_bytes(&input)?;
        let deadline = Instant::now() + Duration::from_millis(long_poll_ms(input.wait_ms)?);
        let task = Living::find(&ctx, &input.id, input.incarnation.as_deref()).await?;
        let io = task.interactive()?;
        if input.enter {
            bytes.push(if io == Io::Pty { b'\r' } else { b'\n' });
        }
        if bytes.len() > INPUT_WRITE_BYTES_MAX {
            return Err(Error::invalid(
                if input.data.is_some() { "data" } else { "text" },
                format!(
                    "takes at most {INPUT_WRITE_BYTES_MAX} bytes in one call, not {}; write it in pieces",
                    bytes.len()
                ),
            ));
        }
        let data = BASE64_STANDARD.encode(&bytes);
        let mark = mark(
            &ctx,
            input.request_id.as_deref(),
            &(Self::REF, &task.id, &data),
        )?;
        let ask = Ask::Write { data, mark };
        loop {
            match task.ask(ask.clone()).await {
                Err(Error::WrongState(reason)) if reason.starts_with(INPUT_IS_FULL) => {
                    // For the largest write, so that all who wait ask the same.
                    let room = task.control.ask_together(Ask::Room {
                        bytes: INPUT_WRITE_BYTES_MAX,
                    });
                    let room = ctx.house.unless_stopping(timeout_at(deadline, room));
                    // A task that has ended says so when it is asked again.
                    if room.await? != Ok(true) && !task.control.is_closed() {
                        return Err(Error::TooMany(format!("task {}: {reason}", task.id)));
                    }
                }
                answer => return task.input_answer(&answer?),
            }
        }
    }
}

fn given_bytes(input: &WriteInput) -> Result<Vec<u8>> {
    match (&input.text, &input.data) {
        (Some(text), None) => Ok(text.clone().into_bytes()),
        (None, Some(data)) => BASE64_STANDARD
            .decode(data)
            .map_err(|error| Error::invalid("data", format!("is no base64: {error}"))),
        (None, None) if input.enter => Ok(Vec::new()),
        (None, None) => Err(Error::invalid(
            "text",
            "is missing: give the words in `text` or bytes in `data`",
        )),
        (Some(_), Some(_)) => Err(Error::invalid(
            "data",
            "comes instead of `text`, not beside it",
        )),
    }
}

/// Ends a task's input.
pub(crate) struct CloseInput;

/// Whose.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CloseInputInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// Refuse if the task is no longer the one that was looked up.
    #[serde(default)]
    incarnation: Option<String>,
    /// Closing twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

impl Verb for CloseInput {
    const REF: &'static str = "tasks.closeInput";
    const SUMMARY: &'static str =
        "end the input of a task, after what was written; on a terminal in line mode by its key";
    const SCOPE: Right = Right::TasksRun;
    const CHANGES: bool = true;
    type In = CloseInputInput;
    type Out = WriteOutput;

    async fn run(ctx: Ctx, input: CloseInputInput) -> Result<WriteOutput> {
        let task = Living::find(&ctx, &input.id, input.incarnation.as_deref()).await?;
        task.interactive()?;
        task.input_answer(&task.ask(Ask::CloseInput).await?)
    }
}

/// Changes a terminal's size.
pub(crate) struct Resize;

/// Whose, and to what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ResizeInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// Columns (1 to 1000) and rows (1 to 500).
    size: (u16, u16),
    /// Refuse if the task is no longer the one that was looked up.
    #[serde(default)]
    incarnation: Option<String>,
    /// Changing twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// The size as it is now.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ResizeOutput {
    id: String,
    /// Columns and rows.
    size: (u16, u16),
}

impl Verb for Resize {
    const REF: &'static str = "tasks.resize";
    const SUMMARY: &'static str = "give a task's terminal another size";
    const SCOPE: Right = Right::TasksRun;
    const CHANGES: bool = true;
    type In = ResizeInput;
    type Out = ResizeOutput;

    async fn run(ctx: Ctx, input: ResizeInput) -> Result<ResizeOutput> {
        let (cols, rows) = input.size;
        check::terminal_size("size", input.size)?;
        let task = Living::find(&ctx, &input.id, input.incarnation.as_deref()).await?;
        task.ask(Ask::Resize { cols, rows }).await?;
        Ok(ResizeOutput {
            id: task.id,
            size: (cols, rows),
        })
    }
}

/// Sends a signal to a task's tree.
pub(crate) struct Signal;

/// To which, and which signal.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SignalInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// A name, with or without `SIG`, or a number from 1 to 31.
    signal: String,
    /// Refuse if the task is no longer the one that was looked up.
    #[serde(default)]
    incarnation: Option<String>,
    /// The same id again sends nothing more.
    #[serde(default)]
    request_id: Option<String>,
}

/// Who was not reached.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignalOutput {
    id: String,
    /// Processes of the task that may not be signalled.
    denied: Vec<u32>,
}

impl Verb for Signal {
    const REF: &'static str = "tasks.signal";
    const SUMMARY: &'static str = "send one signal to every process of a task";
    const SCOPE: Right = Right::TasksRun;
    const CHANGES: bool = true;
    type In = SignalInput;
    type Out = SignalOutput;

    async fn run(ctx: Ctx, input: SignalInput) -> Result<SignalOutput> {
        let task = Living::find(&ctx, &input.id, input.incarnation.as_deref()).await?;
        let body = (Self::REF, &task.id, &input.signal);
        let mark = mark(&ctx, input.request_id.as_deref(), &body)?;
        let signal = input.signal;
        let answer = task.ask(Ask::Signal { signal, mark }).await?;
        let denied = serde_json::from_value(answer["denied"].clone());
        Ok(SignalOutput {
            id: task.id,
            denied: denied.map_err(unread)?,
        })
    }
}

/// The mark of a request that must not be done twice.
fn mark(ctx: &Ctx, request_id: Option<&str>, body: &impl Serialize) -> Result<Option<Mark>> {
    let request = RequestKey::of(&ctx.caller, request_id, body)?;
    Ok(request.map(|request| request.mark()))
}

fn unread(error: serde_json::Error) -> Error {
    Error::Internal(format!("the shim's answer cannot be read: {error}"))
}

/// A task that has not ended, and the way to its shim.
struct Living<'a> {
    ctx: &'a Ctx,
    id: String,
    row: TaskRow,
    control: Control,
}

impl<'a> Living<'a> {
    /// The task, as soon as it has a shim: it may be only starting. Refused where it has ended, with how.
    async fn find(ctx: &'a Ctx, id: &str, incarnation: Option<&str>) -> Result<Self> {
        let house = &ctx.house;
        let row = find_incarnation(house, id, incarnation).await?;
        let id = row.spec.id.clone();
        if row.end.is_some() {
            return Err(ended(&row));
        }
        let control = tokio::select! {
            live = house.live.when_live(&id) => live.control,
            row = wait_end(house, &id) => return Err(ended(&row?)),
        };
        Ok(Living {
            ctx,
            id,
            row,
            control,
        })
    }

    /// How its input is open; refused for one whose input is closed from its start.
    fn interactive(&self) -> Result<Io> {
        match self.row.spec.io {
            Io::Batch => Err(Error::WrongState(format!(
                "task {} is a batch task, whose input is closed; run it with io pipes or pty",
                self.id
            ))),
            io => Ok(io),
        }
    }

    /// Asks the shim. Where the task ended meanwhile the refusal says how.
    async fn ask(&self, ask: Ask) -> Result<Value> {
        let shim = self.control.shim_pid();
        let told = hear_or_wake(shim, self.control.ask(ask)).await;
        let told = told.map_err(|_mute| {
            Error::NoAnswer(format!(
                "the shim of task {}, process {shim}, does not answer",
                self.id
            ))
        })?;
        match told {
            Err(Error::WrongState(ref reason))
                if self.control.is_closed() || reason == HAS_ENDED =>
            {
                let announced = wait_end(&self.ctx.house, &self.id);
                match timeout(Duration::from_millis(STOP_ANSWER_MS), announced).await {
                    Ok(row) => Err(ended(&row?)),
                    Err(_elapsed) => told,
                }
            }
            told => told,
        }
    }

    fn input_answer(&self, answer: &Value) -> Result<WriteOutput> {
        match (answer["written"].as_u64(), answer["closed"].as_bool()) {
            (Some(written), Some(closed)) => Ok(WriteOutput {
                id: self.id.clone(),
                written,
                closed,
            }),
            _ => Err(Error::Internal(
                "the shim's answer cannot be read: it is of another release".into(),
            )),
        }
    }
}

fn ended(row: &TaskRow) -> Error {
    let id = &row.spec.id;
    let how = row.end.as_ref().map(|end| {
        let code = end.exit_code.map_or_else(
            || "without a code".to_owned(),
            |code| format!("code {code}"),
        );
        format!(": {}, {code}", end.state.as_str())
    });
    Error::WrongState(format!(
        "task {id} has ended{}; start another",
        how.unwrap_or_default()
    ))
}
