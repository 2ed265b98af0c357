//! The checks of what callers give that more than one verb needs: one place for each rule and its words.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::limits::NAME_CHARS_MAX;

/// Names of sessions, residents and subscriptions: one token of the topic alphabet.
pub fn name(field: &str, name: &str) -> Result<()> {
    let fits = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if fits {
        Ok(())
    } else {
        Err(Error::invalid(
            field,
            format!("takes 1 to {NAME_CHARS_MAX} characters of A-Z a-z 0-9 _ -"),
        ))
    }
}

/// Short texts for people: labels, descriptions, keys. They are shown in lists of one line each, on terminals too, so none holds
/// a control character.
pub fn text(field: &str, text: Option<&str>, chars_max: usize) -> Result<()> {
    let Some(text) = text else { return Ok(()) };
    if text.is_empty() || text.chars().count() > chars_max {
        return Err(Error::invalid(
            field,
            format!("takes 1 to {chars_max} characters"),
        ));
    }
    match text.chars().find(|letter| letter.is_control()) {
        Some(letter) => Err(Error::invalid(
            field,
            format!(
                "takes one line of text; {} is a control character",
                letter.escape_unicode()
            ),
        )),
        None => Ok(()),
    }
}

/// Numbers.
pub fn within<T: PartialOrd + Display>(
    field: &str,
    value: Option<T>,
    range: RangeInclusive<T>,
) -> Result<()> {
    match value {
        Some(value) if !range.contains(&value) => Err(Error::invalid(
            field,
            format!("takes {} to {}, not {value}", range.start(), range.end()),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_one_line_passes_and_nothing_that_acts_on_a_terminal() {
        for good in ["a", "größer", "日本 build", &"x".repeat(5)] {
            text("label", Some(good), 10).unwrap();
        }
        text("label", None, 1).unwrap();
        for bad in [
            "",
            "a\nb",
            "\x1b[2J",
            "a\tb",
            "\u{7f}",
            "\u{9b}1m",
            "12345678901",
        ] {
            let refused = text("label", Some(bad), 10).unwrap_err().to_string();
            assert!(refused.starts_with("label: takes"), "{refused}");
            assert!(!refused.chars().any(char::is_control), "{refused:?}");
        }
    }

    #[test]
    fn a_number_outside_its_range_is_told_with_both_ends() {
        within("n", Some(3_u64), 1..=3).unwrap();
        within::<u64>("n", None, 1..=3).unwrap();
        let refused = within("after", Some(-1_i64), 0..=9).unwrap_err();
        assert_eq!(refused.to_string(), "after: takes 0 to 9, not -1");
    }
}
