//! Names that are checked when they are made and never after: topics, kinds, event ids.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock;
use crate::error::MeshError;
use crate::limits::{EVENT_ID_CHARS_MAX, KIND_CHARS_MAX, TOPIC_CHARS_MAX};

/// First token of every topic that weft alone writes.
pub(crate) const RESERVED_TOKEN: &str = "weft";

/// What all checked names share: cheap clones, text out, checks on the way in (also through serde).
macro_rules! checked_name {
    ($name:ident, $pattern:literal, $max:expr) => {
        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = MeshError;

            fn try_from(text: &str) -> Result<Self, MeshError> {
                text.parse()
            }
        }

        impl TryFrom<String> for $name {
            type Error = MeshError;

            fn try_from(text: String) -> Result<Self, MeshError> {
                text.parse()
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "pattern": $pattern, "minLength": 1, "maxLength": $max})
            }
        }
    };
}
pub(crate) use checked_name;

/// The name of a durable, ordered channel: 1 to 128 characters, dot-separated tokens of `[A-Za-z0-9_-]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(pub(crate) Arc<str>);
checked_name!(
    Topic,
    r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$",
    TOPIC_CHARS_MAX
);

impl Topic {
    /// Parses a topic that a caller may publish to, so not one of weft's own.
    pub fn parse_public(text: &str) -> Result<Self, MeshError> {
        let topic: Self = text.parse()?;
        if topic.is_reserved() {
            return Err(MeshError::TopicReserved {
                topic: text.to_owned(),
            });
        }
        Ok(topic)
    }

    /// Whether only weft writes this topic: its first token is `weft`.
    pub fn is_reserved(&self) -> bool {
        first_token(&self.0) == RESERVED_TOKEN
    }
}

impl FromStr for Topic {
    type Err = MeshError;

    fn from_str(text: &str) -> Result<Self, MeshError> {
        match topic_rule_broken(text) {
            None => Ok(Self(text.into())),
            Some(rule) => Err(MeshError::TopicInvalid {
                topic: shown(text),
                rule,
            }),
        }
    }
}

/// What an event is about: 1 to 64 characters of `[A-Za-z0-9_.-]`; `message` where nobody says more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub(crate) Arc<str>);
checked_name!(Kind, r"^[A-Za-z0-9_.-]+$", KIND_CHARS_MAX);

impl Default for Kind {
    fn default() -> Self {
        Self("message".into())
    }
}

impl FromStr for Kind {
    type Err = MeshError;

    fn from_str(text: &str) -> Result<Self, MeshError> {
        let rule = if text.is_empty() {
            "it is empty"
        } else if text.len() > KIND_CHARS_MAX {
            "it has more than 64 characters"
        } else if !text.bytes().all(|byte| is_token_byte(byte) || byte == b'.') {
            "only letters, digits, `_`, `-` and `.` are allowed"
        } else {
            return Ok(Self(text.into()));
        };
        Err(MeshError::KindInvalid {
            kind: shown(text),
            rule,
        })
    }
}

/// The id of an event: 1 to 128 visible ASCII characters. Ids with `:` are made by weft alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub(crate) Arc<str>);
checked_name!(EventId, r"^[!-~]+$", EVENT_ID_CHARS_MAX);

impl EventId {
    /// A new id (UUIDv7), ordered by time over the whole process. Random ids would halve the rate of the writer, whose
    /// index then grows everywhere.
    pub fn make() -> Self {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        Self((&*next_uuid().hyphenated().encode_lower(&mut text)).into())
    }

    /// The id of the event that tells of a task's end.
    pub fn completion(task_id: &str) -> Result<Self, MeshError> {
        format!("completion:{task_id}").parse()
    }

    /// Whether only weft may choose this id.
    pub fn is_reserved(&self) -> bool {
        self.0.contains(':')
    }
}

impl FromStr for EventId {
    type Err = MeshError;

    fn from_str(text: &str) -> Result<Self, MeshError> {
        let rule = if text.is_empty() {
            "it is empty"
        } else if text.len() > EVENT_ID_CHARS_MAX {
            "it has more than 128 characters"
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            "only visible ASCII characters are allowed, no spaces"
        } else {
            return Ok(Self(text.into()));
        };
        Err(MeshError::IdInvalid {
            id: shown(text),
            rule,
        })
    }
}

