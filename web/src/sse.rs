//! The text of an event stream, and where one begins. Pure.

use weft_mesh::{Cursor, Omitted, Page};

use crate::error::Refused;
use crate::limits::RETRY_MS;
use crate::problem;

/// Where a stream begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    /// It goes on after this sequence.
    pub(crate) after: u64,
    /// The asked cursor is of another epoch, or of a store that was further: its reader must be told.
    pub(crate) is_foreign: bool,
}

impl Start {
    /// From the cursor a client names to a place in this store's log. Without one it is the newest; a foreign one begins
    /// with the oldest event kept, so that nothing is passed over.
    pub(crate) fn of(asked: Option<&Cursor>, epoch: &str, newest: u64) -> Self {
        match asked {
            None => Start {
                after: newest,
                is_foreign: false,
            },
            Some(cursor)
                if cursor.epoch.as_deref().unwrap_or(epoch) == epoch
                    && cursor.sequence <= newest =>
            {
                Start {
                    after: cursor.sequence,
                    is_foreign: false,
                }
            }
            Some(_) => Start {
                after: 0,
                is_foreign: true,
            },
        }
    }
}

/// The first block: how soon to come again, and the cursor from which on nothing will be missed.
pub(crate) fn opening(epoch: &str, after: u64) -> String {
    format!("retry: {RETRY_MS}\n{}", heartbeat(epoch, after))
}

/// A block that only moves the client's cursor.
pub(crate) fn heartbeat(epoch: &str, after: u64) -> String {
    format!("id: {epoch}-{after}\n\n")
}

/// The block that tells a reader that it missed something, or that the log is another one.
pub(crate) fn resync(epoch: &str, after: u64, omitted: &[Omitted]) -> String {
    let data = serde_json::json!({"epoch": epoch, "omitted": omitted});
    format!("event: resync\nid: {epoch}-{after}\ndata: {data}\n\n")
}

/// The last block of a stream that the node ends, with the reason as a problem document.
pub(crate) fn end(reason: &Refused) -> String {
    format!("event: end\ndata: {}\n\n", problem::document(reason).1)
}

/// The blocks of a page's events.
pub(crate) fn events(page: &Page, out: &mut Vec<u8>) -> serde_json::Result<()> {
    for event in &page.events {
        out.extend_from_slice(format!("id: {}-{}\ndata: ", page.epoch, event.sequence).as_bytes());
        let start = out.len();
        serde_json::to_writer(&mut *out, event)?;
        // Inside of JSON a line break can only be white space between its parts; here it would end the field.
        for byte in &mut out[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        out.extend_from_slice(b"\n\n");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::RawValue;
    use weft_mesh::Event;

    use super::*;

    #[test]
    fn a_stream_begins_where_its_client_stood() {
        let start = |cursor: Option<&str>| {
            let cursor = cursor.map(|text| text.parse().unwrap());
            let Start { after, is_foreign } = Start::of(cursor.as_ref(), "e1", 40);
            (after, is_foreign)
        };
        assert_eq!(start(None), (40, false));
        assert_eq!(start(Some("0")), (0, false));
        assert_eq!(start(Some("7")), (7, false));
        assert_eq!(start(Some("e1-7")), (7, false));
        assert_eq!(start(Some("e1-40")), (40, false));
        assert_eq!(start(Some("e0-7")), (0, true));
        assert_eq!(start(Some("41")), (0, true));
    }

    #[test]
    fn blocks_have_the_promised_form() {
        assert_eq!(opening("e", 3), "retry: 1000\nid: e-3\n\n");
        assert_eq!(heartbeat("e", 3), "id: e-3\n\n");
        assert_eq!(
            resync("e", 0, &[]),
            "event: resync\nid: e-0\ndata: {\"epoch\":\"e\",\"omitted\":[]}\n\n"
        );
        let last = end(&weft_actors::error::Error::NodeStopping.into());
        assert!(
            last.starts_with("event: end\ndata: {")
                && last.contains("urn:weft:problem:node-stopping"),
            "{last}"
        );
    }

    #[test]
    fn an_event_is_one_line_whatever_its_data() {
        let event = json!({"id": "i", "sequence": 9, "topic": "a", "kind": "message", "from": "f", "to": null,
            "text": "a\nb\r", "data": null, "createdAt": 1, "origin": "local", "untrusted": false, "grantId": null, "scheduled": null});
        let mut event: Event = serde_json::from_value(event).unwrap();
        event.data = Some(RawValue::from_string("{\r\n \"a\": [\n1]}".into()).unwrap());
        let page = Page {
            events: vec![event],
            epoch: "e".into(),
            omitted: vec![],
            next: 9,
            more: false,
        };
        let mut out = Vec::new();
        events(&page, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let data = text
            .strip_prefix("id: e-9\ndata: ")
            .unwrap()
            .strip_suffix("\n\n")
            .unwrap();
        assert!(!data.contains(['\n', '\r']));
        let value: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(
            (&value["text"], &value["data"]["a"][0]),
            (&json!("a\nb\r"), &json!(1))
        );
    }
}
