//! A task's output on its way to a person: text and colours pass, everything else that a terminal would act on does
//! not. Works on a stream, wherever it was cut.

use crate::limits::{ESCAPE_CHARS_MAX, LINE_BYTES_MAX};

/// Where in an escape sequence the filter is.
#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// In plain text.
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and intermediate bytes, such as a choice of character set.
    Intermediate,
    /// In a control sequence, whose parameters are kept in case it is a colour.
    Sequence(String),
    /// In a string for the terminal itself: a title, a link, the clipboard.
    String {
        /// Characters swallowed so far.
        chars: usize,
        /// Whether ESC came, which a backslash makes an end.
        escape: bool,
    },
}

/// What becomes of a return alone.
#[derive(Debug, PartialEq, Eq)]
enum Returns {
    /// It ends the line.
    EndLines,
    /// It is handed on, to a reader that knows what it does to a line.
    Pass,
}

/// A filter for one stream.
#[derive(Debug)]
pub(crate) struct Filter {
    colours: bool,
    returns: Returns,
    state: State,
    after_return: bool,
    coloured: bool,
}

impl Filter {
    /// Keeps colours, or drops them too.
    pub(crate) fn new(colours: bool) -> Self {
        Filter {
            colours,
            returns: Returns::EndLines,
            state: State::Text,
            after_return: false,
            coloured: false,
        }
    }

    /// The same with returns handed on instead of made line ends: for a [`Line`], never for a terminal.
    pub(crate) fn with_returns(colours: bool) -> Self {
        Filter {
            returns: Returns::Pass,
            ..Filter::new(colours)
        }
    }

    /// What may be shown of the next piece of text.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.take(c, &mut out);
        }
        out
    }

    /// What must follow the last piece, so that the reader's own colours come back.
    pub(crate) fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.coloured) {
            "\x1b[0m"
        } else {
            ""
        }
    }

    fn take(&mut self, c: char, out: &mut String) {
        match std::mem::take(&mut self.state) {
            State::Text => self.text(c, out),
            State::Escape => match c {
                '[' => self.state = State::Sequence(String::new()),
                ']' | 'P' | 'X' | '^' | '_' => {
                    // What was meant for the terminal itself leaves a trace where it stood.
                    out.push('␛');
                    self.state = State::String {
                        chars: 0,
                        escape: false,
                    };
                }
                '\x20'..='\x2f' => self.state = State::Intermediate,
                '\x30'..='\x7e' => {}
                other => self.text(other, out),
            },
            State::Intermediate => match c {
                '\x20'..='\x2f' => self.state = State::Intermediate,
                '\x30'..='\x7e' => {}
                other => self.text(other, out),
            },
            State::Sequence(parameters) => self.sequence(parameters, c, out),
            State::String { chars, escape } => self.string(chars, escape, c, out),
        }
    }

    fn text(&mut self, c: char, out: &mut String) {
        let after_return = std::mem::take(&mut self.after_return);
        match c {
            '\x1b' => self.state = State::Escape,
            '\r' if self.returns == Returns::Pass => out.push('\r'),
            '\r' => {
                // A return alone would let a line be written over; each state of a progress bar becomes a line.
                self.after_return = true;
                out.push('\n');
            }
            '\n' if after_return => {}
            '\n' | '\t' => out.push(c),
            c => out.push(super::symbol(c)),
        }
    }

    fn sequence(&mut self, mut parameters: String, c: char, out: &mut String) {
        match c {
            '\x30'..='\x3f' if parameters.len() < ESCAPE_CHARS_MAX => {
                parameters.push(c);
                self.state = State::Sequence(parameters);
            }
            'm' if self.colours
                && parameters
                    .chars()
                    .all(|c| c.is_ascii_digit() || c == ';' || c == ':') =>
            {
                self.coloured = true;
                out.push_str("\x1b[");
                out.push_str(&parameters);
                out.push('m');
            }
            // Intermediate bytes make it something other than a colour.
            '\x20'..='\x2f' if parameters.len() < ESCAPE_CHARS_MAX => {
                self.state = State::Sequence(parameters + "!");
            }
            '\x40'..='\x7e' => {}
            other => self.text(other, out),
        }
    }

    fn string(&mut self, chars: usize, escape: bool, c: char, out: &mut String) {
        match c {
            '\x07' | '\u{9c}' => {}
            '\\' if escape => {}
            // A string that is never closed must not hide what comes after it.
            '\n' => self.text(c, out),
            _ if chars >= ESCAPE_CHARS_MAX => self.text(c, out),
            '\x1b' => {
                self.state = State::String {
                    chars: chars + 1,
                    escape: true,
                }
            }
            _ => {
                self.state = State::String {
                    chars: chars + 1,
                    escape: false,
                }
            }
        }
    }
}

