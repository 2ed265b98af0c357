//! Topic patterns: `*` stands for one token, a final `>` for one token or more.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::MeshError;
use crate::limits::TOPIC_CHARS_MAX;
use crate::name::{RESERVED_TOKEN, Topic, checked_name, first_token, is_token_byte, shown};

/// A topic or a pattern of topics.
///
/// `a.*` matches `a.b` alone; `a.>` matches `a.b` and `a.b.c`, not `a`. A wildcard in the first token never matches
/// weft's own topics; those come only when `weft` is named.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern(Arc<str>);
checked_name!(
    Pattern,
    r"^(([A-Za-z0-9_-]+|\*)\.)*([A-Za-z0-9_-]+|\*|>)$",
    TOPIC_CHARS_MAX
);

impl Pattern {
    /// The pattern `>`, which matches every topic but weft's own.
    pub fn all() -> Self {
        Self(">".into())
    }

    /// Whether the pattern is the name of a single topic.
    pub fn is_exact(&self) -> bool {
        !self.0.bytes().any(|byte| byte == b'*' || byte == b'>')
    }

    /// Whether the topic is among those the pattern stands for.
    pub fn matches(&self, topic: &Topic) -> bool {
        self.matches_text(topic.as_str())
    }

    pub(crate) fn matches_text(&self, topic: &str) -> bool {
        if self.begins_wild() && first_token(topic) == RESERVED_TOKEN {
            return false;
        }
        let mut tokens = topic.split('.');
        for wanted in self.0.split('.') {
            match (wanted, tokens.next()) {
                (">", token) => return token.is_some(),
                ("*", Some(_)) => {}
                (wanted, Some(token)) if wanted == token => {}
                _ => return false,
            }
        }
        tokens.next().is_none()
    }

    /// Whether every topic that `other` matches is matched by this pattern too.
    pub fn covers(&self, other: &Self) -> bool {
        if self.begins_wild() && first_token(&other.0) == RESERVED_TOKEN {
            return false;
        }
        let mut theirs = other.0.split('.');
        for ours in self.0.split('.') {
            match (ours, theirs.next()) {
                (">", token) => return token.is_some(),
                (_, Some(">")) => return false,
                ("*", Some(_)) => {}
                (ours, Some(token)) if ours == token => {}
                _ => return false,
            }
        }
        theirs.next().is_none()
    }

    fn begins_wild(&self) -> bool {
        self.0.starts_with(['*', '>'])
    }
}

impl From<&Topic> for Pattern {
    fn from(topic: &Topic) -> Self {
        Self(Arc::clone(&topic.0))
    }
}

impl FromStr for Pattern {
    type Err = MeshError;

    fn from_str(text: &str) -> Result<Self, MeshError> {
        match pattern_rule_broken(text) {
            None => Ok(Self(text.into())),
            Some(rule) => Err(MeshError::PatternInvalid {
                pattern: shown(text),
                rule,
            }),
        }
    }
}

/// The first rule of patterns that a text breaks.
fn pattern_rule_broken(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.chars().count() > TOPIC_CHARS_MAX {
        return Some("it has more than 128 characters");
    }
    let mut tokens = text.split('.').peekable();
    while let Some(token) = tokens.next() {
        match token {
            "" => return Some("a dot must stand between two tokens that are not empty"),
            ">" if tokens.peek().is_some() => return Some("`>` may only be the last token"),
            ">" | "*" => {}
            _ if token.contains(['*', '>']) => return Some("a wildcard must be a whole token"),
            _ if token.bytes().all(is_token_byte) => {}
            _ => {
                return Some(
                    "tokens are letters, digits, `_` and `-`, or a wildcard, with dots between them",
                );
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matched(pattern: &str) -> Vec<&'static str> {
        const TOPICS: [&str; 8] = [
            "a",
            "a.b",
            "a.b.c",
            "d.metadata",
            "weft",
            "weft.timing",
            "weft.a.b",
            "Weft.x",
        ];
        let pattern: Pattern = pattern.parse().unwrap();
        TOPICS
            .into_iter()
            .filter(|topic| pattern.matches(&topic.parse().unwrap()))
            .collect()
    }

    #[test]
    fn each_wildcard_stands_for_its_level_and_never_for_wefts_own_topics() {
        assert_eq!(matched("a.*"), ["a.b"]);
        assert_eq!(matched("a.>"), ["a.b", "a.b.c"]);
        assert_eq!(matched("*"), ["a"]);
        assert_eq!(matched("*.metadata"), ["d.metadata"]);
        assert_eq!(matched("*.timing"), [""; 0]);
        assert_eq!(matched(">"), ["a", "a.b", "a.b.c", "d.metadata", "Weft.x"]);
        assert_eq!(matched("weft.*"), ["weft.timing"]);
        assert_eq!(matched("weft.>"), ["weft.timing", "weft.a.b"]);
        assert_eq!(matched("a.b"), ["a.b"]);
    }

    #[test]
    fn misplaced_wildcards_are_refused() {
        for text in [
            "a.>.b",
            "a*",
            "",
            "a..b",
            ".",
            "a.",
            ">.a",
            "**",
            "a b",
            "é.>",
            &"x".repeat(129),
        ] {
            assert_eq!(
                text.parse::<Pattern>().unwrap_err().slug(),
                "pattern-invalid",
                "{text:?}"
            );
        }
    }

    fn token() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("a".to_owned()),
            Just("b".to_owned()),
            Just("weft".to_owned())
        ]
    }

    fn pattern() -> impl Strategy<Value = String> {
        let tokens = prop::collection::vec(prop_oneof![token(), Just("*".to_owned())], 0..4);
        (
            tokens,
            prop_oneof![token(), Just("*".to_owned()), Just(">".to_owned())],
        )
            .prop_map(|(mut tokens, last)| {
                tokens.push(last);
                tokens.join(".")
            })
    }

    proptest! {
        #[test]
        fn what_is_covered_is_matched(wide in pattern(), narrow in pattern(), topic in prop::collection::vec(token(), 1..5)) {
            let (wide, narrow): (Pattern, Pattern) = (wide.parse().unwrap(), narrow.parse().unwrap());
            let topic: Topic = topic.join(".").parse().unwrap();
            if wide.covers(&narrow) && narrow.matches(&topic) {
                prop_assert!(wide.matches(&topic));
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,140}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                prop_assert_eq!(pattern.as_str(), text);
            }
        }
    }
}
