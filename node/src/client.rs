//! A client of the home's node: calls of actions, and the stream of events.
//!
//! Where a node cannot be reached one is started, once; where a connection breaks the request is sent again. That is safe
//! because most calls only look, changing calls carry a `requestId`, and events an id.

mod events;

use std::io;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use serde_json::Value;
use weft_actors::home::Home;
use weft_web::limits::BODY_BYTES_MAX;

use crate::app::say;
use crate::autostart::Starter;
use crate::exit::Failure;
use crate::http::{self, Connection, body_of};
use crate::limits::{CUT_SOON_MS, CUTS_MAX, NODE_GONE_MS, NODE_STOP_MS, SILENT_MS, WAIT_MS_UNSAID};
use crate::sse::Parser;

pub(crate) use events::Events;

/// Whether sending a request twice can do something twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// It only looks.
    Looks,
    /// It changes something, and the node knows it again.
    Known,
    /// It may change something, and nothing would recognise it.
    Unknown,
}

/// How often a request was cut off: in all, and in a row soon after it was sent.
struct Cuts {
    any: bool,
    soon: u32,
    sent: Instant,
}

impl Cuts {
    fn none() -> Self {
        Cuts {
            any: false,
            soon: 0,
            sent: Instant::now(),
        }
    }

    /// Counts one more cut. A wait that lasted before it was cut met another node's end; only cuts in a row mean that asking
    /// is what ends the node.
    fn are_too_many(&mut self) -> bool {
        if self.sent.elapsed() > Duration::from_millis(CUT_SOON_MS) {
            self.soon = 0;
        }
        self.soon += 1;
        self.soon >= CUTS_MAX
    }
}

/// One request before it meets a connection.
struct Draft<'a> {
    method: Method,
    path: String,
    bearer: Option<&'a str>,
    last_event_id: Option<&'a str>,
    body: Bytes,
    /// The id that the node knows a changing request by.
    request_id: Option<&'a str>,
    repeat: Repeat,
    /// How long its answer may rightly take; none where nobody can tell.
    takes_ms: Option<u64>,
}

