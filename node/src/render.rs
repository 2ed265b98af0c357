//! What people see. Text that a task, a label, an event or a peer chose reaches a terminal only through here.
//!
//! Invariant: no function of this file gives out a control character that it was given, but for line ends, tabs and,
//! where asked for, colours. (Tests: below and in `render/log.rs`.)

pub(crate) mod log;
pub(crate) mod time;

use std::fmt::Write as _;

use serde_json::Value;

use crate::duration::human;
use crate::limits::CELL_CHARS_MAX;

/// `text` on one line, its control characters shown as symbols.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(symbol).collect()
}

/// `text` with its lines kept, its other control characters shown as symbols.
pub(crate) fn visible_lines(text: &str) -> String {
    text.chars()
        .map(|c| if c == '\n' || c == '\t' { c } else { symbol(c) })
        .collect()
}

/// A line as it stands after its returns, each of which begins it anew.
pub(crate) fn standing(line: &str) -> &str {
    line.rsplit('\r')
        .find(|state| !state.is_empty())
        .unwrap_or_default()
}

/// Output as it stands, line by line, its control characters shown as symbols.
fn standing_lines(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => visible_lines(standing(line)) + "\n",
            None => visible_lines(standing(line)),
        })
        .collect()
}

/// A JSON document on one line, with what a terminal would act on escaped: JSON itself leaves the C1 controls and those that
/// reorder text as they are.
pub(crate) fn escaped(document: &Value) -> String {
    let mut out = String::new();
    for c in document.to_string().chars() {
        if symbol(c) == c {
            out.push(c);
        } else {
            let _ = write!(out, "\\u{:04x}", c as u32);
        }
    }
    out
}

/// One character as it may stand in a line.
fn symbol(c: char) -> char {
    match c {
        // The Unicode pictures of the control characters stand in their order.
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        // C1 controls act like escapes in some terminals; the others reorder or hide what stands beside them.
        '\u{80}'..='\u{9f}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{2028}'
        | '\u{2029}' => '\u{fffd}',
        c => c,
    }
}

/// One cell of a table: visible, and on a terminal cut where a line would no longer fit.
fn cell(text: &str, cut: bool) -> String {
    let most = if cut { CELL_CHARS_MAX } else { usize::MAX };
    let mut shown: String = text.chars().take(most).map(symbol).collect();
    if cut && text.chars().nth(CELL_CHARS_MAX).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// Rows under their headings, in columns that line up. Nothing for no rows. A file or a program gets every cell whole.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    laid_out(headings, rows, crate::app::on_terminal())
}

fn laid_out(headings: &[&str], rows: &[Vec<String>], cut: bool) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut lines: Vec<Vec<String>> =
        vec![headings.iter().map(|&heading| heading.to_owned()).collect()];
    lines.extend(
        rows.iter()
            .map(|row| row.iter().map(|text| cell(text, cut)).collect()),
    );
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|text| text.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for line in &lines {
        let mut room = 0;
        for (text, width) in line.iter().zip(&widths) {
            let text = text.trim_end();
            let chars = text.chars().count();
            // Only what something follows is filled up: one command of a megabyte must not make every line as long. And by
            // hand, since a width of format! ends at 65535.
            if chars > 0 {
                out.extend(std::iter::repeat_n(' ', room));
                out.push_str(text);
                room = 0;
            }
            room += width - chars + 2;
        }
        out.push('\n');
    }
    out
}

/// The text under `name`, or nothing.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The list under `name`, or none.
pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// A value as a person reads it: text without its quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// How long ago a time was, as of `now`; both in epoch milliseconds. A clock set back makes no negative age.
pub(crate) fn age(then: &Value, now: u64) -> String {
    then.as_u64()
        .map_or_else(|| "-".to_owned(), |then| human(now.saturating_sub(then)))
}

/// How long a grant or token is still good for.
pub(crate) fn validity(row: &Value, now: u64) -> String {
    let expires = row["expiresAt"].as_u64().unwrap_or(0);
    if !row["revokedAt"].is_null() {
        "revoked".to_owned()
    } else if expires <= now {
        "expired".to_owned()
    } else {
        human(expires - now)
    }
}

/// Epoch milliseconds now.
pub(crate) fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// What a task is called: its label, else its command.
pub(crate) fn title(task: &Value) -> &str {
    [text(task, "label"), text(task, "command")]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or("-")
}

/// State and code, as far as they tell more than each other.
pub(crate) fn state(task: &Value) -> String {
    let name = text(task, "state");
    match (name, task["signal"].as_str(), task["exitCode"].as_i64()) {
        ("starting" | "running" | "lost" | "exited", ..) | (_, None, None) => name.to_owned(),
        (_, Some(signal), _) => format!("{name} ({signal})"),
        (_, None, Some(code)) => format!("{name} ({code})"),
    }
}

/// The table of `tasks.list`.
pub(crate) fn tasks(answer: &Value, now: u64, everybody: bool) -> String {
    let rows: Vec<Vec<String>> = list(answer, "tasks")
        .iter()
        .map(|task| {
            let ran = task["finishedAt"].as_u64().unwrap_or(now);
            let mut row = vec![
                text(task, "id").to_owned(),
                state(task),
                plain(&task["lease"]),
                age(&task["startedAt"], now),
                age(&task["startedAt"], ran),
            ];
            if everybody {
                row.push(text(task, "session").to_owned());
            }
            row.push(title(task).to_owned());
            row
        })
        .collect();
    let headings: &[&str] = if everybody {
        &["ID", "STATE", "LEASE", "AGE", "RAN", "SESSION", "TASK"]
    } else {
        &["ID", "STATE", "LEASE", "AGE", "RAN", "TASK"]
    };
    table(headings, &rows)
}

