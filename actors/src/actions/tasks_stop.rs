//! `tasks.stop`: end the whole tree of a task. Again is harmless, and the owner who stops is not told of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use crate::action::{Ctx, Verb};
use crate::check;
use crate::error::{Error, Result};
use crate::inbox;
use crate::limits::shim::STOP_CAP_MS;
use crate::limits::{ANNOUNCE_OVERDUE_MS, GRACE_MS_MAX, STOP_ANSWER_MS};
use crate::task::actor::StopTask;
use crate::task::record::Record;
use crate::task::row;
use crate::task::view::{find, find_incarnation, record};
use crate::task::wire::Stopped;
use crate::watch_end::wait_end;

/// Stops a task.
pub(crate) struct Stop;

/// Which, and how gently.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StopInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// From SIGTERM to SIGKILL, milliseconds; the launch's unless given.
    #[serde(default)]
    grace_ms: Option<u64>,
    /// Refuse if the task is no longer the one that was looked up.
    #[serde(default)]
    incarnation: Option<String>,
    /// Stopping twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// The record after the stop.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StopOutput {
    task: Record,
}

impl Verb for Stop {
    const REF: &'static str = "tasks.stop";
    const SUMMARY: &'static str = "end a task's whole tree: SIGTERM, a grace, then SIGKILL";
    const SCOPE: Right = Right::TasksRun;
    const CHANGES: bool = true;
    type In = StopInput;
    type Out = StopOutput;

    async fn run(ctx: Ctx, input: StopInput) -> Result<StopOutput> {
        check::within("graceMs", input.grace_ms, 0..=GRACE_MS_MAX)?;
        let house = &ctx.house;
        let row = find_incarnation(house, &input.id, input.incarnation.as_deref()).await?;
        let id = row.spec.id.clone();
        let own = row.session == ctx.caller.session;
        if row.end.is_some() {
            if own {
                inbox::acknowledge_task(house, &row.session, &id).await?;
            }
            return Ok(StopOutput {
                task: record(house, &row),
            });
        }
        if own {
            let task = id.clone();
            let noted = house
                .commit(move |tx| row::set_discard(tx.sql(), &task))
                .await;
            // A store that takes no note, for want of space say, keeps no tree alive. The owner is told of the end then.
            if let Err(error) = noted {
                tracing::warn!(task = %id, %error, "that the owner stops this task could not be noted");
            }
        }
        let patience = input.grace_ms.unwrap_or(row.spec.grace_ms) + STOP_CAP_MS + STOP_ANSWER_MS;
        let stopped = tokio::time::timeout(
            Duration::from_millis(patience),
            send_stop(&ctx, &id, input.grace_ms),
        );
        match stopped.await {
            // The main process itself may not be signalled: the task runs on, and its record says who lives.
            Ok(Ok(Some(Stopped {
                state: None,
                survivors,
            }))) => {
                let task = Record {
                    survivors,
                    ..record(house, &row)
                };
                return Ok(StopOutput { task });
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_elapsed) => return Err(no_answer(&ctx, &id)),
        }
        // The tree is gone; the announcement of the end follows within a moment, or is tried again by its actor. Then the
        // record shows the end from when it is overdue, and there is nothing more to wait for.
        let overdue = Duration::from_millis(ANNOUNCE_OVERDUE_MS + 1);
        let announced = tokio::time::timeout(overdue, wait_end(house, &id));
        let row = match announced.await {
            Ok(ended) => ended?,
            Err(_elapsed) => find(house, &id).await?,
        };
        Ok(StopOutput {
            task: record(house, &row),
        })
    }
}

/// Asks the shim, as soon as there is one: a stop may come while the task is only starting. None for one that ended by itself.
async fn send_stop(ctx: &Ctx, id: &str, grace_ms: Option<u64>) -> Result<Option<Stopped>> {
    let live = tokio::select! {
        live = ctx.house.live.when_live(id) => live,
        ended = wait_end(&ctx.house, id) => return ended.map(|_| None),
    };
    let stop = StopTask {
        grace_ms,
        reason: None,
    };
    match live.actor.send(stop).await {
        Ok(Ok(stopped)) => Ok(Some(stopped)),
        Ok(Err(Error::WrongState(_))) | Err(_) => Ok(None),
        Ok(Err(error)) => Err(error),
    }
}

fn no_answer(ctx: &Ctx, id: &str) -> Error {
    let shim = ctx.house.live.get(id).map_or_else(
        || "its shim has not come up".to_owned(),
        |live| {
            format!(
                "its shim, process {}, does not answer",
                live.control.shim_pid()
            )
        },
    );
    Error::NoAnswer(format!(
        "task {id} is not stopped yet: {shim}; look at it, stop again, or end the shim with kill -9, which ends the command too"
    ))
}
