//! Events: what is handed in (`Draft`) and what the log holds (`Event`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::depth::depth;
use crate::error::MeshError;
use crate::limits::{DATA_DEPTH_MAX, EVENT_BYTES_MAX, PARTY_BYTES_MAX};
use crate::name::{EventId, Kind, Topic};

/// Where an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The node itself or an unjailed caller on its own socket.
    #[default]
    Local,
    /// Anybody else: a grant, a token, a jailed task.
    External,
}

/// Why an event was released by a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scheduled {
    /// When it was due, in epoch milliseconds.
    pub due_at: u64,
    /// The schedule's key, if it has one.
    pub key: Option<String>,
}

/// An event that is not in the log yet.
///
/// The fields are public to be filled in; they are checked when the draft is published.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The id, or none to have one made. Only weft itself may choose one with `:`.
    pub id: Option<EventId>,
    /// The topic. Only weft itself may choose a reserved one.
    pub topic: Topic,
    /// The kind.
    pub kind: Kind,
    /// Who posts, for instance `session:cli`; the id belongs to this poster. Set by the node, never by the caller.
    pub from: String,
    /// Whom it is meant for, if anybody.
    pub to: Option<String>,
    /// Text for people.
    pub text: Option<String>,
    /// Any JSON, kept as it was written but for white space between its parts.
    pub data: Option<Box<RawValue>>,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether readers must treat it as untrusted.
    pub untrusted: bool,
    /// The grant it was posted with.
    pub grant_id: Option<String>,
    /// The schedule that released it.
    pub scheduled: Option<Scheduled>,
    /// Until when the id is remembered at least, in epoch milliseconds; never shorter than seven days from now.
    pub keep_id_until: Option<u64>,
    pub(crate) by_weft: bool,
}

impl Draft {
    /// A local draft of a caller, with everything optional left out.
    pub fn new(topic: Topic, kind: Kind, from: impl Into<String>) -> Self {
        Self {
            id: None,
            topic,
            kind,
            from: from.into(),
            to: None,
            text: None,
            data: None,
            origin: Origin::Local,
            untrusted: false,
            grant_id: None,
            scheduled: None,
            keep_id_until: None,
            by_weft: false,
        }
    }

    /// A draft that weft itself makes: it may have an id with `:` and a reserved topic.
    pub fn by_weft(topic: Topic, kind: Kind, from: impl Into<String>) -> Self {
        Self {
            by_weft: true,
            ..Self::new(topic, kind, from)
        }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(self, id: EventId) -> Self {
        Self {
            id: Some(id),
            ..self
        }
    }

    /// Sets the text.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..self
        }
    }

    /// Sets the data from a value.
    #[must_use]
    pub fn with_data(self, data: &serde_json::Value) -> Self {
        // A `Value` has only string keys, so writing it cannot fail.
        Self {
            data: serde_json::value::to_raw_value(data).ok(),
            ..self
        }
    }

    /// Sets whom it is meant for.
    #[must_use]
    pub fn with_to(self, to: impl Into<String>) -> Self {
        Self {
            to: Some(to.into()),
            ..self
        }
    }

    /// Sets the grant it is posted with.
    #[must_use]
    pub fn with_grant_id(self, grant_id: impl Into<String>) -> Self {
        Self {
            grant_id: Some(grant_id.into()),
            ..self
        }
    }

    /// Sets until when the id is remembered at least, in epoch milliseconds.
    #[must_use]
    pub fn with_id_kept_until(self, until: u64) -> Self {
        Self {
            keep_id_until: Some(until),
            ..self
        }
    }

    /// Marks the draft as coming from outside, and so as untrusted.
    #[must_use]
    pub fn external(self) -> Self {
        Self {
            origin: Origin::External,
            untrusted: true,
            ..self
        }
    }

    /// Bytes that count against the limit of an event.
    pub fn bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        length(&self.to)
            + length(&self.text)
            + self.data.as_ref().map_or(0, |data| data.get().len())
            + self
                .scheduled
                .as_ref()
                .map_or(0, |scheduled| length(&scheduled.key))
    }

    /// Checks what the types leave open, in the order in which a caller is told.
    pub(crate) fn check(&self) -> Result<(), MeshError> {
        if !self.by_weft && self.topic.is_reserved() {
            return Err(MeshError::TopicReserved {
                topic: self.topic.to_string(),
            });
        }
        if let Some(id) = self
            .id
            .as_ref()
            .filter(|id| id.is_reserved() && !self.by_weft)
        {
            return Err(MeshError::IdReserved { id: id.to_string() });
        }
        let at_most = |field, size, limit| {
            if size > limit {
                return Err(MeshError::PayloadTooLarge { field, size, limit });
            }
            Ok(())
        };
        at_most("from", self.from.len(), PARTY_BYTES_MAX)?;
        at_most(
            "to",
            self.to.as_ref().map_or(0, String::len),
            PARTY_BYTES_MAX,
        )?;
        at_most("event", self.bytes(), EVENT_BYTES_MAX)?;
        // What weft itself wraps, a dead letter say, has room above the limit.
        if !self.by_weft
            && self
                .data
                .as_ref()
                .is_some_and(|data| depth(data.get()) > DATA_DEPTH_MAX)
        {
            return Err(MeshError::PayloadInvalid {
                field: "data",
                reason: format!(
                    "arrays and objects stand in one another more than {DATA_DEPTH_MAX} deep"
                ),
            });
        }
        Ok(())
    }
}

/// An event of the log. Every key is always there, null where it has nothing to say.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// Its place in the log, counted over all topics and never used twice within an epoch.
    pub sequence: u64,
    /// Its topic.
    pub topic: Topic,
    /// Its kind.
    pub kind: Kind,
    /// Who posted it.
    pub from: String,
    /// Whom it is meant for.
    pub to: Option<String>,
    /// Text for people.
    pub text: Option<String>,
    /// Any JSON.
    #[schemars(with = "Option<serde_json::Value>")]
    pub data: Option<Box<RawValue>>,
    /// When it was stored, in epoch milliseconds.
    pub created_at: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether it must be treated as untrusted.
    pub untrusted: bool,
    /// The grant it was posted with.
    pub grant_id: Option<String>,
    /// The schedule that released it.
    pub scheduled: Option<Scheduled>,
}

/// The answer to a publish: the event as the log holds it.
#[derive(Debug, Clone)]
pub struct Appended {
    /// The event; for a duplicate with the sequence and time of the first.
    pub event: Event,
    /// Whether the same event was there before, so that nothing was stored now.
    pub duplicate: bool,
}

/// The answer to a post with a grant.
#[derive(Debug, Clone)]
pub struct Posted {
    /// The event and whether it was there before.
    pub appended: Appended,
    /// Uses that the grant has left.
    pub uses_left: u32,
}
