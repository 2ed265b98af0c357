//! What `weft logs` has shown so far, and how the next piece of a stream goes on from there.

use std::io::Write as _;

use super::super::read::decode;
use super::{Logs, Piece, Source};
use crate::app::{App, colour, on_terminal, print_bytes, print_json, say};
use crate::exit::Failure;
use crate::render::log::{Filter, Line};
use crate::render::{now_ms, text, time};

/// Goes back to the beginning of a terminal's line and clears it.
const REWRITE: &str = "\r\x1b[K";

/// All streams that are shown.
pub(super) struct Screen<'a> {
    app: &'a App,
    raw: bool,
    views: Vec<View<'a>>,
}

/// One stream on the screen.
struct View<'a> {
    source: &'a Source,
    filter: Filter,
    line: Line,
    /// Whether each line is begun with a time.
    stamps: bool,
    /// When the line at hand was begun; empty where it is not yet.
    stamp: String,
    /// What a terminal shows of a line that has not ended; none where lines are shown whole only.
    shown: Option<String>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(options: &Logs, app: &'a App, sources: &'a [Source]) -> Self {
        // A person who follows one stream sees a line grow. Of several streams, parts of lines would mix; a file or a program
        // must not get what is written over a moment later.
        let grows = options.follow && on_terminal() && sources.len() == 1 && !options.timestamps;
        let views = sources
            .iter()
            .map(|source| View {
                source,
                filter: Filter::with_returns(colour()),
                line: Line::default(),
                stamps: options.timestamps,
                stamp: String::new(),
                shown: grows.then(String::new),
            })
            .collect();
        Screen {
            app,
            raw: options.raw,
            views,
        }
    }

    pub(super) fn show(&mut self, piece: &Piece) -> Result<(), Failure> {
        if self.app.globals.json {
            return print_json(&piece.record);
        }
        let view = &mut self.views[piece.source];
        if let Some(omitted) = piece.record["omittedBytes"]
            .as_u64()
            .filter(|&omitted| omitted > 0)
        {
            let rest = view.break_line();
            put(view.source, rest.as_bytes())?;
            say(&format!(
                "{}[{omitted} bytes are no longer kept]",
                view.source.prefix
            ));
        }
        if self.raw {
            return put(view.source, &decode(&piece.record)?);
        }
        let seen = if piece.is_old {
            // As wide as a time, so that the lines stay in their column.
            format!("{:<24}", "-")
        } else {
            time::utc(now_ms())
        };
        let shown = view.push(text(&piece.record, "text"), &seen);
        put(view.source, shown.as_bytes())
    }

    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        for view in &mut self.views {
            let rest = view.end() + view.filter.finish();
            put(view.source, rest.as_bytes())?;
        }
        Ok(())
    }
}

impl View<'_> {
    /// What is to be written for the next piece of text, which was `seen` then.
    fn push(&mut self, text: &str, seen: &str) -> String {
        let mut out = String::new();
        for c in self.filter.push(text).chars() {
            if self.stamps && self.stamp.is_empty() {
                seen.clone_into(&mut self.stamp);
            }
            if let Some(line) = self.line.push(c) {
                self.whole(&line, &mut out);
            }
        }
        if let Some(shown) = &mut self.shown {
            grow(shown, self.line.text(), &mut out);
        }
        out
    }

    /// Writes a line that stands.
    fn whole(&mut self, line: &str, out: &mut String) {
        if let Some(shown) = &mut self.shown {
            grow(shown, line, out);
            shown.clear();
            return;
        }
        if self.stamps {
            out.push_str(&std::mem::take(&mut self.stamp));
            out.push_str("  ");
        }
        out.push_str(&self.source.prefix);
        out.push_str(line);
        let is_named = self.stamps || !self.source.prefix.is_empty();
        if is_named && !line.ends_with('\n') {
            out.push('\n');
        }
    }

    /// What is left of a line at the end of its stream.
    fn end(&mut self) -> String {
        let mut out = String::new();
        if let Some(line) = self.line.break_off() {
            self.whole(&line, &mut out);
        }
        out
    }

    /// The same with a line end, since something else follows.
    fn break_line(&mut self) -> String {
        let mut out = String::new();
        if self.line.is_begun()
            && let Some(line) = self.line.push('\n')
        {
            self.whole(&line, &mut out);
        }
        out
    }
}

/// Makes a terminal that shows `shown` of a line show `line`.
fn grow(shown: &mut String, line: &str, out: &mut String) {
    match line.strip_prefix(shown.as_str()) {
        Some(rest) => out.push_str(rest),
        None => out.extend([REWRITE, line]),
    }
    line.clone_into(shown);
}

/// Standard error of a task goes to ours, so that the two can be told apart here as well.
fn put(source: &Source, bytes: &[u8]) -> Result<(), Failure> {
    if source.stream == "stderr" {
        std::io::stderr()
            .lock()
            .write_all(bytes)
            .map_err(Failure::output)
    } else {
        print_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(source: &Source, stamps: bool, grows: bool) -> View<'_> {
        View {
            source,
            filter: Filter::with_returns(false),
            line: Line::default(),
            stamps,
            stamp: String::new(),
            shown: grows.then(String::new),
        }
    }

    #[test]
    fn a_line_has_the_time_at_which_it_was_begun_and_old_ones_have_none() {
        let source = Source::default();
        let mut view = view(&source, true, false);
        assert_eq!(view.push("old\nhalf of", "-"), "-  old\n");
        assert_eq!(
            view.push(" it\nnew\nlast", "NOW"),
            "-  half of it\nNOW  new\n"
        );
        assert_eq!(view.end(), "NOW  last\n");
        assert_eq!(view.end(), "");
    }

    #[test]
    fn a_program_gets_the_last_state_of_a_line_and_a_person_sees_it_grow() {
        let source = Source::default();
        let mut program = view(&source, false, false);
        let mut person = view(&source, false, true);
        let pieces = [" 1%\r 50%\r", "100%", "\nno end"];
        let got: Vec<String> = pieces.iter().map(|piece| program.push(piece, "")).collect();
        assert_eq!(got, ["", "", "100%\n"]);
        assert_eq!(program.end(), "no end");
        let got: Vec<String> = pieces.iter().map(|piece| person.push(piece, "")).collect();
        assert_eq!(got, [" 50%", "\r\x1b[K100%", "\nno end"]);
        assert_eq!(person.end(), "");
    }

    #[test]
    fn a_name_stands_before_each_line_also_before_one_without_end() {
        let source = Source {
            prefix: "build | ".to_owned(),
            ..Source::default()
        };
        let mut view = view(&source, false, false);
        assert_eq!(view.push("a\nb", ""), "build | a\n");
        assert_eq!(view.break_line(), "build | b\n");
        assert_eq!(view.break_line(), "");
    }
}
