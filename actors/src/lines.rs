//! From bytes to matching lines, in bounded memory whatever a line's length. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::limits::{LINE_CHARS_MAX, WATCH_LINES_MAX};

/// A line that matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Line {
    /// Where it begins, in bytes since launch.
    pub offset: u64,
    /// Its first 2048 characters.
    pub text: String,
}

/// Finds the lines that hold a literal. It must not matter where the stream was cut, so the end of each piece is kept as far as
/// a match could begin in it.
#[derive(Debug)]
pub struct LineScanner {
    literal: Vec<u8>,
    /// The offset of the next byte to push.
    position: u64,
    /// Where the line at hand begins.
    line: u64,
    /// Its first bytes, enough for the characters that are shown.
    head: Vec<u8>,
    /// Its last bytes, one fewer than the literal has.
    tail: Vec<u8>,
    matched: bool,
    found: Vec<Line>,
    /// Bytes that came when the answer was full: not looked at, to be read again.
    unread: bool,
}

const HEAD_BYTES: usize = 4 * LINE_CHARS_MAX;

impl LineScanner {
    /// A scanner for `literal` (not empty) that begins at `offset`.
    pub fn new(literal: Vec<u8>, offset: u64) -> Self {
        LineScanner {
            literal,
            position: offset,
            line: offset,
            head: Vec::new(),
            tail: Vec::new(),
            matched: false,
            found: Vec::new(),
            unread: false,
        }
    }

    /// The offset of the next byte to push.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where a later scan goes on: the beginning of the line at hand.
    pub fn cursor(&self) -> u64 {
        self.line
    }

    /// Whether an answer's worth of lines was found.
    pub fn is_full(&self) -> bool {
        self.found.len() >= WATCH_LINES_MAX
    }

    /// Whether bytes were pushed that it did not look at, being full.
    pub fn has_unread(&self) -> bool {
        self.unread
    }

    /// The lines found so far.
    pub fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.found)
    }

    /// Bytes up to `offset` are not to be had: the line at hand is given up, and what follows begins a new one.
    pub fn skip_to(&mut self, offset: u64) {
        self.position = offset;
        self.begin_line(offset);
    }

    /// The next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.is_full() {
                self.unread = true;
                // The rest is read again from the cursor.
                self.position = self.line;
                return;
            }
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                self.extend(rest);
                self.position += rest.len() as u64;
                return;
            };
            self.extend(&rest[..end]);
            self.position += end as u64 + 1;
            self.end_line();
            rest = &rest[end + 1..];
        }
    }

    /// No more bytes will come: an unfinished line is a line.
    pub fn finish(&mut self) {
        if self.position > self.line {
            self.end_line();
        }
    }

    fn extend(&mut self, piece: &[u8]) {
        let room = HEAD_BYTES.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..room]);
        if self.matched {
            return;
        }
        // Across the cut: the kept end with just as much of the piece as could finish a match that began in it.
        let overlap = self.literal.len() - 1;
        let mut joint = std::mem::take(&mut self.tail);
        joint.extend_from_slice(&piece[..overlap.min(piece.len())]);
        self.matched = contains(&joint, &self.literal) || contains(piece, &self.literal);
        if piece.len() >= overlap {
            joint = piece[piece.len() - overlap..].to_vec();
        } else {
            joint.drain(..joint.len().saturating_sub(overlap));
        }
        self.tail = joint;
    }

    fn end_line(&mut self) {
        if self.matched {
            let text = String::from_utf8_lossy(&self.head);
            // A progress bar's line is its last state, and a CR before the newline is none.
            let text: String = text
                .trim_end_matches('\r')
                .chars()
                .take(LINE_CHARS_MAX)
                .collect();
            self.found.push(Line {
                offset: self.line,
                text,
            });
        }
        self.begin_line(self.position);
    }

    fn begin_line(&mut self, at: u64) {
        self.line = at;
        self.head.clear();
        self.tail.clear();
        self.matched = false;
        self.unread = false;
    }
}

fn contains(bytes: &[u8], literal: &[u8]) -> bool {
    bytes.len() >= literal.len() && bytes.windows(literal.len()).any(|window| window == literal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(literal: &str, pieces: &[&[u8]]) -> Vec<(u64, String)> {
        let mut scanner = LineScanner::new(literal.as_bytes().to_vec(), 0);
        for piece in pieces {
            scanner.push(piece);
        }
        scanner.finish();
        scanner
            .take_lines()
            .into_iter()
            .map(|line| (line.offset, line.text))
            .collect()
    }

    #[test]
    fn lines_are_found_at_their_offsets() {
        assert_eq!(
            scan("b", &[b"abc\nxyz\nb\n"]),
            [(0, "abc".into()), (8, "b".into())]
        );
        assert_eq!(
            scan("TAIL", &[&vec![b'x'; 5_000_000], b"\nTAIL\n"]),
            [(5_000_001, "TAIL".into())]
        );
    }

    #[test]
    fn an_unfinished_line_counts_at_the_end_only() {
        let mut scanner = LineScanner::new(b"end".to_vec(), 0);
        scanner.push(b"the end");
        assert!(scanner.take_lines().is_empty());
        assert_eq!(scanner.cursor(), 0);
        scanner.finish();
        assert_eq!(scanner.take_lines().len(), 1);
    }

    #[test]
    fn a_full_answer_stops_at_a_line() {
        let mut scanner = LineScanner::new(b"x".to_vec(), 0);
        scanner.push("x\n".repeat(100).as_bytes());
        assert_eq!(scanner.take_lines().len(), WATCH_LINES_MAX);
        assert_eq!(scanner.cursor(), 2 * WATCH_LINES_MAX as u64);
        assert_eq!(scanner.position(), scanner.cursor());
        assert!(scanner.has_unread());
    }

    #[test]
    fn what_is_gone_ends_the_line() {
        let mut scanner = LineScanner::new(b"ab".to_vec(), 0);
        scanner.push(b"a");
        scanner.skip_to(100);
        scanner.push(b"b\nab\n");
        scanner.finish();
        assert_eq!(
            scanner.take_lines(),
            [Line {
                offset: 102,
                text: "ab".into()
            }]
        );
    }

    proptest! {
        #[test]
        fn no_cut_changes_what_is_found(text in "[ab\n]{0,60}", literal in "[ab]{1,4}", cuts in proptest::collection::vec(0_usize..60, 0..6)) {
            let whole = scan(&literal, &[text.as_bytes()]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&whole, &scan(&literal, &pieces));
            let expected: usize = text.split('\n').filter(|line| line.contains(&literal)).count();
            prop_assert_eq!(whole.len(), expected.min(WATCH_LINES_MAX));
        }
    }
}