/// One line as it stands after its returns: each begins it anew, so that a progress bar shows its last state alone.
#[derive(Debug, Default)]
pub(crate) struct Line {
    text: String,
    /// A return came, and nothing after it yet.
    returned: bool,
}

impl Line {
    /// Takes the next character. A line end gives the whole line, with its end; a line that is longer than any that a person
    /// reads is given in parts.
    pub(crate) fn push(&mut self, c: char) -> Option<String> {
        match c {
            '\n' => {
                self.returned = false;
                let mut whole = std::mem::take(&mut self.text);
                whole.push('\n');
                return Some(whole);
            }
            '\r' => self.returned = true,
            c => {
                if std::mem::take(&mut self.returned) {
                    self.text = colours_of(&self.text);
                }
                self.text.push(c);
                if self.text.len() >= LINE_BYTES_MAX {
                    return self.break_off();
                }
            }
        }
        None
    }

    /// What stands of a line that has not ended.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether something stands of a line that has not ended.
    pub(crate) fn is_begun(&self) -> bool {
        !self.text.is_empty()
    }

    /// Gives what stands of a line, for one that will not end.
    pub(crate) fn break_off(&mut self) -> Option<String> {
        self.returned = false;
        let text = std::mem::take(&mut self.text);
        (!text.is_empty()).then_some(text)
    }
}

/// The colours set in a text that is written over: they hold for what comes after it.
fn colours_of(text: &str) -> String {
    let sequences = text.split('\x1b').skip(1);
    let colours = sequences.filter_map(|rest| rest.split_once('m'));
    colours.fold(String::new(), |mut kept, (parameters, _)| {
        kept.extend(["\x1b", parameters, "m"]);
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that come of a text, the last one broken off.
    fn lines(text: &str) -> Vec<String> {
        let mut line = Line::default();
        let shown = Filter::with_returns(true).push(text);
        let mut lines: Vec<String> = shown.chars().filter_map(|c| line.push(c)).collect();
        lines.extend(line.break_off());
        lines
    }

    #[test]
    fn a_line_shows_its_final_state() {
        assert_eq!(lines("a\r\nb\n\n"), ["a\n", "b\n", "\n"]);
        assert_eq!(lines(" 10%\r 50%\r100%\r\ndone"), ["100%\n", "done"]);
        assert_eq!(lines("5%\r"), ["5%"]);
        // A colour that was set or put back in what is gone still holds.
        assert_eq!(lines("\x1b[31m1%\r\x1b[0m2%\n"), ["\x1b[31m\x1b[0m2%\n"]);
    }

    fn shown(colours: bool, text: &str) -> String {
        Filter::new(colours).push(text)
    }

    #[test]
    fn colours_pass_and_nothing_else_acts() {
        let hostile = "\x1b]52;c;ZWNobyBoaQ==\x07\x1b[2J\x1b]0;gotcha\x07ok \x1b[1;31mred\x1b[0m\x1b[?25l\x1b(B\x1bPq\x1b\\\u{9b}2J\x1b[>1m\x1b[1!m\n";
        assert_eq!(
            shown(true, hostile),
            "␛␛ok \x1b[1;31mred\x1b[0m␛\u{fffd}2J\n"
        );
        assert_eq!(shown(false, hostile), "␛␛ok red␛\u{fffd}2J\n");
    }

    #[test]
    fn it_does_not_matter_where_the_stream_is_cut() {
        let text = "a\x1b]0;t\x1b\\b\x1b[31mc\r\nd\re\x1b[Kf\n";
        let whole = shown(true, text);
        for cut in 0..=text.len() {
            let mut filter = Filter::new(true);
            let mut got = filter.push(&text[..cut]);
            got.push_str(&filter.push(&text[cut..]));
            assert_eq!(got, whole, "cut at {cut}");
        }
    }

    #[test]
    fn an_escape_that_is_never_closed_hides_no_later_line() {
        assert_eq!(shown(false, "\x1b]0;never closed\nnext\n"), "␛\nnext\n");
        let long = format!("\x1b]0;{}end\n", "x".repeat(ESCAPE_CHARS_MAX));
        assert!(shown(false, &long).ends_with("end\n"));
    }

    #[test]
    fn colours_are_given_back_at_the_end() {
        let mut filter = Filter::new(true);
        assert_eq!(filter.finish(), "");
        filter.push("\x1b[31mred");
        assert_eq!(filter.finish(), "\x1b[0m");
    }
}
