//! `mesh.publish`, `mesh.publishBatch`, `mesh.read`, `mesh.topics`: events on topics.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weft_grants::Right;
use weft_mesh::{Cursor, Draft, Event, EventId, Kind, Page, Pattern, Query, Topic, TopicInfo};

use super::tasks_wait::long_poll_ms;
use crate::action::{Ctx, Verb};
use crate::caller::Caller;
use crate::check;
use crate::error::{Error, Result};
use crate::limits::KEY_CHARS_MAX;
use crate::requests::{self, RequestKey};

/// An event to publish.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PublishInput {
    /// The topic; not a reserved one.
    pub topic: String,
    /// What it is about; `message` unless given.
    #[serde(default)]
    pub kind: Option<Kind>,
    /// A text.
    #[serde(default)]
    pub text: Option<String>,
    /// Any JSON.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Value>")]
    pub data: Option<serde_json::Value>,
    /// Whom it is meant for.
    #[serde(default)]
    pub to: Option<String>,
    /// An id of the caller's own: the same again is the same event.
    #[serde(default)]
    pub id: Option<EventId>,
    /// The same again is the same event, and another caller's is another.
    #[serde(default)]
    pub request_id: Option<String>,
}

impl PublishInput {
    /// The draft of this event, published by `caller`.
    pub(crate) fn draft(self, caller: &Caller) -> Result<Draft> {
        let topic = Topic::parse_public(&self.topic)?;
        caller.require_on(Right::MeshPublish, topic.as_str())?;
        let mut draft = Draft::new(topic, self.kind.unwrap_or_default(), caller.from());
        draft.id = self.id;
        draft.text = self.text;
        check::text("to", self.to.as_deref(), KEY_CHARS_MAX)?;
        draft.to = self.to;
        draft.data = self
            .data
            .map(|data| serde_json::value::to_raw_value(&data))
            .transpose()
            .map_err(|error| Error::invalid("data", error.to_string()))?;
        draft.origin = caller.origin();
        draft.untrusted = caller.untrusted();
        Ok(draft)
    }
}

/// The event as it is in the log.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Published {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// It was there already.
    pub duplicate: bool,
}

/// Publishes an event.
pub(crate) struct Publish;

impl Verb for Publish {
    const REF: &'static str = "mesh.publish";
    const SUMMARY: &'static str =
        "append an event to a topic; answered when it is on stable storage";
    const SCOPE: Right = Right::MeshPublish;
    const CHANGES: bool = true;
    type In = PublishInput;
    type Out = Published;

    async fn run(ctx: Ctx, input: PublishInput) -> Result<Published> {
        let request = input.request_id.clone();
        let draft = input.draft(&ctx.caller)?;
        let appended =
            requests::publish(&ctx.house, &ctx.caller, request.as_deref(), draft).await?;
        Ok(Published {
            event: appended.event,
            duplicate: appended.duplicate,
        })
    }
}

/// Publishes up to a hundred.
pub(crate) struct PublishBatch;

/// Up to a hundred events.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PublishBatchInput {
    /// All of them are appended, or none.
    events: Vec<PublishInput>,
    /// The same again is the same events.
    #[serde(default)]
    request_id: Option<String>,
}

/// The events as they are in the log.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PublishBatchOutput {
    events: Vec<Published>,
}

impl Verb for PublishBatch {
    const REF: &'static str = "mesh.publishBatch";
    const SUMMARY: &'static str = "append up to 100 events, all or nothing";
    const SCOPE: Right = Right::MeshPublish;
    const CHANGES: bool = true;
    type In = PublishBatchInput;
    type Out = PublishBatchOutput;

    async fn run(ctx: Ctx, input: PublishBatchInput) -> Result<PublishBatchOutput> {
        let request = RequestKey::of(&ctx.caller, input.request_id.as_deref(), &input)?;
        let drafts = input
            .events
            .into_iter()
            .map(|event| {
                let own = event.request_id.clone();
                let mut draft = event.draft(&ctx.caller)?;
                if let (None, Some(own)) = (&draft.id, own) {
                    draft.id = Some(requests::event_id(&ctx.caller.request_space(), &own)?);
                }
                Ok(draft)
            })
            .collect::<Result<Vec<_>>>()?;
        let appended = requests::publish_batch(&ctx.house, request, drafts).await?;
        let events = appended
            .into_iter()
            .map(|one| Published {
                event: one.event,
                duplicate: one.duplicate,
            })
            .collect();
        Ok(PublishBatchOutput { events })
    }
}

/// Reads events.
pub(crate) struct Read;

/// From where, of what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReadInput {
    /// Patterns; all public topics unless given.
    #[serde(default)]
    topics: Option<Vec<Pattern>>,
    /// Events after this sequence, or `<epoch>-<sequence>`; 0 unless given.
    #[serde(default)]
    after: Cursor,
    /// Only these kinds.
    #[serde(default)]
    kinds: Vec<Kind>,
    /// Events at most, 1 to 1000.
    #[serde(default)]
    limit: Option<usize>,
    /// Wait so long for the first, 0 to 300000 milliseconds.
    #[serde(default)]
    wait_ms: Option<u64>,
}

impl Verb for Read {
    const REF: &'static str = "mesh.read";
    const SUMMARY: &'static str = "events after a cursor, waiting for the first if asked";
    const SCOPE: Right = Right::MeshRead;
    const CHANGES: bool = false;
    type In = ReadInput;
    type Out = Page;

    async fn run(ctx: Ctx, input: ReadInput) -> Result<Page> {
        let patterns = match input.topics {
            Some(topics) if topics.is_empty() => {
                return Err(Error::invalid(
                    "topics",
                    "takes at least one pattern; leave it out for all",
                ));
            }
            Some(topics) => topics,
            None => vec![">".parse()?],
        };
        for pattern in &patterns {
            ctx.caller.require_on(Right::MeshRead, pattern.as_str())?;
        }
        let wait_ms = long_poll_ms(input.wait_ms)?;
        let mut query = Query::new(patterns, input.after);
        check::within("limit", input.limit, 1..=EVENTS_MAX)?;
        query.limit = input.limit.unwrap_or(query.limit);
        query.kinds = input.kinds;
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        let mut watcher = ctx.house.store.watch(&query.patterns);
        loop {
            let page = ctx.house.store.read_events(query.clone()).await?;
            if !page.events.is_empty() || !page.omitted.is_empty() || Instant::now() >= deadline {
                return Ok(page);
            }
            // What was looked at is not looked at again.
            query.after.sequence = query.after.sequence.max(page.next);
            if page.more {
                continue;
            }
            let _ = ctx
                .house
                .unless_stopping(tokio::time::timeout_at(deadline, watcher.changed()))
                .await?;
        }
    }
}

const EVENTS_MAX: usize = weft_mesh::limits::READ_EVENTS_MAX;

/// Lists topics.
pub(crate) struct Topics;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicsInput {}

/// Topics by name.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TopicsOutput {
    topics: Vec<TopicInfo>,
}

impl Verb for Topics {
    const REF: &'static str = "mesh.topics";
    const SUMMARY: &'static str = "the topics with their counts, sizes and what retention took";
    const SCOPE: Right = Right::MeshRead;
    const CHANGES: bool = false;
    type In = TopicsInput;
    type Out = TopicsOutput;

    async fn run(ctx: Ctx, _: TopicsInput) -> Result<TopicsOutput> {
        let mut topics = ctx.house.store.topics().await?;
        topics.retain(|info| {
            ctx.caller
                .require_on(Right::MeshRead, info.topic.as_str())
                .is_ok()
        });
        Ok(TopicsOutput { topics })
    }
}
