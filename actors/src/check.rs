//! The checks of what callers give that more than one verb needs: one place for each rule and its words.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::limits::{NAME_CHARS_MAX, TERMINAL_COLS, TERMINAL_ROWS};

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

/// Short texts: labels, descriptions, keys. What they hold is data: whoever shows one makes it harmless.
pub fn text(field: &str, text: Option<&str>, chars_max: usize) -> Result<()> {
    match text {
        Some(text) if text.is_empty() || text.chars().count() > chars_max => Err(Error::invalid(
            field,
            format!("takes 1 to {chars_max} characters"),
        )),
        _ => Ok(()),
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

/// Columns and rows of a terminal.
pub fn terminal_size(field: &str, (cols, rows): (u16, u16)) -> Result<()> {
    within(&format!("{field}[0]"), Some(cols), TERMINAL_COLS)?;
    within(&format!("{field}[1]"), Some(rows), TERMINAL_ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_counted_in_characters() {
        for good in ["a", "größer", "日本 build", "a\nb"] {
            text("label", Some(good), 10).unwrap();
        }
        text("label", None, 1).unwrap();
        for bad in ["", "12345678901"] {
            let refused = text("label", Some(bad), 10).unwrap_err().to_string();
            assert_eq!(refused, "label: takes 1 to 10 characters");
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
