//! Reading the log by cursor: what is asked and what is answered.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::MeshError;
use crate::event::Event;
use crate::limits::{READ_BYTES_DEFAULT, READ_EVENTS_DEFAULT};
use crate::name::{Kind, Topic, shown};
use crate::pattern::Pattern;

/// A place in the log: everything up to `sequence` has been seen.
///
/// As text it is a number, or `<epoch>-<sequence>`, which tells a cursor of a store that has since been replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The epoch it belongs to; none means the current one.
    pub epoch: Option<String>,
    /// The newest sequence seen; 0 stands before the first event.
    pub sequence: u64,
}

impl From<u64> for Cursor {
    fn from(sequence: u64) -> Self {
        Self {
            epoch: None,
            sequence,
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.epoch {
            Some(epoch) => write!(f, "{epoch}-{}", self.sequence),
            None => write!(f, "{}", self.sequence),
        }
    }
}

impl FromStr for Cursor {
    type Err = MeshError;

    fn from_str(text: &str) -> Result<Self, MeshError> {
        let (epoch, digits) = match text.split_once('-') {
            Some((epoch, digits)) => (Some(epoch), digits),
            None => (None, text),
        };
        let is_epoch = |epoch: &str| {
            !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        // `parse` alone would take a sign.
        let sequence = digits
            .parse()
            .ok()
            .filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        match (epoch, sequence) {
            (None, Some(sequence)) => Ok(Self {
                epoch: None,
                sequence,
            }),
            (Some(epoch), Some(sequence)) if is_epoch(epoch) => Ok(Self {
                epoch: Some(epoch.to_owned()),
                sequence,
            }),
            _ => Err(MeshError::PayloadInvalid {
                field: "after",
                reason: format!(
                    "{:?} is neither a sequence nor `<epoch>-<sequence>`",
                    shown(text)
                ),
            }),
        }
    }
}

impl Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.epoch {
            Some(_) => serializer.collect_str(self),
            None => serializer.serialize_u64(self.sequence),
        }
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Given;
        impl serde::de::Visitor<'_> for Given {
            type Value = Cursor;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence from 0 up, or `<epoch>-<sequence>` as text")
            }

            fn visit_u64<E>(self, sequence: u64) -> Result<Cursor, E> {
                Ok(sequence.into())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Cursor, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Given)
    }
}

impl JsonSchema for Cursor {
    fn schema_name() -> Cow<'static, str> {
        "Cursor".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"oneOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": "^([A-Za-z0-9]+-)?[0-9]+$"}
        ]})
    }
}

/// What to read.
#[derive(Debug, Clone)]
pub struct Query {
    /// Topics; an event comes once, however many of them match it. None at all matches nothing.
    pub patterns: Vec<Pattern>,
    /// Kinds; none means all.
    pub kinds: Vec<Kind>,
    /// Events after this place.
    pub after: Cursor,
    /// Most events to return, 1 to 1000; out of range is brought into it.
    pub limit: usize,
    /// Most bytes of events to return; at least one event comes, however large.
    pub max_bytes: usize,
}

impl Query {
    /// A query with the default bounds.
    pub fn new(patterns: Vec<Pattern>, after: impl Into<Cursor>) -> Self {
        Self {
            patterns,
            kinds: Vec::new(),
            after: after.into(),
            limit: READ_EVENTS_DEFAULT,
            max_bytes: READ_BYTES_DEFAULT,
        }
    }
}

/// Events that retention took away before the reader saw them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Omitted {
    /// The topic that lost them.
    pub topic: Topic,
    /// They lay after this sequence.
    pub after: u64,
    /// And up to this one.
    pub to: u64,
    /// How many there were; an upper bound once their id records are gone too, seven days after they were made.
    pub count: u64,
}

/// What a read found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The events, in order.
    pub events: Vec<Event>,
    /// The store's epoch.
    pub epoch: String,
    /// What was lost to retention, a line for each topic that lost something.
    pub omitted: Vec<Omitted>,
    /// The newest sequence looked at: the cursor of the next read.
    pub next: u64,
    /// Whether a bound ended the page, so that the next read should follow at once instead of waiting.
    #[serde(skip)]
    pub more: bool,
}

/// What is known of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicInfo {
    /// Its name.
    pub topic: Topic,
    /// Events kept.
    pub count: u64,
    /// Bytes of the events kept.
    pub bytes: u64,
    /// Sequence of the oldest event kept.
    pub first: Option<u64>,
    /// Sequence of the newest event ever, kept or not.
    pub last: Option<u64>,
    /// Everything up to this sequence was taken away; 0 when nothing was.
    pub trimmed_to: u64,
    /// The topic's own retention, if it has one.
    pub retention: Option<Retention>,
}

/// How long events of a topic are kept. The first bound that is passed takes the oldest away; none means no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retention {
    /// Oldest age, in milliseconds.
    pub max_age_ms: Option<u64>,
    /// Most events.
    pub max_count: Option<u64>,
    /// Most bytes of events.
    pub max_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_in_both_forms_and_nothing_else() {
        assert_eq!("12".parse::<Cursor>().unwrap(), Cursor::from(12));
        let full: Cursor = "abc9-12".parse().unwrap();
        assert_eq!((full.epoch.as_deref(), full.sequence), (Some("abc9"), 12));
        assert_eq!(full.to_string(), "abc9-12");
        for text in [
            "",
            "-",
            "-1",
            "+1",
            "abc-",
            "a-b-1",
            "a-+1",
            "1.5",
            "18446744073709551616",
            "é-1",
        ] {
            assert_eq!(
                text.parse::<Cursor>().unwrap_err().slug(),
                "payload-invalid",
                "{text:?}"
            );
        }
        assert_eq!(
            serde_json::from_str::<Cursor>("7").unwrap(),
            Cursor::from(7)
        );
        assert_eq!(
            serde_json::from_str::<Cursor>("\"e-7\"").unwrap().sequence,
            7
        );
        assert!(serde_json::from_str::<Cursor>("-7").is_err());
    }
}
