//! `tasks.run`: start a command.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use weft_grants::Right;

use crate::action::{Ctx, Verb};
use crate::caller::Identity;
use crate::error::{Error, Result};
use crate::house::{House, now_ms, random_id};
use crate::limits::{INCARNATION_CHARS, OUTPUT_BYTES_DEFAULT, TASK_ID_CHARS};
use crate::requests::RequestKey;
use crate::root;
use crate::session::Launched;
use crate::task::control::Control;
use crate::task::plan::{Hold, Plan, RunInput, Surroundings, plan};
use crate::task::record::{Record, Spec};
use crate::task::row::{self, TaskRow};
use crate::task::unbegun;
use crate::task::view::{OutputEntry, find, outputs, record};
use crate::task::wire::{Ask, Lease};
use crate::watch_end::wait_end;

/// Starts a command.
pub(crate) struct Run;

/// The record, and for a foreground run its output.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunOutput {
    #[serde(flatten)]
    record: Record,
    /// A task of that key was there already: nothing was started.
    joined: bool,
    /// The output of a foreground run that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Vec<OutputEntry>>,
    /// Says that the task goes on in the background, and what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

impl Verb for Run {
    const REF: &'static str = "tasks.run";
    const SUMMARY: &'static str = "start a command in the foreground, for a session, or durably";
    const SCOPE: Right = Right::TasksRun;
    const CHANGES: bool = true;
    type In = RunInput;
    type Out = RunOutput;

    async fn run(ctx: Ctx, input: RunInput) -> Result<RunOutput> {
        let house = &ctx.house;
        let request = RequestKey::of(&ctx.caller, input.request_id.as_deref(), &input)?;
        let again = unbegun::take_over(house, request.as_ref()).await?;
        let plan = match planned(&ctx, &input, again.as_ref().map(|row| &row.spec)) {
            Ok(plan) => plan,
            Err(error) => {
                if let Some(row) = again {
                    unbegun::leave(house, row)?;
                }
                return Err(error);
            }
        };
        let ask = root::Run {
            plan: Box::new(plan),
            request,
        };
        if input.hold == Some(Hold::Caller) {
            let Launched { row, joined, .. } = launch(house, ask).await?;
            return answer(&ctx, row, joined, None).await;
        }
        // Its own task: a caller who hangs up between start and hold would leave a command that waits for its holder. So it
        // gets one, which goes at once, and the command with it.
        let house = house.clone();
        let started = tokio::spawn(async move { launch_and_hold(&house, ask).await });
        let (launched, holder) = started
            .await
            .map_err(|error| Error::Internal(format!("a start failed inside: {error}")))??;
        let Launched { row, joined, .. } = launched;
        if row.lease != Lease::Foreground {
            return answer(&ctx, row, joined, None).await;
        }
        foreground(&ctx, &input, row, joined, holder).await
    }
}

/// The checked launch, of a new task or of one that never began.
fn planned(ctx: &Ctx, input: &RunInput, again: Option<&Spec>) -> Result<Plan> {
    let house = &ctx.house;
    let (id, incarnation, grant, now) = match again {
        Some(spec) => (
            spec.id.clone(),
            spec.incarnation.clone(),
            spec.notify.as_ref().map(|notify| notify.grant_id.clone()),
            spec.created_at,
        ),
        None => (
            random_id("t-", TASK_ID_CHARS)?,
            random_id("", INCARNATION_CHARS)?,
            None,
            now_ms(),
        ),
    };
    let folder = house.home.task(&id);
    let around = Surroundings {
        incarnation,
        grant_id: match grant {
            Some(grant) => grant,
            None => random_id("g-", TASK_ID_CHARS)?,
        },
        session: ctx.caller.acting_as(input.session.as_deref())?,
        by: match &ctx.caller.identity {
            Identity::Task { id } => Some(format!("task:{id}")),
            _ => None,
        },
        home: &house.home.root,
        folder: &folder,
        project: house.home.project(),
        base_env: &house.settings.base_env,
        shell: &house.settings.shell,
        now,
        stdin: None,
        own_env: Vec::new(),
        id,
    };
    if input.key.as_ref().is_some_and(|key| key.contains(':')) {
        return Err(Error::invalid(
            "key",
            "keys with `:` are weft's own; take another character",
        ));
    }
    plan(input, around)
}

async fn answer(
    ctx: &Ctx,
    row: TaskRow,
    joined: bool,
    output: Option<Vec<OutputEntry>>,
) -> Result<RunOutput> {
    // A short command may have ended already: then say so, with its code.
    let row = find(&ctx.house, &row.spec.id).await?;
    let record = record(&ctx.house, &row);
    let notice =
        (record.running && record.lease != Some(Lease::Foreground)).then(|| notice(&record));
    Ok(RunOutput {
        record,
        joined,
        output,
        notice,
    })
}

fn notice(record: &Record) -> String {
    let label = record
        .label
        .as_deref()
        .map(|label| format!(" {label:?}"))
        .unwrap_or_default();
    format!(
        "task {}{label} runs in the background; its end is delivered to session {}",
        record.id, record.session
    )
}

/// The node holds the task for the call: when the caller goes, its connection to the shim goes, and with it the task.
async fn foreground(
    ctx: &Ctx,
    input: &RunInput,
    row: TaskRow,
    joined: bool,
    holder: Option<Control>,
) -> Result<RunOutput> {
    let house = &ctx.house;
    let id = row.spec.id.clone();
    let hang_ms = input.hang_ms.unwrap_or(house.settings.hang_ms);
    let hang = async {
        match hang_ms {
            0 => std::future::pending().await,
            ms => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    };
    tokio::select! {
        ended = wait_end(house, &id) => {
            let row = ended?;
            let half = input.max_output.unwrap_or(OUTPUT_BYTES_DEFAULT) / 2;
            let output = outputs(house, &row, half, half).await?;
            answer(ctx, row, joined, Some(output)).await
        }
        () = hang => {
            to_background(house, holder.as_ref(), &id).await?;
            answer(ctx, row, joined, None).await
        }
    }
}

async fn launch(house: &House, ask: root::Run) -> Result<Launched> {
    house
        .root()?
        .send(ask)
        .await
        .unwrap_or_else(|_closed| Err(Error::ActorFailed("the root actor".into())))
}

async fn launch_and_hold(house: &House, ask: root::Run) -> Result<(Launched, Option<Control>)> {
    let launched = launch(house, ask).await?;
    let holder = match launched.row.lease {
        Lease::Foreground => hold(house, &launched.row.spec.id).await?,
        Lease::Session | Lease::Durable => None,
    };
    Ok((launched, holder))
}

async fn hold(house: &House, id: &str) -> Result<Option<Control>> {
    // A task that ended at once has no shim any more, and needs no holder.
    let Ok(control) = Control::connect(&house.home.task(id)).await else {
        return Ok(None);
    };
    match control.ask(Ask::Hold { consumes: false }).await {
        Ok(_) | Err(Error::WrongState(_)) => Ok(Some(control)),
        Err(error) => Err(error),
    }
}

/// From foreground to session, first in the row, so that a stop of the node in between keeps the item.
async fn to_background(house: &House, holder: Option<&Control>, id: &str) -> Result<()> {
    let task = id.to_owned();
    house
        .commit(move |tx| row::set_lease(tx.sql(), &task, Lease::Session))
        .await?;
    if let Some(control) = holder {
        match control.ask(Ask::Lease { to: Lease::Session }).await {
            // It ended in this moment; its end is announced for the new lease.
            Ok(_) | Err(Error::WrongState(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
