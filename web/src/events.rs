//! `GET /v1/events`: the log as a stream of server-sent events, by cursor.
//!
//! Each stream is a reader of its own: it registers for a wake, reads a page after its cursor, writes it and waits. A page
//! is read only when the one before has left our buffers, so a slow reader holds one page and is further behind in the log.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures_core::Stream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};
use weft_actors::error::Error;
use weft_grants::Right;
use weft_mesh::{Cursor, MeshError, Page, Pattern, Query, Watcher};

use crate::credential::{self, Credential};
use crate::door::Door;
use crate::error::Refused;
use crate::limits::{HEARTBEAT_MS, PAGE_BYTES, PAGE_EVENTS};
use crate::query::Form::{List, Text};
use crate::query::Table;
use crate::sse::{self, Start};
use crate::thin::{Answer, Ask};
use crate::topics::{after, kinds, texts};

const LAST_EVENT_ID: &str = "last-event-id";
const REPLAY_FROM: &str = "weft-replay-from";

const TABLE: Table = &[("topics", List), ("after", Text), ("kinds", List)];

/// Opens a stream. What can be refused is refused before its head is sent.
pub(crate) async fn open(ask: Ask) -> Answer {
    let who = ask.who().await?;
    let mut fields = ask.query(TABLE)?;
    let patterns = patterns(&texts(fields.remove("topics")))?;
    for pattern in &patterns {
        who.caller.require_on(Right::MeshRead, pattern.as_str())?;
    }
    let asked = match last_event_id(&ask)? {
        Some(cursor) => Some(cursor),
        None => after(&mut fields)?,
    };
    let place = ask.door.stream_place()?;
    let store = &ask.door.house.store;
    // Registered before the first look at the log, so that nothing falls between.
    let watcher = store.watch(&patterns);
    let start = Start::of(asked.as_ref(), store.epoch(), store.newest());
    let mut query = Query::new(patterns, start.after);
    query.kinds = kinds(&mut fields)?;
    query.limit = PAGE_EVENTS;
    query.max_bytes = PAGE_BYTES;
    let mut reader = Reader {
        credential: who.claims.map(|claims| Credential::new(&ask.door, claims)),
        stopping: ask.door.house.stopping.subscribe(),
        epoch: store.epoch().to_owned(),
        heartbeat_at: Instant::now() + Duration::from_millis(HEARTBEAT_MS),
        is_ended: false,
        door: ask.door.clone(),
        query,
        watcher,
        _place: place,
    };
    let first = ask
        .door
        .house
        .unless_stopping(reader.opening(start.is_foreign))
        .await??;
    let from = format!("{}-{}", reader.epoch, start.after);
    response(&from, Blocks::new(reader, first))
}

fn patterns(topics: &[String]) -> Result<Vec<Pattern>, Refused> {
    let most = weft_mesh::limits::PATTERNS_MAX;
    if topics.is_empty() || topics.len() > most {
        return Err(Refused::invalid(
            "topics",
            format!("takes 1 to {most} topics or patterns, with commas between them"),
        ));
    }
    Ok(topics
        .iter()
        .map(|topic| topic.parse())
        .collect::<Result<_, MeshError>>()?)
}

/// The cursor a client resumes from. An empty one is that of a client which has seen nothing.
fn last_event_id(ask: &Ask) -> Result<Option<Cursor>, Refused> {
    let Some(value) = ask
        .headers
        .get(LAST_EVENT_ID)
        .filter(|value| !value.is_empty())
    else {
        return Ok(None);
    };
    let cursor = value.to_str().ok().and_then(|text| text.parse().ok());
    cursor.map(Some).ok_or_else(|| {
        Refused::invalid(
            "Last-Event-ID",
            "is neither a sequence nor `<epoch>-<sequence>`",
        )
    })
}

fn response(from: &str, blocks: Blocks) -> Answer {
    let from = HeaderValue::try_from(from)
        .map_err(|error| Error::Internal(format!("the epoch does not fit a header: {error}")))?;
    let mut response = Response::new(Body::from_stream(blocks));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(REPLAY_FROM, from);
    Ok(response)
}

