//! `tasks.stop`: end the whole tree of a task. Again is harmless, and the owner who stops is not told of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use crate::action::{Ctx, Verb};
use crate::error::{Error, Result};
use crate::inbox;
use crate::limits::{GRACE_MS_MAX, STOP_ANSWER_MS};
use crate::task::actor::StopTask;
use crate::task::control::Control;
use crate::task::record::Record;
use crate::task::row;
use crate::task::view::{find, record};
use crate::task::wire::Ask;
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
        if input.grace_ms.is_some_and(|ms| ms > GRACE_MS_MAX) {
            return Err(Error::invalid(
                "graceMs",
                format!("takes 0 to {GRACE_MS_MAX}"),
            ));
        }
        let house = &ctx.house;
        let row = find(house, &input.id).await?;
        if input
            .incarnation
            .is_some_and(|incarnation| incarnation != row.spec.incarnation)
        {
            return Err(Error::Stale {
                what: "task",
                id: row.spec.id,
            });
        }
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
        send_stop(&ctx, &id, input.grace_ms).await?;
        // The tree is gone; the announcement of the end follows within a moment, or is tried again by its actor.
        let row =
            match tokio::time::timeout(Duration::from_millis(STOP_ANSWER_MS), wait_end(house, &id))
                .await
            {
                Ok(ended) => ended?,
                Err(_elapsed) => find(house, &id).await?,
            };
        Ok(StopOutput {
            task: record(house, &row),
        })
    }
}

async fn send_stop(ctx: &Ctx, id: &str, grace_ms: Option<u64>) -> Result<()> {
    let stopped = match ctx.house.live.get(id) {
        Some(live) => live
            .actor
            .send(StopTask {
                grace_ms,
                reason: None,
            })
            .await
            .unwrap_or_else(|_closed| Err(Error::WrongState("the task has ended".into())))
            .map(drop),
        None => match Control::connect(&ctx.house.home.task(id)).await {
            Ok(control) => control
                .ask(Ask::Stop {
                    grace_ms,
                    reason: None,
                })
                .await
                .map(drop),
            Err(_gone) => Ok(()),
        },
    };
    match stopped {
        // It ended by itself in this moment: as good.
        Ok(()) | Err(Error::WrongState(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
