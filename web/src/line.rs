//! The socket under a connection, with patience: slow heads, idle connections and stalled readers come to an end.
//!
//! The HTTP machinery above has one time limit for both the wait for a request and its head, and none for writes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::limits::{HEAD_MS, IDLE_MS, STALL_MS};

/// What the answering side tells the socket side.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Requests that have begun.
    begun: AtomicU64,
    /// Whether one is being answered now.
    is_open: AtomicBool,
}

impl Traffic {
    /// A request's head is there.
    pub(crate) fn begin(&self) {
        self.is_open.store(true, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Its answer has been handed over.
    pub(crate) fn end(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }

    /// Whether no request ever came.
    pub(crate) fn is_fresh(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == 0
    }
}

/// A socket that gives up where its other side lets it wait too long.
pub(crate) struct Line<S> {
    socket: S,
    traffic: Arc<Traffic>,
    /// Requests seen when this side last looked.
    seen: u64,
    /// Whether bytes of a next request came.
    in_head: bool,
    /// When the present wait for a head began.
    quiet_since: Option<Instant>,
    /// When writes stopped to make progress.
    stalled_since: Option<Instant>,
    read_alarm: Alarm,
    write_alarm: Alarm,
}

impl<S> Line<S> {
    /// Puts patience around a socket whose connection has just been accepted.
    pub(crate) fn new(socket: S, traffic: Arc<Traffic>) -> Self {
        Line {
            socket,
            traffic,
            seen: 0,
            // Who connects means to ask.
            in_head: true,
            quiet_since: Some(Instant::now()),
            stalled_since: None,
            read_alarm: Alarm::default(),
            write_alarm: Alarm::default(),
        }
    }

    /// Until when the other side may be silent; for ever while it waits for us.
    fn read_deadline(&mut self) -> Option<Instant> {
        let begun = self.traffic.begun.load(Ordering::Relaxed);
        if begun != self.seen {
            self.seen = begun;
            self.in_head = false;
            self.quiet_since = None;
        }
        if self.traffic.is_open.load(Ordering::Relaxed) {
            return None;
        }
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        Some(since + Duration::from_millis(if self.in_head { HEAD_MS } else { IDLE_MS }))
    }

    fn heard_something(&mut self) {
        if !self.in_head && !self.traffic.is_open.load(Ordering::Relaxed) {
            self.in_head = true;
            self.quiet_since = Some(Instant::now());
        }
    }

    /// Fails a write that has made no progress for too long.
    fn watch_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled_since = None;
            return written;
        }
        let since = *self.stalled_since.get_or_insert_with(Instant::now);
        self.write_alarm
            .check(cx, since + Duration::from_millis(STALL_MS))
            .map(Err)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.socket).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                if buffer.filled().len() > before {
                    this.heard_something();
                }
                Poll::Ready(read)
            }
            Poll::Pending => match this.read_deadline() {
                Some(deadline) => this.read_alarm.check(cx, deadline).map(Err),
                None => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.watch_write(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, slices);
        this.watch_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

/// One timer that is moved only when it would ring too late or has rung too early, so that a busy connection does not
/// pay for it with every request.
#[derive(Default)]
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready with the error when the deadline has passed; else the task is woken then.
    fn check(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<io::Error> {
        let sleep = self
            .0
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// How long a read waited before it was given up, in whole milliseconds of the paused clock.
    async fn patience(line: &mut Line<tokio::io::DuplexStream>) -> u128 {
        let start = Instant::now();
        let error = line.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        start.elapsed().as_millis()
    }

    fn is_about(ms: u128, limit: u64) -> bool {
        (u128::from(limit)..u128::from(limit) + 10).contains(&ms)
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_must_come_soon_and_a_next_request_may_take_longer() {
        let traffic = Arc::new(Traffic::default());
        let (mut other, ours) = tokio::io::duplex(1024);
        let mut line = Line::new(ours, traffic.clone());
        assert!(is_about(patience(&mut line).await, HEAD_MS));

        other.write_all(b"x").await.unwrap();
        line.read_u8().await.unwrap();
        traffic.begin();
        traffic.end();
        assert!(is_about(patience(&mut line).await, IDLE_MS));

        let (mut other, ours) = tokio::io::duplex(1024);
        let mut line = Line::new(ours, traffic.clone());
        traffic.begin();
        traffic.end();
        assert!(line.read_deadline().is_some());
        other.write_all(b"G").await.unwrap();
        line.read_u8().await.unwrap();
        assert!(is_about(patience(&mut line).await, HEAD_MS));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_may_wait() {
        let traffic = Arc::new(Traffic::default());
        let (_other, ours) = tokio::io::duplex(1024);
        let mut line = Line::new(ours, traffic.clone());
        traffic.begin();
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, line.read_u8()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stalls_is_given_up() {
        let (_other, ours) = tokio::io::duplex(8);
        let mut line = Line::new(ours, Arc::default());
        let start = Instant::now();
        let error = line.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(is_about(start.elapsed().as_millis(), STALL_MS));
    }
}
