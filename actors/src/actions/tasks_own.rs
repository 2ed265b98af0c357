//! `tasks.adopt` and `tasks.setLease`: who is told of a task's end, and who keeps it alive. Neither restarts nor signals anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use crate::action::{Ctx, Verb};
use crate::error::{Error, Result};
use crate::inbox::{self, Item, ItemType};
use crate::task::control::Control;
use crate::task::record::Record;
use crate::task::row;
use crate::task::view::{find, find_incarnation, record};
use crate::task::wire::{Ask, Lease};

/// Takes a task over.
pub(crate) struct Adopt;

/// Which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AdoptInput {
    /// The id, or an unambiguous prefix.
    #[serde(alias = "id")]
    job_id: String,
    /// Taking over twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// The record after it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TaskOutput {
    task: Record,
}

impl Verb for Adopt {
    const REF: &'static str = "tasks.adopt";
    const SUMMARY: &'static str = "take over a task of another session; no restart, no signal";
    const SCOPE: Right = Right::TasksRun;
    const CHANGES: bool = true;
    type In = AdoptInput;
    type Out = TaskOutput;

    async fn run(ctx: Ctx, input: AdoptInput) -> Result<TaskOutput> {
        let house = &ctx.house;
        let row = find(house, &input.job_id).await?;
        let (id, own) = (row.spec.id.clone(), ctx.caller.session.clone());
        if row.session == own {
            return Ok(TaskOutput {
                task: record(house, &row),
            });
        }
        let (task, was_running) = (id.clone(), row.end.is_none());
        house
            .commit(move |tx| {
                let row = row::get(tx.sql(), &task)?.ok_or_else(|| Error::no_task(&task))?;
                row::set_owner(tx.sql(), &task, &own)?;
                inbox::hand_over(tx, &row.session, &own, &task)?;
                if inbox::has_inbox(&row.session) {
                    let item = Item {
                        label: row.spec.label.clone(),
                        summary: Some(format!("taken over by session {own}")),
                        ..Item::about(ItemType::Moved, &task, tx.now())
                    };
                    inbox::put(tx, &row.session, &item)?;
                }
                Ok(())
            })
            .await?;
        if was_running {
            tell_shim(&ctx, &id, Lease::Durable).await?;
        }
        let row = find(house, &id).await?;
        Ok(TaskOutput {
            task: record(house, &row),
        })
    }
}

/// Changes who keeps a task alive.
pub(crate) struct SetLease;

/// Which, and to what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SetLeaseInput {
    /// The id, or an unambiguous prefix.
    id: String,
    /// `session` or `durable`.
    lease: Lease,
    /// Refuse if the task is no longer the one that was looked up.
    #[serde(default)]
    incarnation: Option<String>,
    /// Changing twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

impl Verb for SetLease {
    const REF: &'static str = "tasks.setLease";
    const SUMMARY: &'static str = "move a running task to its session's lease, or make it durable";
    const SCOPE: Right = Right::TasksRun;
    const CHANGES: bool = true;
    type In = SetLeaseInput;
    type Out = TaskOutput;

    async fn run(ctx: Ctx, input: SetLeaseInput) -> Result<TaskOutput> {
        if input.lease == Lease::Foreground {
            return Err(Error::invalid(
                "lease",
                "takes session or durable: a task comes to the foreground by being waited for",
            ));
        }
        let house = &ctx.house;
        let row = find_incarnation(house, &input.id, input.incarnation.as_deref()).await?;
        if row.end.is_some() {
            return Err(Error::WrongState(format!(
                "task {} has ended; its lease no longer matters",
                row.spec.id
            )));
        }
        let (id, lease) = (row.spec.id.clone(), input.lease);
        if row.lease != lease {
            let task = id.clone();
            house
                .commit(move |tx| row::set_lease(tx.sql(), &task, lease))
                .await?;
            tell_shim(&ctx, &id, lease).await?;
        }
        let row = find(house, &id).await?;
        Ok(TaskOutput {
            task: record(house, &row),
        })
    }
}

async fn tell_shim(ctx: &Ctx, id: &str, to: Lease) -> Result<()> {
    let Ok(control) = Control::connect(&ctx.house.home.task(id)).await else {
        return Ok(());
    };
    match control.ask(Ask::Lease { to }).await {
        // It ended meanwhile: its end goes to whom the row names.
        Ok(_) | Err(Error::WrongState(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
