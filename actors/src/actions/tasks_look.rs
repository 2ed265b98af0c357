//! `tasks.list`, `tasks.get`, `tasks.external`: what there is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use crate::action::{Ctx, Verb};
use crate::error::{Error, Result};
use crate::inbox;
use crate::limits::LIST_MAX;
use crate::task::record::{Record, State};
use crate::task::row::{self, TaskRow};
use crate::task::view::{OutputEntry, blocking, find, record, tails};
use crate::task::wire::Lease;

/// Lists tasks.
pub(crate) struct List;

/// Whose, and in which states.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListInput {
    /// Everybody's instead of the caller's.
    #[serde(default)]
    all: bool,
    /// Only those in one of these states.
    #[serde(default)]
    states: Vec<State>,
    /// The owner session; the caller's unless given.
    #[serde(default)]
    session: Option<String>,
}

/// Records, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListOutput {
    tasks: Vec<Record>,
    /// Older tasks beyond the thousand that were looked at.
    omitted: u64,
}

impl Verb for List {
    const REF: &'static str = "tasks.list";
    const SUMMARY: &'static str = "list this owner's tasks, or everybody's";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = ListInput;
    type Out = ListOutput;

    async fn run(ctx: Ctx, input: ListInput) -> Result<ListOutput> {
        let session = if input.all {
            None
        } else {
            Some(ctx.caller.acting_as(input.session.as_deref())?)
        };
        let (of, all) = (session.clone(), session);
        let rows = rows(&ctx, of).await?;
        let omitted = if rows.len() < LIST_MAX {
            0
        } else {
            let count = ctx
                .house
                .look(move |sql| row::count(sql, all.as_deref()))
                .await?;
            count.saturating_sub(rows.len() as u64)
        };
        let house = ctx.house.clone();
        blocking(move || {
            let tasks = rows
                .iter()
                .map(|row| record(&house, row))
                .filter(|record| input.states.is_empty() || input.states.contains(&record.state))
                .collect();
            Ok(ListOutput { tasks, omitted })
        })
        .await
    }
}

async fn rows(ctx: &Ctx, session: Option<String>) -> Result<Vec<TaskRow>> {
    ctx.house
        .look(move |sql| row::list(sql, session.as_deref(), LIST_MAX))
        .await
}

/// Gets one task.
pub(crate) struct Get;

/// Which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GetInput {
    /// The id, or an unambiguous prefix.
    id: String,
}

/// The record and the last of its output.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GetOutput {
    task: Record,
    output: Vec<OutputEntry>,
}

impl Verb for Get {
    const REF: &'static str = "tasks.get";
    const SUMMARY: &'static str = "one task's record and the last 8 KiB of each of its streams";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = GetInput;
    type Out = GetOutput;

    async fn run(ctx: Ctx, input: GetInput) -> Result<GetOutput> {
        let row = find(&ctx.house, &input.id).await?;
        let output = tails(&ctx.house, &row).await?;
        if row.session == ctx.caller.session {
            inbox::acknowledge_task(&ctx.house, &row.session, &row.spec.id).await?;
        }
        let task = record(&ctx.house, &row);
        Ok(GetOutput { task, output })
    }
}

/// Lists what the caller does not track.
pub(crate) struct External;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExternalInput {}

/// A task of another session.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Job {
    id: String,
    state: State,
    exit_code: Option<i32>,
    signal: Option<String>,
    label: Option<String>,
    command: String,
    started_at: Option<u64>,
    session: String,
    lease: Option<Lease>,
}

/// Tasks of this home that the caller's session does not track.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExternalOutput {
    jobs: Vec<Job>,
}

impl Verb for External {
    const REF: &'static str = "tasks.external";
    const SUMMARY: &'static str = "tasks of this home that the caller's session does not track";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = ExternalInput;
    type Out = ExternalOutput;

    async fn run(ctx: Ctx, _: ExternalInput) -> Result<ExternalOutput> {
        let rows = rows(&ctx, None).await?;
        let (house, own) = (ctx.house.clone(), ctx.caller.session.clone());
        blocking(move || {
            let jobs = rows
                .iter()
                // A resident tracks its own runs.
                .filter(|row| row.session != own && inbox::has_inbox(&row.session))
                .map(|row| record(&house, row))
                .map(|record| Job {
                    id: record.id,
                    state: record.state,
                    exit_code: record.exit_code,
                    signal: record.signal,
                    label: record.label,
                    command: record.command,
                    started_at: record.started_at,
                    session: record.session,
                    lease: record.lease,
                })
                .collect();
            Ok::<_, Error>(ExternalOutput { jobs })
        })
        .await
    }
}
