//! `tasks.wait`: until a task's end, for a while. A timeout says nothing of the task and stops nothing.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use crate::action::{Ctx, Verb};
use crate::check;
use crate::error::Result;
use crate::inbox;
use crate::limits::{WAIT_MS_DEFAULT, WAIT_MS_MAX};
use crate::task::record::Record;
use crate::task::view::{OutputEntry, find, record, tails};
use crate::watch_end::wait_shown_end;

/// Waits for an end.
pub(crate) struct Wait;

/// Which, and how long.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WaitInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// 1 to 300000 milliseconds; 30000 unless given.
    #[serde(default)]
    timeout_ms: Option<u64>,
}

/// The record then, and the last of its output.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitOutput {
    task: Record,
    output: Vec<OutputEntry>,
    /// It still runs: call again.
    timed_out: bool,
}

/// A wait's milliseconds, checked.
pub(crate) fn checked_wait(field: &str, given: Option<u64>, default: u64) -> Result<Duration> {
    check::within(field, given, 1..=WAIT_MS_MAX)?;
    Ok(Duration::from_millis(given.unwrap_or(default)))
}

/// A long-poll's milliseconds, checked: without any it looks once.
pub(crate) fn long_poll_ms(given: Option<u64>) -> Result<u64> {
    check::within("waitMs", given, 0..=WAIT_MS_MAX)?;
    Ok(given.unwrap_or(0))
}

impl Verb for Wait {
    const REF: &'static str = "tasks.wait";
    const SUMMARY: &'static str = "wait until a task has ended, at most five minutes a call";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = WaitInput;
    type Out = WaitOutput;

    async fn run(ctx: Ctx, input: WaitInput) -> Result<WaitOutput> {
        let wait = checked_wait("timeoutMs", input.timeout_ms, WAIT_MS_DEFAULT)?;
        let row = find(&ctx.house, &input.id).await?;
        let id = row.spec.id.clone();
        let ended = tokio::time::timeout(wait, wait_shown_end(&ctx.house, &id));
        let (row, timed_out) = match ended.await {
            Ok(ended) => (ended?, false),
            Err(_elapsed) => (find(&ctx.house, &id).await?, true),
        };
        let output = tails(&ctx.house, &row).await?;
        // What is not announced yet is not delivered yet either.
        if row.end.is_some() && !timed_out && row.session == ctx.caller.session {
            inbox::acknowledge_task(&ctx.house, &row.session, &id).await?;
        }
        let task = record(&ctx.house, &row);
        // It may have ended between the timeout and this look.
        let timed_out = timed_out && task.running;
        Ok(WaitOutput {
            task,
            output,
            timed_out,
        })
    }
}
