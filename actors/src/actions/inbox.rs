//! `inbox.read` and `inbox.ack`: what waits for an owner session. Only an acknowledgement settles anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use super::tasks_wait::long_poll_ms;
use crate::action::{Ctx, Verb};
use crate::check;
use crate::error::Result;
use crate::inbox::{self, Item};
use crate::limits::INBOX_BATCH;

/// Reads an inbox.
pub(crate) struct Read;

/// Whose, and from where.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReadInput {
    /// The owner session; the caller's unless given.
    #[serde(default)]
    session: Option<String>,
    /// Items after this `seq`.
    #[serde(default)]
    after: Option<i64>,
    /// Wait so long for the first, 0 to 300000 milliseconds.
    #[serde(default)]
    wait_ms: Option<u64>,
    /// Items at most, 1 to 8.
    #[serde(default)]
    max: Option<usize>,
}

/// Items, messages first, then the oldest.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReadOutput {
    items: Vec<Item>,
    /// Items that were dropped for want of room.
    omitted: u64,
}

impl Verb for Read {
    const REF: &'static str = "inbox.read";
    const SUMMARY: &'static str = "pending deliveries of a session; reading consumes nothing";
    const SCOPE: Right = Right::SessionsRead;
    const CHANGES: bool = false;
    type In = ReadInput;
    type Out = ReadOutput;

    async fn run(ctx: Ctx, input: ReadInput) -> Result<ReadOutput> {
        let session = ctx.caller.acting_as(input.session.as_deref())?;
        let wait_ms = long_poll_ms(input.wait_ms)?;
        check::within("max", input.max, 1..=INBOX_BATCH)?;
        check::within("after", input.after, 0..=i64::MAX)?;
        let max = input.max.unwrap_or(INBOX_BATCH);
        let items =
            inbox::read(&ctx.house, &session, input.after.unwrap_or(0), wait_ms, max).await?;
        Ok(ReadOutput { items, omitted: 0 })
    }
}

/// Settles items.
pub(crate) struct Ack;

/// Whose, and up to where.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AckInput {
    /// The owner session; the caller's unless given.
    #[serde(default)]
    session: Option<String>,
    /// Items up to this one are settled.
    seq: i64,
    /// Settling twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// How many were settled.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AckOutput {
    acknowledged: u64,
}

impl Verb for Ack {
    const REF: &'static str = "inbox.ack";
    const SUMMARY: &'static str = "settle a session's deliveries up to one of them";
    const SCOPE: Right = Right::SessionsWrite;
    const CHANGES: bool = true;
    type In = AckInput;
    type Out = AckOutput;

    async fn run(ctx: Ctx, input: AckInput) -> Result<AckOutput> {
        let session = ctx.caller.acting_as(input.session.as_deref())?;
        check::within("seq", Some(input.seq), 0..=i64::MAX)?;
        Ok(AckOutput {
            acknowledged: inbox::acknowledge(&ctx.house, &session, input.seq).await?,
        })
    }
}
