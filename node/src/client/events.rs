//! The stream of events as it comes over a connection of its own.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::exit::Failure;
use crate::http::Connection;
use crate::sse::{Message, Parser};

/// An open stream of events.
pub(crate) struct Events {
    /// The cursor it began after, as the node said.
    pub(crate) from: Option<String>,
    pub(super) body: Incoming,
    pub(super) parser: Parser,
    pub(super) ready: std::vec::IntoIter<Message>,
    /// The stream has its connection to itself, for as long as it lasts.
    pub(super) _connection: Option<Connection>,
}

impl Events {
    /// The next message; none when the node ended the stream or the connection broke.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, Failure> {
        loop {
            if let Some(message) = self.ready.next() {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        let messages = self.parser.push(bytes).map_err(|_| {
                            Failure::Protocol("an event of the stream is too long".to_owned())
                        })?;
                        self.ready = messages.into_iter();
                    }
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}
