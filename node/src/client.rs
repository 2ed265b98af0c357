//! A client of the home's node: calls of actions, and the stream of events.
//!
//! Where a node cannot be reached one is started, once; where a connection breaks before the first byte of an answer
//! the request is sent once more. That is safe because changing calls carry a `requestId`, and events an id.

use std::io;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use serde_json::Value;
use weft_actors::home::Home;
use weft_web::limits::BODY_BYTES_MAX;

use crate::autostart::Starter;
use crate::exit::Failure;
use crate::http::{Connection, body_of};
use crate::limits::SENDS_MAX;
use crate::sse::{Message, Parser};

/// Whether sending a request twice can do something twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// It reads, or the node knows it again.
    Safe,
    /// Nothing would recognise it.
    Unsafe,
}

/// One request before it meets a connection.
struct Draft<'a> {
    method: Method,
    path: String,
    bearer: Option<&'a str>,
    last_event_id: Option<&'a str>,
    body: Bytes,
    repeat: Repeat,
}

/// A client of one home, acting as one owner session.
pub(crate) struct Client {
    home: Home,
    session: Option<String>,
    starter: Option<Starter>,
    connection: Option<Connection>,
}

impl Client {
    /// A client that starts a node with `starter` where none answers, or with none fails then.
    pub(crate) fn new(home: Home, session: Option<String>, starter: Option<Starter>) -> Self {
        Client {
            home,
            session,
            starter,
            connection: None,
        }
    }

    /// The home it speaks to.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Another client of the same home on a connection of its own.
    pub(crate) fn another(&self) -> Client {
        Client::new(
            self.home.clone(),
            self.session.clone(),
            self.starter.clone(),
        )
    }

    /// Calls an action that changes nothing.
    pub(crate) async fn read(&mut self, reference: &str, input: Value) -> Result<Value, Failure> {
        self.call(reference, &input, Repeat::Safe).await
    }

    /// Calls an action that waits for something to happen, and goes on waiting where its node ends meanwhile.
    pub(crate) async fn wait(&mut self, reference: &str, input: Value) -> Result<Value, Failure> {
        loop {
            match self.call(reference, &input, Repeat::Safe).await {
                Err(failure) if failure.is_refusal("node-stopping") => {
                    // The node closes what it has answered. Asking again before that would only ask the same node.
                    self.closed().await;
                }
                other => return other,
            }
        }
    }

    /// Calls an action that changes something, under a request id of its own.
    pub(crate) async fn change(
        &mut self,
        reference: &str,
        mut input: Value,
    ) -> Result<Value, Failure> {
        input["requestId"] = crate::ids::ordered()
            .map_err(|error| Failure::io("a request id", error))?
            .into();
        self.call(reference, &input, Repeat::Safe).await
    }

    /// Calls an action as it was written by a person, who may have given it a request id.
    pub(crate) async fn bare(&mut self, reference: &str, input: &Value) -> Result<Value, Failure> {
        let repeat = if input.get("requestId").is_some() {
            Repeat::Safe
        } else {
            Repeat::Unsafe
        };
        self.call(reference, input, repeat).await
    }

    /// Posts to a topic with a grant. The body carries the event's id, so a repeat is known again.
    pub(crate) async fn post(
        &mut self,
        topic: &str,
        token: &str,
        body: &Value,
    ) -> Result<Value, Failure> {
        let draft = Draft {
            method: Method::POST,
            path: format!("/v1/topics/{topic}/events"),
            bearer: Some(token),
            last_event_id: None,
            body: Bytes::from(body.to_string()),
            repeat: Repeat::Safe,
        };
        decode(&body_of(self.exchange(&draft).await?).await?)
    }

    async fn call(
        &mut self,
        reference: &str,
        input: &Value,
        repeat: Repeat,
    ) -> Result<Value, Failure> {
        let draft = Draft {
            method: Method::POST,
            path: format!("/v1/call/{reference}"),
            bearer: None,
            last_event_id: None,
            body: Bytes::from(input.to_string()),
            repeat,
        };
        decode(&body_of(self.exchange(&draft).await?).await?)
    }