impl Draft<'_> {
    /// What to say of a request that may have taken effect: never less than the id to ask by.
    fn unknown(&self, reason: &impl ToString) -> Failure {
        Failure::Unknown {
            reason: reason.to_string(),
            request_id: self.request_id.map(str::to_owned),
        }
    }

    /// The failure to reach a node, as it is for a change that had been sent before.
    fn after(&self, cuts: &Cuts, failure: Failure) -> Failure {
        match self.repeat {
            Repeat::Known | Repeat::Unknown if cuts.any => self.unknown(&failure),
            _ => failure,
        }
    }
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
        self.call(reference, &input, Repeat::Looks, Some(0)).await
    }

    /// Calls an action that waits for something to happen, and goes on waiting where its node ends meanwhile.
    pub(crate) async fn wait(&mut self, reference: &str, input: Value) -> Result<Value, Failure> {
        let wait_ms = ["waitMs", "timeoutMs"]
            .iter()
            .find_map(|name| input[name].as_u64())
            .unwrap_or(WAIT_MS_UNSAID);
        loop {
            let answer = self.call(reference, &input, Repeat::Looks, Some(wait_ms));
            match answer.await {
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
        // The longest that a change takes is the stop of a tree that does not listen, or a wait that it names.
        let named = ["graceMs", "waitMs"]
            .iter()
            .find_map(|name| input[name].as_u64());
        let takes_ms = NODE_STOP_MS.saturating_add(named.unwrap_or(0));
        self.call(reference, &input, Repeat::Known, Some(takes_ms))
            .await
    }

    /// Calls an action as it was written by a person, who may have given it a request id.
    pub(crate) async fn bare(&mut self, reference: &str, input: &Value) -> Result<Value, Failure> {
        let repeat = if input.get("requestId").is_some() {
            Repeat::Known
        } else {
            Repeat::Unknown
        };
        self.call(reference, input, repeat, None).await
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
            request_id: None,
            repeat: Repeat::Known,
            takes_ms: Some(0),
        };
        self.answer(&draft).await
    }

    async fn call(
        &mut self,
        reference: &str,
        input: &Value,
        repeat: Repeat,
        takes_ms: Option<u64>,
    ) -> Result<Value, Failure> {
        let draft = Draft {
            method: Method::POST,
            path: format!("/v1/call/{reference}"),
            bearer: None,
            last_event_id: None,
            body: Bytes::from(input.to_string()),
            request_id: input["requestId"].as_str(),
            repeat,
            takes_ms,
        };
        self.answer(&draft).await
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
            request_id: None,
            repeat: Repeat::Looks,
            takes_ms: Some(0),
        };
        let response = self.exchange(&draft, &mut Cuts::none()).await?;
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

    /// One request and its whole answer, also where the answer breaks off in the middle.
    async fn answer(&mut self, draft: &Draft<'_>) -> Result<Value, Failure> {
        let mut cuts = Cuts::none();
        loop {
            let response = self.exchange(draft, &mut cuts).await?;
            match body_of(response).await {
                Err(Failure::Cut(reason)) => {
                    let node = self.connection.take();
                    self.cut(draft, &mut cuts, node.as_ref(), reason).await?;
                }
                body => return decode(&body?),
            }
        }
    }

    /// One request and the head of its answer, over cuts and starts of the node.
    async fn exchange(
        &mut self,
        draft: &Draft<'_>,
        cuts: &mut Cuts,
    ) -> Result<Response<Incoming>, Failure> {
        bounded(&draft.body)?;
        loop {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => self
                    .connect()
                    .await
                    .map_err(|failure| draft.after(cuts, failure))?,
            };
            cuts.sent = Instant::now();
            match self.head(draft, &mut connection).await? {
                Ok(response) => {
                    self.connection = Some(connection);
                    return Ok(response);
                }
                // A request that hyper gave back never left this process.
                Err(error) if error.is_canceled() && !cuts.are_too_many() => {}
                Err(error) => {
                    self.cut(draft, cuts, Some(&connection), words(&error))
                        .await?;
                }
            }
        }
    }

    /// Sends a request and waits for the head of its answer, telling a person where that takes longer than it may.
    async fn head(
        &self,
        draft: &Draft<'_>,
        connection: &mut Connection,
    ) -> Result<Result<Response<Incoming>, hyper::Error>, Failure> {
        let pid = connection.peer();
        let answer = connection.send(self.request(draft)?);
        tokio::pin!(answer);
        if let Some(takes_ms) = draft.takes_ms {
            let bound = Duration::from_millis(takes_ms.saturating_add(SILENT_MS));
            if let Ok(answer) = tokio::time::timeout(bound, &mut answer).await {
                return Ok(answer);
            }
            let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            say(&format!(
                "the node{pid} of {} does not answer; still waiting for it",
                self.home.root.display()
            ));
        }
        Ok(answer.await)
    }

    /// Returns when a request that was cut off can be sent again, or with the reason why it cannot.
    async fn cut(
        &self,
        draft: &Draft<'_>,
        cuts: &mut Cuts,
        node: Option<&Connection>,
        reason: String,
    ) -> Result<(), Failure> {
        cuts.any = true;
        let too_many = cuts.are_too_many();
        match draft.repeat {
            Repeat::Looks if too_many => return Err(Failure::Broken(reason)),
            Repeat::Looks => {}
            Repeat::Known if !too_many => {}
            Repeat::Known | Repeat::Unknown => return Err(draft.unknown(&reason)),
        }
        // A node that was killed may close our connection before its door: asked through that, it would only cut us again.
        if let Some(pid) = node.and_then(Connection::peer) {
            http::gone(pid, Duration::from_millis(NODE_GONE_MS)).await;
        }
        Ok(())
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

#[cfg(test)]
mod tests;