/// A UUIDv7 whose first 60 bits grow with every call: the milliseconds and below them a counter of 12 bits, which runs
/// over into the milliseconds when there are more than 4096 in one.
pub(crate) fn next_uuid() -> uuid::Uuid {
    const COUNTER_BITS: u8 = 12;
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = clock::now_ms() << COUNTER_BITS;
    let last = LAST
        .fetch_update(Relaxed, Relaxed, |last| Some((last + 1).max(now)))
        .unwrap_or_default();
    let tick = (last + 1).max(now);
    let (ms, counter) = (tick >> COUNTER_BITS, tick & ((1 << COUNTER_BITS) - 1));
    let nanos = (ms % 1000) as u32 * 1_000_000;
    uuid::Uuid::new_v7(uuid::Timestamp::from_unix_time(
        ms / 1000,
        nanos,
        counter.into(),
        COUNTER_BITS,
    ))
}

pub(crate) fn first_token(text: &str) -> &str {
    text.split_once('.').map_or(text, |(first, _)| first)
}

pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The first rule of topics that a text breaks.
fn topic_rule_broken(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.chars().count() > TOPIC_CHARS_MAX {
        return Some("it has more than 128 characters");
    }
    if text.split('.').any(str::is_empty) {
        return Some("a dot must stand between two tokens that are not empty");
    }
    if text.bytes().any(|byte| byte == b'*' || byte == b'>') {
        return Some("`*` and `>` are wildcards and belong in patterns only");
    }
    if !text.bytes().all(|byte| is_token_byte(byte) || byte == b'.') {
        return Some("tokens are letters, digits, `_` and `-`, with dots between them");
    }
    None
}

/// A name as it may stand in an error: cut where it is longer than any valid one could be.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 140;
    if text.chars().count() <= SHOWN_CHARS {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishing_takes_good_names_and_refuses_each_bad_one_by_its_rule() {
        let long = "x".repeat(129);
        let bad = [
            "", "a..b", ".a", "a.", "a.*", "a.>", " a", "a b", "a\tb", "a\nb", "é", &long, "a/b",
            "%2e",
        ];
        for text in bad {
            let refused = Topic::parse_public(text).unwrap_err();
            assert_eq!(refused.slug(), "topic-invalid", "{text:?}");
        }
        for text in ["weft.x", "weft", "weft.timing"] {
            assert_eq!(
                Topic::parse_public(text).unwrap_err().slug(),
                "topic-reserved",
                "{text:?}"
            );
        }
        for text in ["Weft.x", "a.b", "weftx", "a.weft", &"x".repeat(128)] {
            assert_eq!(Topic::parse_public(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn kinds_and_ids_know_their_alphabets() {
        assert_eq!(Kind::default().as_str(), "message");
        assert!("task.completed".parse::<Kind>().is_ok());
        for text in ["", "a b", "é", "a:b", &"x".repeat(65)] {
            assert_eq!(
                text.parse::<Kind>().unwrap_err().slug(),
                "kind-invalid",
                "{text:?}"
            );
        }
        assert!(
            "01890a5d-ac96-774b-bcce-b302099a8057"
                .parse::<EventId>()
                .is_ok()
        );
        for text in ["", "a b", "é", "a\n", &"x".repeat(129)] {
            assert_eq!(
                text.parse::<EventId>().unwrap_err().slug(),
                "id-invalid",
                "{text:?}"
            );
        }
        assert!(EventId::completion("t-1").unwrap().is_reserved());
    }

    #[test]
    fn made_ids_are_in_order_of_time() {
        let ids: Vec<_> = (0..1000).map(|_| EventId::make()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn names_are_checked_when_they_come_as_json() {
        assert!(serde_json::from_str::<Topic>("\"a.b\"").is_ok());
        assert!(serde_json::from_str::<Topic>("\"a..b\"").is_err());
        assert_eq!(
            serde_json::to_string(&Kind::default()).unwrap(),
            "\"message\""
        );
    }
}
