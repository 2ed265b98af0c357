//! `residents.*`: durable actors that subscribe to topics and act.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;
use weft_grants::Right;
use weft_mesh::{Draft, Kind, Pattern};

use super::tasks_wait::long_poll_ms;
use crate::action::{Ctx, Verb};
use crate::check;
use crate::error::{Error, Result};
use crate::house::random_id;
use crate::limits::{INCARNATION_CHARS, RESIDENT_LOG_PAGE, RETRIES_DEFAULT};
use crate::requests;
use crate::resident::rows::{self, LogEntry, ResidentRow};
use crate::resident::spec::{Handler, ResidentSpec};
use crate::resident::{log_key, tell_topic, wake};
use crate::root::{DropResident, WakeResident};

/// A resident as callers see it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResidentView {
    #[serde(flatten)]
    spec: ResidentSpec,
    /// The names of the variables added to the environment of its runs.
    env_names: Vec<String>,
    /// Not paused.
    enabled: bool,
    /// The newest sequence it is done with.
    cursor: u64,
    /// A new value whenever a resident of this name is made.
    incarnation: String,
    /// Epoch milliseconds.
    created_at: u64,
}

impl From<ResidentRow> for ResidentView {
    fn from(row: ResidentRow) -> Self {
        // The values of the environment may be secrets: only the names are shown.
        let spec = ResidentSpec {
            env: BTreeMap::new(),
            ..row.spec
        };
        ResidentView {
            env_names: row.spec.env.into_keys().collect(),
            spec,
            enabled: row.enabled,
            cursor: row.cursor,
            incarnation: row.incarnation,
            created_at: row.created_at,
        }
    }
}

/// One resident.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ResidentOutput {
    resident: ResidentView,
}

/// Which resident.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NameInput {
    /// Its name.
    name: String,
    /// Doing it twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// Makes a resident.
pub(crate) struct Create;

/// What it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateInput {
    /// Its name: 1 to 64 characters of `A-Z a-z 0-9 _ -`.
    name: String,
    /// The patterns of the topics it subscribes to.
    topics: Vec<Pattern>,
    /// The kinds it takes; all unless given.
    #[serde(default)]
    kinds: Vec<Kind>,
    /// What it does with an event.
    handler: Handler,
    /// Where it begins: `now`, `start`, or a sequence.
    #[serde(default)]
    from: Option<Place>,
    /// Retries after the first attempt; 5 unless given.
    #[serde(default)]
    retries: Option<u32>,
    /// A hard cap on each run, milliseconds.
    #[serde(default)]
    timeout_ms: Option<u64>,
    /// The working directory of its runs, absolute.
    #[serde(default)]
    cwd: Option<String>,
    /// Variables added to the environment of its runs.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Making the same resident twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// Where a resident begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// After this sequence.
    Sequence(u64),
    /// After the newest event.
    Now,
    /// Before the oldest.
    Start,
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let refused = || D::Error::custom("takes \"now\", \"start\" or a sequence");
        match serde_json::Value::deserialize(from)? {
            serde_json::Value::String(word) if word == "now" => Ok(Place::Now),
            serde_json::Value::String(word) if word == "start" => Ok(Place::Start),
            value => value.as_u64().map(Place::Sequence).ok_or_else(refused),
        }
    }
}

impl JsonSchema for Place {
    fn schema_name() -> Cow<'static, str> {
        "Place".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"oneOf": [{"enum": ["now", "start"]}, {"type": "integer", "minimum": 0}]})
    }
}

impl Verb for Create {
    const REF: &'static str = "residents.create";
    const SUMMARY: &'static str = "make a resident: topics, a handler, and how patient it is";
    const SCOPE: Right = Right::ResidentsWrite;
    const CHANGES: bool = true;
    type In = CreateInput;
    type Out = ResidentOutput;

