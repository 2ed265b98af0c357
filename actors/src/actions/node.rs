//! `node.status` and `node.stop`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use crate::action::{Ctx, Verb};
use crate::error::Result;
use crate::house::House;

/// Tells of the node.
pub(crate) struct Status;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusInput {}

/// The running node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusOutput {
    pid: u32,
    node: String,
    home: String,
    socket: String,
    /// The addresses it listens on.
    http: Vec<String>,
    version: String,
    /// The kind of mesh.
    mesh: &'static str,
    epoch: String,
    /// How an acknowledged event is kept: `fsync`, on stable storage before the answer.
    durability: &'static str,
    started_at: u64,
    /// Tasks with a living shim.
    running_tasks: usize,
}

impl Verb for Status {
    const REF: &'static str = "node.status";
    const SUMMARY: &'static str = "the running node: process, addresses, epoch, durability";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = StatusInput;
    type Out = StatusOutput;

    async fn run(ctx: Ctx, _: StatusInput) -> Result<StatusOutput> {
        Ok(status(&ctx.house))
    }
}

/// What `node.status` answers.
pub fn status(house: &House) -> StatusOutput {
    StatusOutput {
        pid: std::process::id(),
        node: house.node_id(),
        home: house.home.root.to_string_lossy().into_owned(),
        socket: house.home.socket().to_string_lossy().into_owned(),
        http: house.urls(),
        version: house.settings.version.clone(),
        mesh: "sqlite",
        epoch: house.store.epoch().to_owned(),
        durability: "fsync",
        started_at: house.started_at,
        running_tasks: house.live.len(),
    }
}

/// Ends the node.
pub(crate) struct Stop;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StopInput {
    /// Ending twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// It is ending.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StopOutput {
    stopping: bool,
    pid: u32,
}

impl Verb for Stop {
    const REF: &'static str = "node.stop";
    const SUMMARY: &'static str = "end the node; tasks go on, and the next node finds them";
    const SCOPE: Right = Right::Admin;
    const CHANGES: bool = true;
    type In = StopInput;
    type Out = StopOutput;

    async fn run(ctx: Ctx, _: StopInput) -> Result<StopOutput> {
        ctx.house.stopping.send_replace(true);
        Ok(StopOutput {
            stopping: true,
            pid: std::process::id(),
        })
    }
}