/// Names and values, one a line, the values lined up; what says nothing is left out.
pub(crate) fn fields(value: &Value) -> String {
    let shown: Vec<(&String, String)> = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| {
            !matches!(value, Value::Null | Value::Bool(false))
                && value.as_array().is_none_or(|list| !list.is_empty())
        })
        .map(|(name, value)| (name, visible(&field(name, value))))
        .collect();
    let width = shown.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    shown.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = writeln!(out, "{name:<width$}  {value}");
        out
    })
}

/// A value under its name: what the contract calls `…At` is a time.
fn field(name: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(ms) if name.ends_with("At") => time::utc(ms),
        _ => plain(value),
    }
}

/// The output list of a task's answer: streams with what was kept of them.
pub(crate) fn output(answer: &Value) -> String {
    let streams = list(answer, "output");
    let mut out = String::new();
    for stream in streams {
        let (head, tail) = (text(stream, "head"), text(stream, "tail"));
        if head.is_empty() && tail.is_empty() {
            continue;
        }
        let _ = writeln!(out, "--- {}", visible(text(stream, "stream")));
        out.push_str(&standing_lines(head));
        if let Some(omitted) = stream["omittedBytes"]
            .as_u64()
            .filter(|&omitted| omitted > 0)
        {
            let _ = writeln!(out, "[{omitted} bytes left out]");
        }
        out.push_str(&standing_lines(tail));
        if !out.ends_with('\n') {
            out.push('\n');
        }
    }
    out
}

/// What retention took of a topic before a reader came.
pub(crate) fn gap(gap: &Value) -> String {
    let (count, topic) = (plain(&gap["count"]), text(gap, "topic"));
    format!("{count} events of {topic} are no longer kept")
}

/// One event of the mesh on a line.
pub(crate) fn event(event: &Value) -> String {
    let mut line = format!(
        "{:>6}  {}  {}  {}",
        plain(&event["sequence"]),
        text(event, "topic"),
        text(event, "kind"),
        text(event, "from")
    );
    if event["untrusted"] == true {
        line.push_str("  untrusted");
    }
    for part in [&event["text"], &event["data"]] {
        if !part.is_null() {
            let _ = write!(line, "  {}", plain(part));
        }
    }
    visible(&line) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a hostile label or line of output may hold.
    const HOSTILE: &str = "\x1b]52;c;ZWNobyBoaQ==\x07\x1b[2J\u{9b}2J\u{202e}ok\r\n";

    fn is_harmless(shown: &str) -> bool {
        !shown
            .chars()
            .any(|c| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}')
    }

    #[test]
    fn no_view_lets_a_control_character_through() {
        let task = json!({"id": "t-1", "label": HOSTILE, "state": "running", "lease": "durable", "session": HOSTILE, "startedAt": 5, "command": "x"});
        let answer = json!({"tasks": [task], "output": [{"stream": HOSTILE, "head": HOSTILE, "tail": HOSTILE, "omittedBytes": 3}]});
        let views = [
            tasks(&answer, 9, true),
            fields(&answer["tasks"][0]),
            output(&answer),
            event(
                &json!({"sequence": 1, "topic": "t", "kind": "k", "from": HOSTILE, "text": HOSTILE, "data": {"a": HOSTILE}}),
            ),
            visible(HOSTILE),
            visible_lines(HOSTILE),
        ];
        for view in views {
            assert!(is_harmless(&view), "{view:?}");
            assert!(view.contains("ok"), "{view:?}");
        }
    }

    #[test]
    fn a_document_is_harmless_and_says_the_same() {
        let document = json!({"detail": HOSTILE});
        let shown = escaped(&document);
        assert!(is_harmless(&shown), "{shown:?}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), document);
    }

    #[test]
    fn a_progress_bar_shows_its_last_state() {
        assert_eq!(standing_lines("a\r\n1%\r2%\r\n\n3%\r"), "a\n2%\n\n3%");
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".to_owned(), "bb".to_owned()],
            vec!["ccc".to_owned(), "d".to_owned()],
        ];
        assert_eq!(table(&["X", "Y"], &rows), "X    Y\na    bb\nccc  d\n");
    }

    #[test]
    fn one_long_cell_makes_no_other_line_longer() {
        let long = "x".repeat(2_000_000);
        let rows = vec![
            vec!["a".to_owned(), long.clone()],
            vec!["b".to_owned(), "y ".to_owned()],
        ];
        let shown = laid_out(&["X", "Y"], &rows, false);
        assert_eq!(shown, format!("X  Y\na  {long}\nb  y\n"));
    }

    #[test]
    fn columns_are_cut_for_a_person_alone() {
        let rows = vec![vec!["x".repeat(CELL_CHARS_MAX + 1)]];
        assert!(laid_out(&["X"], &rows, false).contains(&rows[0][0]));
        let cut = laid_out(&["X"], &rows, true);
        assert!(cut.contains('…') && !cut.contains(&rows[0][0]), "{cut}");
    }

    #[test]
    fn a_clock_set_back_shows_no_negative_age() {
        assert_eq!(age(&json!(10_000), 5_000), "0ms");
        assert_eq!(age(&json!(null), 5_000), "-");
    }

    #[test]
    fn a_state_shows_what_ended_the_task() {
        assert_eq!(
            state(&json!({"state": "failed", "exitCode": 3, "signal": null})),
            "failed (3)"
        );
        assert_eq!(
            state(&json!({"state": "killed", "exitCode": 143, "signal": "SIGTERM"})),
            "killed (SIGTERM)"
        );
        assert_eq!(state(&json!({"state": "exited", "exitCode": 0})), "exited");
    }
}