    async fn run(ctx: Ctx, input: CreateInput) -> Result<ResidentOutput> {
        let spec = ResidentSpec {
            name: input.name,
            topics: input.topics,
            kinds: input.kinds,
            handler: input.handler,
            retries: input.retries.unwrap_or(RETRIES_DEFAULT),
            timeout_ms: input.timeout_ms,
            cwd: input.cwd,
            env: input.env,
        };
        spec.check()?;
        for pattern in &spec.topics {
            ctx.caller.require_on(Right::MeshRead, pattern.as_str())?;
        }
        let (from, incarnation) = (
            input.from.unwrap_or(Place::Now),
            random_id("", INCARNATION_CHARS)?,
        );
        let newest = ctx.house.store.newest();
        let row = ctx
            .house
            .commit(move |tx| {
                let cursor = match from {
                    Place::Sequence(sequence) => sequence,
                    Place::Start => 0,
                    Place::Now => newest,
                };
                if cursor > newest {
                    return Err(Error::invalid(
                        "from",
                        format!("{cursor} is past the newest event, {newest}"),
                    ));
                }
                let row = ResidentRow {
                    name: spec.name.clone(),
                    spec,
                    enabled: true,
                    cursor,
                    epoch: tx.epoch().to_owned(),
                    incarnation,
                    created_at: tx.now(),
                };
                rows::create(tx, &row)
            })
            .await?;
        // The file is there before the answer: from now on an end without a node starts one.
        wake::refresh(&ctx.house).await?;
        ctx.house.root()?.do_send(WakeResident {
            name: row.name.clone(),
        });
        Ok(ResidentOutput {
            resident: row.into(),
        })
    }
}

/// Gets one.
pub(crate) struct Get;

impl Verb for Get {
    const REF: &'static str = "residents.get";
    const SUMMARY: &'static str = "one resident and how far it is";
    const SCOPE: Right = Right::ParticipantsRead;
    const CHANGES: bool = false;
    type In = NameInput;
    type Out = ResidentOutput;

    async fn run(ctx: Ctx, input: NameInput) -> Result<ResidentOutput> {
        let row = ctx
            .house
            .look(move |sql| rows::find(sql, &input.name))
            .await?;
        Ok(ResidentOutput {
            resident: row.into(),
        })
    }
}

/// Lists all.
pub(crate) struct List;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListInput {}

/// All residents, by name.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListOutput {
    residents: Vec<ResidentView>,
}

impl Verb for List {
    const REF: &'static str = "residents.list";
    const SUMMARY: &'static str = "the residents and how far each is";
    const SCOPE: Right = Right::ParticipantsRead;
    const CHANGES: bool = false;
    type In = ListInput;
    type Out = ListOutput;

    async fn run(ctx: Ctx, _: ListInput) -> Result<ListOutput> {
        let rows = ctx.house.look(rows::all).await?;
        Ok(ListOutput {
            residents: rows.into_iter().map(ResidentView::from).collect(),
        })
    }
}

/// Reads a resident's log.
pub(crate) struct Log;

/// Whose, and from where.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LogInput {
    /// Its name.
    name: String,
    /// Entries after this `n`.
    #[serde(default)]
    after: i64,
    /// Entries at most, 1 to 200.
    #[serde(default)]
    limit: Option<usize>,
    /// Wait so long for the first, 0 to 300000 milliseconds.
    #[serde(default)]
    wait_ms: Option<u64>,
}

/// What became of its events, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LogOutput {
    entries: Vec<LogEntry>,
}

impl Verb for Log {
    const REF: &'static str = "residents.log";
    const SUMMARY: &'static str =
        "what became of a resident's events: attempts, acknowledgements, dead letters";
    const SCOPE: Right = Right::ParticipantsRead;
    const CHANGES: bool = false;
    type In = LogInput;
    type Out = LogOutput;

    async fn run(ctx: Ctx, input: LogInput) -> Result<LogOutput> {
        let limit = input.limit.unwrap_or(RESIDENT_LOG_PAGE);
        check::within("limit", Some(limit), 1..=RESIDENT_LOG_PAGE)?;
        check::within("after", Some(input.after), 0..=i64::MAX)?;
        let wait_ms = long_poll_ms(input.wait_ms)?;
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        let mut grown = ctx.house.store.watch_key(&log_key(&input.name));
        loop {
            let (name, after) = (input.name.clone(), input.after);
            let entries = ctx
                .house
                .look(move |sql| {
                    rows::find(sql, &name)?;
                    rows::entries(sql, &name, after, limit)
                })
                .await?;
            if !entries.is_empty() || Instant::now() >= deadline {
                return Ok(LogOutput { entries });
            }
            let _ = ctx
                .house
                .unless_stopping(tokio::time::timeout_at(deadline, grown.changed()))
                .await?;
        }
    }
}

/// Pauses one.
pub(crate) struct Pause;

/// Resumes one.
pub(crate) struct Resume;