/// One stream's reader of the log.
struct Reader {
    door: Arc<Door>,
    watcher: Watcher,
    query: Query,
    epoch: String,
    credential: Option<Credential>,
    stopping: watch::Receiver<bool>,
    heartbeat_at: Instant,
    is_ended: bool,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    /// The first blocks, with the first page in them.
    async fn opening(&mut self, is_foreign: bool) -> Result<Bytes, Refused> {
        let after = self.query.after.sequence;
        let page = self.page().await?;
        let mut out = sse::opening(&self.epoch, after).into_bytes();
        if is_foreign && page.omitted.is_empty() {
            out.extend_from_slice(sse::resync(&self.epoch, after, &[]).as_bytes());
        }
        self.write(&page, after, &mut out)?;
        Ok(out.into())
    }

    /// What comes next: events, a sign of life, or the last word. `None` after that.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_ended {
            return None;
        }
        match self.blocks().await {
            Ok(blocks) => Some(blocks),
            Err(reason) => {
                self.is_ended = true;
                Some(sse::end(&reason).into())
            }
        }
    }

    async fn blocks(&mut self) -> Result<Bytes, Refused> {
        loop {
            self.check().await?;
            let after = self.query.after.sequence;
            let page = self.page().await?;
            let mut out = Vec::new();
            self.write(&page, after, &mut out)?;
            if out.is_empty() && !page.more && Instant::now() >= self.heartbeat_at {
                out = sse::heartbeat(&self.epoch, page.next).into_bytes();
            }
            if !out.is_empty() {
                self.heartbeat_at = Instant::now() + Duration::from_millis(HEARTBEAT_MS);
                return Ok(out.into());
            }
            if !page.more {
                self.wait().await;
            }
        }
    }

    /// Whether the stream may go on.
    async fn check(&self) -> Result<(), Refused> {
        if *self.stopping.borrow() {
            return Err(Error::NodeStopping.into());
        }
        match &self.credential {
            Some(credential) => credential.check(&self.door).await,
            None => Ok(()),
        }
    }

    /// Reads on, and moves the cursor.
    async fn page(&mut self) -> Result<Page, Refused> {
        let page = self
            .door
            .house
            .store
            .read_events(self.query.clone())
            .await?;
        self.query.after = page.next.into();
        Ok(page)
    }

    fn write(&self, page: &Page, after: u64, out: &mut Vec<u8>) -> Result<(), Refused> {
        if !page.omitted.is_empty() {
            out.extend_from_slice(sse::resync(&self.epoch, after, &page.omitted).as_bytes());
        }
        sse::events(page, out)
            .map_err(|error| Error::Internal(format!("an event is no JSON: {error}")).into())
    }

    /// Until there may be something to do.
    async fn wait(&mut self) {
        tokio::select! {
            () = self.watcher.changed() => {}
            _ = self.stopping.wait_for(|stopping| *stopping) => {}
            () = credential::worth_a_look(self.credential.as_mut()) => {}
            () = sleep_until(self.heartbeat_at) => {}
        }
    }
}

type NextBlocks = Pin<Box<dyn Future<Output = (Option<Bytes>, Reader)> + Send>>;

/// A reader as the body of an answer: what follows is read only when the body is asked for it.
struct Blocks {
    first: Option<Bytes>,
    rest: NextBlocks,
}

impl Blocks {
    fn new(reader: Reader, first: Bytes) -> Self {
        Blocks {
            first: Some(first),
            rest: Self::rest(reader),
        }
    }

    fn rest(mut reader: Reader) -> NextBlocks {
        Box::pin(async move { (reader.next().await, reader) })
    }
}

impl Stream for Blocks {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let (blocks, reader) = ready!(self.rest.as_mut().poll(cx));
        self.rest = Self::rest(reader);
        Poll::Ready(blocks.map(Ok))
    }
}
