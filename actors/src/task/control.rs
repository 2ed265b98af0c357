//! One connection to a task's shim: requests with their answers, and the news of the end.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::wire::{Ask, HAS_ENDED, Hello, Line, Receipt, Request};
use crate::error::{Error, Result};
use crate::limits::{CONTROL_QUEUE, FROZEN_MS, MUTE_MS};
use crate::sys;

/// A handle on a connection. Cloning shares the connection; it closes when the last clone and nothing else holds it.
#[derive(Clone)]
pub struct Control {
    asks: mpsc::Sender<(Ask, Reply)>,
    together: Together,
    end: watch::Receiver<Closed>,
    hello: Arc<Hello>,
    shim_pid: u32,
}

/// Questions that are open for everybody who asks them, with what became of each: whether it was answered or refused.
type Together = Arc<Mutex<Vec<(Ask, watch::Receiver<Option<bool>>)>>>;

/// Who hears an answer.
enum Reply {
    One(oneshot::Sender<Result<Value>>),
    All(watch::Sender<Option<bool>>),
}

impl Reply {
    /// Whoever no longer listens need not be told.
    fn give(self, answer: Result<Value>) {
        match self {
            Reply::One(one) => drop(one.send(answer)),
            Reply::All(all) => drop(all.send_replace(Some(answer.is_ok()))),
        }
    }
}

/// How far a connection is.
#[derive(Debug, Clone)]
pub enum Closed {
    /// It stands.
    Open,
    /// The shim told the end; the receipt is durable.
    Ended(Arc<Receipt>),
    /// It broke without a word: the shim is gone.
    Broken,
}

impl Control {
    /// Connects to the shim of the task folder `folder` and hears its hello.
    pub async fn connect(folder: &Path) -> std::io::Result<Control> {
        // Through a descriptor of the folder, so that no path is too long for a socket address.
        let directory = rustix::fs::open(
            folder,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let stream =
            UnixStream::connect(format!("/proc/self/fd/{}/shim.sock", directory.as_raw_fd()))
                .await?;
        drop(directory);
        let shim_pid = stream.peer_cred()?.pid().map_or(0, |pid| pid as u32);
        let (read, write) = stream.into_split();
        let mut read = BufReader::new(read);
        let mut line = String::new();
        let greeted = hear_or_wake(shim_pid, read.read_line(&mut line)).await??;
        if greeted == 0 {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        let hello: Hello = serde_json::from_str(&line).map_err(std::io::Error::other)?;
        let (asks, asked) = mpsc::channel(CONTROL_QUEUE);
        let (closed, end) = watch::channel(Closed::Open);
        tokio::spawn(converse(read, write, asked, closed));
        Ok(Control {
            asks,
            together: Together::default(),
            end,
            hello: Arc::new(hello),
            shim_pid,
        })
    }

    /// What the shim said of itself when the connection was made.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The shim's process.
    pub fn shim_pid(&self) -> u32 {
        self.shim_pid
    }

    /// Asks, and waits for the answer. [`Error::WrongState`] when the task ended meanwhile.
    pub async fn ask(&self, ask: Ask) -> Result<Value> {
        let (reply, answer) = oneshot::channel();
        let ask = (ask, Reply::One(reply));
        self.asks.send(ask).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Asks what stays open until something happens, and says whether that happened: not where the shim refused, or is gone.
    ///
    /// A question outlives those who gave up on it, and a shim keeps few of them open. So it is asked once for all who ask it.
    pub async fn ask_together(&self, ask: Ask) -> bool {
        // Room first: nothing is waited for under the lock.
        let Ok(room) = self.asks.reserve().await else {
            return false;
        };
        let mut answered = self.join(ask, room);
        let told = answered.wait_for(Option::is_some).await;
        told.is_ok_and(|told| *told == Some(true))
    }

    /// The answer to a question that is open already, else the question in this room of the queue.
    fn join(
        &self,
        ask: Ask,
        room: mpsc::Permit<'_, (Ask, Reply)>,
    ) -> watch::Receiver<Option<bool>> {
        let mut open = self.together.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, answered)| answered.borrow().is_none() && answered.has_changed().is_ok());
        if let Some((_, answered)) = open.iter().find(|(asked, _)| *asked == ask) {
            return answered.clone();
        }
        let (all, answered) = watch::channel(None);
        open.push((ask.clone(), answered.clone()));
        room.send((ask, Reply::All(all)));
        answered
    }

    /// Whether the shim told the end or is gone.
    pub fn is_closed(&self) -> bool {
        !matches!(*self.end.borrow(), Closed::Open)
    }

    /// Waits until the shim told the end or is gone. Never [`Closed::Open`].
    pub async fn closed(&self) -> Closed {
        let mut end = self.end.clone();
        match end.wait_for(|end| !matches!(end, Closed::Open)).await {
            Ok(end) => end.clone(),
            Err(_) => Closed::Broken,
        }
    }
}

/// Waits for a shim's words. One that says nothing was frozen, by its own command for instance, and is let go on: as long as
/// the connection or pipe to it stands, its number is its own.
pub(crate) async fn hear_or_wake<T>(
    shim_pid: u32,
    words: impl Future<Output = T>,
) -> std::io::Result<T> {
    let mut words = std::pin::pin!(words);
    if let Ok(heard) = timeout(Duration::from_millis(FROZEN_MS), words.as_mut()).await {
        return Ok(heard);
    }
    sys::resume(shim_pid);
    timeout(Duration::from_millis(MUTE_MS), words)
        .await
        .map_err(|_elapsed| std::io::ErrorKind::TimedOut.into())
}

fn gone() -> Error {
    Error::WrongState(HAS_ENDED.into())
}

type Pending = HashMap<u64, Reply>;

/// Writes what is asked and hands out what is answered, until one side is gone.
async fn converse(
    read: BufReader<OwnedReadHalf>,
    mut write: OwnedWriteHalf,
    mut asked: mpsc::Receiver<(Ask, Reply)>,
    closed: watch::Sender<Closed>,
) {
    let mut pending = Pending::new();
    let mut lines = read.lines();
    let mut number = 0_u64;
    let end = loop {
        tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => if let Some(receipt) = hear(&line, &mut pending) {
                    break Closed::Ended(receipt);
                },
                Ok(None) | Err(_) => break Closed::Broken,
            },
            ask = asked.recv() => {
                // No handle is left: nobody wants to know.
                let Some((ask, reply)) = ask else { return };
                number += 1;
                let Ok(mut line) = serde_json::to_vec(&Request { n: number, ask }) else { continue };
                line.push(b'\n');
                pending.insert(number, reply);
                // A shim that closed its end may have told the end before: the reading side hears its last word.
                let _ = write.write_all(&line).await;
            }
        }
    };
    closed.send_replace(end);
}

fn hear(line: &str, pending: &mut Pending) -> Option<Arc<Receipt>> {
    match serde_json::from_str::<Line>(line) {
        Ok(Line::Ended { ended }) => return Some(Arc::new(*ended)),
        Ok(Line::Ok { n, ok }) => {
            if let Some(reply) = pending.remove(&n) {
                reply.give(Ok(ok));
            }
        }
        Ok(Line::Error { n, error }) => {
            if let Some(reply) = pending.remove(&n) {
                reply.give(Err(Error::WrongState(error)));
            }
        }
        // A newer shim may say more than this release knows.
        Ok(Line::Hello(_)) | Err(_) => {}
    }
    None
}