impl Verb for Pause {
    const REF: &'static str = "residents.pause";
    const SUMMARY: &'static str =
        "hold a resident after the run at hand; its events wait in the log";
    const SCOPE: Right = Right::ResidentsWrite;
    const CHANGES: bool = true;
    type In = NameInput;
    type Out = ResidentOutput;

    async fn run(ctx: Ctx, input: NameInput) -> Result<ResidentOutput> {
        set_enabled(&ctx, input.name, false).await
    }
}

impl Verb for Resume {
    const REF: &'static str = "residents.resume";
    const SUMMARY: &'static str = "let a paused resident go on from its cursor";
    const SCOPE: Right = Right::ResidentsWrite;
    const CHANGES: bool = true;
    type In = NameInput;
    type Out = ResidentOutput;

    async fn run(ctx: Ctx, input: NameInput) -> Result<ResidentOutput> {
        set_enabled(&ctx, input.name, true).await
    }
}

async fn set_enabled(ctx: &Ctx, name: String, enabled: bool) -> Result<ResidentOutput> {
    let row = ctx
        .house
        .commit(move |tx| rows::set_enabled(tx, &name, enabled))
        .await?;
    wake::refresh(&ctx.house).await?;
    ctx.house.root()?.do_send(WakeResident {
        name: row.name.clone(),
    });
    Ok(ResidentOutput {
        resident: row.into(),
    })
}

/// Removes one.
pub(crate) struct Remove;

impl Verb for Remove {
    const REF: &'static str = "residents.remove";
    const SUMMARY: &'static str =
        "take a resident away with its log; a run at hand goes on and tells nobody";
    const SCOPE: Right = Right::ResidentsWrite;
    const CHANGES: bool = true;
    type In = NameInput;
    type Out = ResidentOutput;

    async fn run(ctx: Ctx, input: NameInput) -> Result<ResidentOutput> {
        let name = input.name;
        let row = ctx.house.commit(move |tx| rows::remove(tx, &name)).await?;
        wake::refresh(&ctx.house).await?;
        ctx.house.root()?.do_send(DropResident {
            name: row.name.clone(),
        });
        Ok(ResidentOutput {
            resident: row.into(),
        })
    }
}

/// Tells one something.
pub(crate) struct Tell;

/// Whom, and what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TellInput {
    /// Its name.
    name: String,
    /// A text.
    #[serde(default)]
    text: Option<String>,
    /// Any JSON.
    #[serde(default)]
    data: Option<serde_json::Value>,
    /// Refuse if the resident is no longer the one that was looked up.
    #[serde(default)]
    incarnation: Option<String>,
    /// The same id again tells nothing twice.
    #[serde(default)]
    request_id: Option<String>,
}

/// Where the message stands in the log.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TellOutput {
    id: String,
    sequence: u64,
}

impl Verb for Tell {
    const REF: &'static str = "residents.tell";
    const SUMMARY: &'static str = "put a message into a resident's mailbox, behind what is there";
    const SCOPE: Right = Right::ResidentsWrite;
    const CHANGES: bool = true;
    type In = TellInput;
    type Out = TellOutput;

    async fn run(ctx: Ctx, input: TellInput) -> Result<TellOutput> {
        if input.text.is_none() && input.data.is_none() {
            return Err(Error::invalid(
                "text",
                "is missing: give a `text` or `data`",
            ));
        }
        let caller = ctx.caller.clone();
        let appended = ctx
            .house
            .commit(move |tx| {
                let row = rows::find(tx.sql(), &input.name)?;
                if input
                    .incarnation
                    .is_some_and(|incarnation| incarnation != row.incarnation)
                {
                    return Err(Error::Stale {
                        what: "resident",
                        id: input.name,
                    });
                }
                let mut draft = Draft::by_weft(
                    tell_topic(&input.name).parse()?,
                    Kind::default(),
                    caller.from(),
                );
                draft.to = Some(format!("resident:{}", input.name));
                draft.text = input.text;
                draft.origin = caller.origin();
                draft.untrusted = caller.untrusted();
                let request = input.request_id.as_deref();
                draft.id = request
                    .map(|id| requests::event_id(&caller.request_space(), id))
                    .transpose()?;
                if let Some(data) = &input.data {
                    draft = draft.with_data(data);
                }
                let appended = tx.append(&draft);
                appended.map_err(|error| requests::refusal(error, request))
            })
            .await?;
        Ok(TellOutput {
            id: appended.event.id.to_string(),
            sequence: appended.event.sequence,
        })
    }
}
