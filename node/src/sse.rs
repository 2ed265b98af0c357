//! The framing of server-sent events: bytes in, whole events out. Knows nothing of where they come from.

use crate::limits::SSE_LINE_BYTES_MAX;

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its name; empty for a plain one.
    pub(crate) name: String,
    /// Its data; empty for a block that only moves the cursor.
    pub(crate) data: String,
    /// The cursor after it; empty where it carries none.
    pub(crate) id: String,
}

/// Takes a stream apart, however it was cut into pieces.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    after_return: bool,
    has_data: bool,
    message: Message,
}

/// A line longer than any event can be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Parser {
    /// Takes the next bytes and gives the messages that they complete, in order.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Message>, TooLong> {
        let mut whole = Vec::new();
        for &byte in bytes {
            // A line ends by LF, CR or both together.
            let ends = byte == b'\r' || (byte == b'\n' && !self.after_return);
            let skipped = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            if ends {
                let line = std::mem::take(&mut self.line);
                whole.extend(self.end_line(&String::from_utf8_lossy(&line)));
            } else if !skipped {
                if self.line.len() >= SSE_LINE_BYTES_MAX {
                    return Err(TooLong);
                }
                self.line.push(byte);
            }
        }
        Ok(whole)
    }

    fn end_line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let empty =
                !self.has_data && self.message.id.is_empty() && self.message.name.is_empty();
            self.has_data = false;
            let message = std::mem::take(&mut self.message);
            return (!empty).then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.message.name),
            "id" if !value.contains('\0') => value.clone_into(&mut self.message.id),
            "data" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.has_data = true;
                self.message.data.push_str(value);
            }
            // Comments, `retry` and fields of a later day.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\nretry: 500\n\nid: e-1\nevent: message\ndata: {\"a\":\ndata: \"ü\"}\r\n\r\nid: e-2\n\nevent: resync\ndata:x\n\n";

    fn expected() -> Vec<Message> {
        let message = |name: &str, data: &str, id: &str| Message {
            name: name.into(),
            data: data.into(),
            id: id.into(),
        };
        vec![
            message("message", "{\"a\":\n\"ü\"}", "e-1"),
            message("", "", "e-2"),
            message("resync", "x", ""),
        ]
    }

    #[test]
    fn messages_come_whole_wherever_the_stream_is_cut() {
        for cut in 0..=STREAM.len() {
            let mut parser = Parser::default();
            let mut got = parser.push(&STREAM.as_bytes()[..cut]).unwrap();
            got.extend(parser.push(&STREAM.as_bytes()[cut..]).unwrap());
            assert_eq!(got, expected(), "cut at {cut}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut parser = Parser::default();
        let line = vec![b'x'; SSE_LINE_BYTES_MAX];
        assert_eq!(parser.push(&line), Ok(vec![]));
        assert_eq!(parser.push(b"x"), Err(TooLong));
    }
}
