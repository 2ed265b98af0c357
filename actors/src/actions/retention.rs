//! `mesh.retain`: how long events are kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;
use weft_mesh::{Retention, Topic};

use crate::action::{Ctx, Verb};
use crate::check;
use crate::error::{Error, Result};
use crate::limits::{RETAIN_AGE_MS, RETAIN_BYTES, RETAIN_COUNT};

/// Sets a retention.
pub(crate) struct Retain;

/// Of which topic, and its bounds. A bound that is not given stays as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RetainInput {
    /// The topic; without one, all topics that have no retention of their own.
    #[serde(default)]
    topic: Option<String>,
    /// Milliseconds an event is kept, 1000 to 31622400000 (366 days).
    #[serde(default)]
    max_age_ms: Option<u64>,
    /// Events kept, from 1.
    #[serde(default)]
    max_count: Option<u64>,
    /// Bytes of events kept, from 1.
    #[serde(default)]
    max_bytes: Option<u64>,
    /// First forget what was set before: a topic then follows the default, and the default is what it was at first.
    #[serde(default)]
    reset: bool,
    /// Setting twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// What holds from now on.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RetainOutput {
    topic: Option<Topic>,
    retention: Retention,
}

impl Verb for Retain {
    const REF: &'static str = "mesh.retain";
    const SUMMARY: &'static str = "bound by age, count and bytes what is kept of a topic, or of all; what goes is disclosed to readers";
    const SCOPE: Right = Right::Admin;
    const CHANGES: bool = true;
    type In = RetainInput;
    type Out = RetainOutput;

    async fn run(ctx: Ctx, input: RetainInput) -> Result<RetainOutput> {
        let topic: Option<Topic> = input.topic.as_deref().map(str::parse).transpose()?;
        check::within("maxAgeMs", input.max_age_ms, RETAIN_AGE_MS)?;
        check::within("maxCount", input.max_count, RETAIN_COUNT)?;
        check::within("maxBytes", input.max_bytes, RETAIN_BYTES)?;
        let given = [input.max_age_ms, input.max_count, input.max_bytes];
        if !input.reset && given.iter().all(Option::is_none) {
            return Err(Error::invalid(
                "maxCount",
                "is missing: give a bound, `maxAgeMs`, `maxCount` or `maxBytes`, or `reset`",
            ));
        }
        ctx.house
            .commit(move |tx| {
                if input.reset {
                    tx.set_retention(topic.as_ref(), None)?;
                }
                let mut retention = tx.retention(topic.as_ref())?;
                if given.iter().any(Option::is_some) {
                    retention = Retention {
                        max_age_ms: input.max_age_ms.or(retention.max_age_ms),
                        max_count: input.max_count.or(retention.max_count),
                        max_bytes: input.max_bytes.or(retention.max_bytes),
                    };
                    tx.set_retention(topic.as_ref(), Some(retention))?;
                }
                Ok(RetainOutput { topic, retention })
            })
            .await
    }
}