    /// Opens the stream of events that match `topics`, after the cursor.
    pub(crate) async fn events(
        &mut self,
        topics: &[String],
        after: Option<&str>,
        last_event_id: Option<&str>,
    ) -> Result<Events, Failure> {
        let mut path = format!("/v1/events?topics={}", encode(&topics.join(",")));
        if let Some(after) = after {
            path.push_str("&after=");
            path.push_str(&encode(after));
        }
        let draft = Draft {
            method: Method::GET,
            path,
            bearer: None,
            last_event_id,
            body: Bytes::new(),
            repeat: Repeat::Safe,
        };
        let response = self.exchange(&draft).await?;
        if !response.status().is_success() {
            body_of(response).await?;
            return Err(Failure::Protocol(
                "a stream was refused without a reason".to_owned(),
            ));
        }
        let from = response
            .headers()
            .get("weft-replay-from")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        Ok(Events {
            from,
            body: response.into_body(),
            parser: Parser::default(),
            ready: Vec::new().into_iter(),
            _connection: self.connection.take(),
        })
    }

    /// One request and the head of its answer, over a cut and a start of the node.
    async fn exchange(&mut self, draft: &Draft<'_>) -> Result<Response<Incoming>, Failure> {
        bounded(&draft.body)?;
        let mut sends = 0;
        loop {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            sends += 1;
            match connection.send(self.request(draft)?).await {
                Ok(response) => {
                    self.connection = Some(connection);
                    return Ok(response);
                }
                // A request that hyper gave back never left this process.
                Err(error)
                    if sends < SENDS_MAX
                        && (draft.repeat == Repeat::Safe || error.is_canceled()) => {}
                Err(error) => return Err(Failure::Cut(words(&error))),
            }
        }
    }

    /// Returns when the node has closed the connection of the last call: after a stop, when it is gone.
    pub(crate) async fn closed(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.closed().await;
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        match Connection::unix(&self.home.root).await {
            Ok(connection) => Ok(connection),
            Err(error) if nobody_listens(&error) => {
                let no_node = |reason: String| Failure::NoNode {
                    home: self.home.root.clone(),
                    reason,
                };
                let Some(starter) = &self.starter else {
                    return Err(no_node("none runs".to_owned()));
                };
                starter.start(&self.home).map_err(no_node)?;
                Connection::unix(&self.home.root)
                    .await
                    .map_err(|error| no_node(format!("it was started, yet {error}")))
            }
            Err(error) => Err(Failure::NoNode {
                home: self.home.root.clone(),
                reason: error.to_string(),
            }),
        }
    }

    fn request(&self, draft: &Draft<'_>) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(draft.method.clone())
            .uri(&draft.path)
            .header(HOST, "localhost");
        if draft.method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        // A grant speaks for itself: beside it a session would be a second, weaker claim.
        if let Some(token) = draft.bearer {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        } else if let Some(session) = &self.session {
            request = request.header("weft-session", session);
        }
        if let Some(id) = draft.last_event_id {
            request = request.header("last-event-id", id);
        }
        // Not the library's error: it could quote a token.
        request.body(Full::new(draft.body.clone())).map_err(|_| {
            Failure::Usage("a name or token holds characters that no request can carry".to_owned())
        })
    }
}

/// Nobody is behind the socket: it is not there, or its owner died.
pub(crate) fn nobody_listens(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// A node refuses a longer body before it has read it, and closes: whoever still writes may find the connection broken
/// instead of a reason.
fn bounded(body: &Bytes) -> Result<(), Failure> {
    if body.len() <= BODY_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "this call takes {} bytes and a node takes {BODY_BYTES_MAX}; a command's words and environment count, what it reads from a file does not",
        body.len()
    )))
}

fn decode(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::Protocol(error.to_string()))
}

/// hyper's own words name the layer; the source names what happened.
fn words(error: &hyper::Error) -> String {
    std::error::Error::source(error)
        .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Everything but the plainest characters escaped, for a query string.
pub(crate) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut out, byte| {
            if byte.is_ascii_alphanumeric() || b"-_.~*,".contains(&byte) {
                out.push(char::from(byte));
            } else {
                let _ = write!(out, "%{byte:02X}");
            }
            out
        })
}

/// An open stream of events.
pub(crate) struct Events {
    /// The cursor it began after, as the node said.
    pub(crate) from: Option<String>,
    body: Incoming,
    parser: Parser,
    ready: std::vec::IntoIter<Message>,
    /// The stream has its connection to itself, for as long as it lasts.
    _connection: Option<Connection>,
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

#[cfg(test)]
mod tests;
