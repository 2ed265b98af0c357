//! A draft made ready for the log by the caller's own thread, so that the writer only writes.

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::error::MeshError;
use crate::event::Draft;
use crate::name::EventId;

/// Enough that two contents never meet by chance; nobody gains by making his own two contents meet.
pub(super) const DIGEST_BYTES: usize = 16;

/// A checked draft with its id, size and digest.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) draft: Draft,
    pub(super) id: EventId,
    /// Whether the id was made here, so that no other event can have it.
    pub(super) is_made: bool,
    pub(super) bytes: usize,
    pub(super) digest: [u8; DIGEST_BYTES],
}

impl Entry {
    pub(super) fn new(mut draft: Draft) -> Result<Self, MeshError> {
        draft.check()?;
        if let Some(compact) = draft.data.as_ref().and_then(|data| compacted(data.get())) {
            draft.data = RawValue::from_string(compact).ok();
        }
        let is_made = draft.id.is_none();
        let id = draft.id.take().unwrap_or_else(EventId::make);
        Ok(Self {
            bytes: draft.bytes(),
            digest: digest(&draft),
            id,
            is_made,
            draft,
        })
    }
}

/// A digest of what the poster chose: the same content again is a retry, other content a conflict.
fn digest(draft: &Draft) -> [u8; DIGEST_BYTES] {
    let mut sha = Sha256::new();
    let data = draft.data.as_ref().map(|data| data.get());
    let parts = [
        Some(draft.topic.as_str()),
        Some(draft.kind.as_str()),
        draft.to.as_deref(),
        draft.text.as_deref(),
        data,
    ];
    for part in parts {
        // The length first, one more than it is: no part can run into the next, and none is not the same as empty.
        sha.update(part.map_or(0, |part| part.len() as u64 + 1).to_le_bytes());
        sha.update(part.unwrap_or_default());
    }
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&sha.finalize()[..DIGEST_BYTES]);
    digest
}

/// JSON without the white space between its parts, so that an event is always one line. None if there is none of it.
fn compacted(json: &str) -> Option<String> {
    let is_space = |byte: u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    if !json.bytes().any(is_space) {
        return None;
    }
    let (mut in_string, mut is_escaped) = (false, false);
    let kept = json.bytes().filter(|&byte| {
        if in_string {
            in_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            return true;
        }
        in_string = byte == b'"';
        !is_space(byte)
    });
    // Only whole ASCII characters were left out, so the rest is still UTF-8.
    String::from_utf8(kept.collect()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::name::Kind;

    fn draft() -> Draft {
        Draft::new("builds".parse().unwrap(), Kind::default(), "session:cli")
    }

    #[test]
    fn white_space_goes_only_between_the_parts() {
        let text = "{ \"a b\" :\n[ 1 ,\t\"\\\" x\\\\\" , \" y \" ] }";
        assert_eq!(compacted(text).unwrap(), r#"{"a b":[1,"\" x\\"," y "]}"#);
        assert_eq!(compacted("[1,2]"), None);
    }

    #[test]
    fn the_digest_tells_contents_apart_and_nothing_else() {
        let digest_of = |draft: Draft| Entry::new(draft).unwrap().digest;
        let base = digest_of(draft().with_text("a"));
        assert_eq!(base, digest_of(draft().with_text("a")));
        assert_eq!(
            base,
            digest_of(draft().with_text("a").with_id(EventId::make()))
        );
        let others = [
            draft(),
            draft().with_text(""),
            draft().with_text("b"),
            Draft {
                to: Some("a".to_owned()),
                ..draft()
            },
            draft().with_text("a").with_data(&json!(null)),
            Draft {
                kind: "k".parse().unwrap(),
                ..draft().with_text("a")
            },
            Draft {
                topic: "x".parse().unwrap(),
                ..draft().with_text("a")
            },
        ];
        for other in others {
            assert_ne!(base, digest_of(other.clone()), "{other:?}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_with_its_size() {
        let refused = Entry::new(draft().with_text("x".repeat(262_145))).unwrap_err();
        assert_eq!(
            refused,
            MeshError::PayloadTooLarge {
                field: "event",
                size: 262_145,
                limit: 262_144
            }
        );
        assert!(Entry::new(draft().with_text("x".repeat(262_144))).is_ok());
    }

    #[test]
    fn callers_may_not_choose_what_is_wefts() {
        let reserved: EventId = "completion:t-1".parse().unwrap();
        assert_eq!(
            Entry::new(draft().with_id(reserved.clone()))
                .unwrap_err()
                .slug(),
            "id-reserved"
        );
        let topic = "weft.timing".parse().unwrap();
        assert_eq!(
            Entry::new(Draft::new(topic, Kind::default(), "x"))
                .unwrap_err()
                .slug(),
            "topic-reserved"
        );
        let own = Draft::by_weft("weft.timing".parse().unwrap(), Kind::default(), "node")
            .with_id(reserved);
        assert!(Entry::new(own).is_ok());
    }

    proptest! {
        #[test]
        fn compacting_changes_no_value(keys in prop::collection::vec("\\PC{0,12}", 0..5)) {
            let value = json!({"keys": keys, "n": [1, 2.5, null]});
            let spaced = serde_json::to_string_pretty(&value).unwrap();
            let compact = compacted(&spaced).unwrap();
            prop_assert_eq!(&compact, &serde_json::to_string(&value).unwrap());
        }
    }
}
