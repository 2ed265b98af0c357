//! One connection: who is at its other end, and the life of its requests.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::AUTHORIZATION;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, body};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tower::Service as _;
use weft_actors::house::BusyGuard;

use crate::auth::Known;
use crate::door::Door;
use crate::error::Refused;
use crate::guard::{self, Site};
use crate::limits::{BUFFER_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, LINGER_MS, REFUSAL_MS};
use crate::line::{Line, Traffic};
use crate::problem;

/// What is known of a connection's other end.
pub(crate) struct Connection {
    /// Where it came in.
    pub(crate) site: Site,
    /// The process that opened it, on the Unix socket, where it can be seen from here.
    pub(crate) pid: Option<u32>,
    /// Whether it is a process of another user.
    pub(crate) is_stranger: bool,
    /// The task above that process, once it was looked for.
    pub(crate) task: OnceLock<Option<String>>,
    /// The token that was verified last.
    pub(crate) known: Mutex<Option<Known>>,
    traffic: Arc<Traffic>,
}

impl Connection {
    pub(crate) fn new(site: Site, pid: Option<u32>, is_stranger: bool) -> Arc<Self> {
        Arc::new(Connection {
            site,
            pid,
            is_stranger,
            task: OnceLock::new(),
            known: Mutex::new(None),
            traffic: Arc::default(),
        })
    }
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // The line keeps the time of heads, apart from that of idle connections.
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX);
    http
}

/// Serves a connection until it ends or the node does. An idle one ends with the node at once, one with an open request
/// after its answer.
pub(crate) async fn serve<S>(
    door: Arc<Door>,
    connection: Arc<Connection>,
    router: Router,
    socket: S,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let line = Line::new(socket, connection.traffic.clone());
    let service = service_fn(|request| {
        Box::pin(answer(
            door.clone(),
            connection.clone(),
            router.clone(),
            request,
        ))
    });
    let mut talk = http().serve_connection(TokioIo::new(line), service);
    let ended = tokio::select! {
        ended = poll_fn(|cx| talk.poll_without_shutdown(cx)) => Some(ended),
        () = door.house.stopping() => None,
    };
    match ended {
        Some(ended) => {
            log_end(ended);
            linger(talk.into_parts().io.into_inner()).await;
        }
        // One that never asked anything would be waited for, since its first request could be on the way; its owner finds
        // it closed before the first byte and asks the next node.
        None if connection.traffic.is_fresh() => {}
        None => {
            Pin::new(&mut talk).graceful_shutdown();
            log_end(talk.await);
        }
    }
}

/// Ends a connection so that its last answer arrives: a close with bytes unread would make the system reset it, and a client
/// that is still sending a refused body would see a broken pipe instead of the refusal.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S) {
    let rest = async {
        let mut unread = [0; 8192];
        socket.shutdown().await?;
        while socket.read(&mut unread).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    // Whoever neither reads nor closes is cut.
    let _ = tokio::time::timeout(Duration::from_millis(LINGER_MS), rest).await;
}

/// Tells a connection for which there is no place that it is so.
pub(crate) async fn refuse<S>(socket: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Refused::Connections.into_response())
    });
    let talk = http()
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), service);
    // Whoever is too slow to ask is dropped without a word.
    let _ = tokio::time::timeout(Duration::from_millis(REFUSAL_MS), talk).await;
}

fn log_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

async fn answer(
    door: Arc<Door>,
    connection: Arc<Connection>,
    mut router: Router,
    request: Request<Incoming>,
) -> Result<Response<Held>, Infallible> {
    let open = Open::begin(door.clone(), connection.traffic.clone());
    let (mut head, body) = request.into_parts();
    let admitted = if connection.is_stranger {
        Err(Refused::Stranger)
    } else {
        guard::check(&head, &connection.site)
    };
    let response = match admitted {
        Ok(()) => {
            let was_presented = head.headers.contains_key(AUTHORIZATION);
            head.extensions.insert(connection);
            let Ok(mut response) = router.call(Request::from_parts(head, body)).await;
            problem::add_challenge(&mut response, was_presented);
            response
        }
        Err(refused) => refused.into_response(),
    };
    door.counts.add(response.status());
    Ok(response.map(|body| Held { body, _open: open }))
}

/// One request that is being answered: a reason for the node to stay.
struct Open {
    door: Arc<Door>,
    traffic: Arc<Traffic>,
    _stay: BusyGuard,
}

impl Open {
    fn begin(door: Arc<Door>, traffic: Arc<Traffic>) -> Self {
        traffic.begin();
        door.requests_open.fetch_add(1, Ordering::Relaxed);
        Open {
            _stay: door.house.busy.enter(),
            door,
            traffic,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.traffic.end();
        self.door.requests_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer's body, which keeps its request open until it is handed over or given up.
struct Held {
    body: Body,
    _open: Open,
}

impl body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
