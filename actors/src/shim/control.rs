//! The control socket: connections, their lines, and what each still waits for.
//!
//! Nothing here blocks and nothing grows: a peer that sends too long a line, asks too much at once or does
//! not read its answers is dropped.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use serde_json::Value;

use crate::limits::shim::{
    CONNECTIONS_MAX, FAREWELL_MS, OPEN_ASKS_MAX, REQUEST_BYTES_MAX, UNREAD_BYTES_MAX,
};
use crate::task::folder::{Folder, SOCKET};
use crate::task::wire::{Line, Request, StreamName};

/// The socket and who is connected.
pub(crate) struct Control {
    listener: UnixListener,
    pub(crate) connections: Vec<Connection>,
}

/// A question whose answer is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenAsk {
    /// The stream has more than `after` bytes.
    Await {
        n: u64,
        stream: StreamName,
        after: u64,
    },
    /// The tree is gone.
    Stop { n: u64 },
    /// So many bytes of input would be taken.
    Room { n: u64, bytes: usize },
}

/// One peer.
pub(crate) struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    pub(crate) holds: bool,
    /// What it has taken of each stream, where it takes the output on.
    pub(crate) taken: Option<BTreeMap<StreamName, u64>>,
    pub(crate) asks: Vec<OpenAsk>,
    is_gone: bool,
}

impl Control {
    /// Binds through the folder's descriptor, since a socket's path may have 107 bytes only.
    pub(crate) fn bind(folder: &Folder) -> io::Result<Self> {
        // Left by a shim that died; whoever holds the lock owns the name.
        folder.remove_file(SOCKET)?;
        let listener = UnixListener::bind(folder.short_path(SOCKET))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            connections: Vec::new(),
        })
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes whoever wants to connect and says hello.
    pub(crate) fn accept(&mut self, hello: &Line) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut connection = Connection {
                stream,
                input: Vec::new(),
                output: Vec::new(),
                holds: false,
                taken: None,
                asks: Vec::new(),
                is_gone: false,
            };
            if self.connections.len() >= CONNECTIONS_MAX {
                connection.refuse(
                    0,
                    &format!("this task has {CONNECTIONS_MAX} connections and takes no more"),
                );
                continue;
            }
            connection.say(hello);
            self.connections.push(connection);
        }
    }

    /// Whether somebody who takes this stream on is behind its `size` by more than `ahead_max`.
    pub(crate) fn is_behind(&self, stream: StreamName, size: u64, ahead_max: u64) -> bool {
        let consumers = self.connections.iter().filter_map(|it| it.taken.as_ref());
        consumers
            .map(|taken| taken.get(&stream).copied().unwrap_or(0))
            .any(|taken| size.saturating_sub(taken) >= ahead_max)
    }

    /// Answers every wait whose stream has grown past it; each is answered once.
    pub(crate) fn answer_awaits(&mut self, size_of: impl Fn(StreamName) -> Option<u64>) {
        for connection in &mut self.connections {
            let mut reached = Vec::new();
            connection.asks.retain(|ask| match *ask {
                OpenAsk::Await { n, stream, after } => match size_of(stream) {
                    Some(size) if size <= after => true,
                    size => {
                        reached.push((n, size.unwrap_or(0)));
                        false
                    }
                },
                OpenAsk::Stop { .. } | OpenAsk::Room { .. } => true,
            });
            for (n, size) in reached {
                connection.answer(n, &serde_json::json!({"size": size, "ended": false}));
            }
        }
    }

    /// Answers every wait for room in the input that `is_ready` has an answer for.
    pub(crate) fn answer_rooms(&mut self, is_ready: impl Fn(usize) -> bool) {
        for connection in &mut self.connections {
            let mut answered = Vec::new();
            connection.asks.retain(|ask| match *ask {
                OpenAsk::Room { n, bytes } if is_ready(bytes) => {
                    answered.push(n);
                    false
                }
                _ => true,
            });
            for n in answered {
                connection.answer(n, &serde_json::json!({}));
            }
        }
    }

    /// Answers every stop that waits.
    pub(crate) fn answer_stops(&mut self, stopped: &impl Serialize) {
        for connection in &mut self.connections {
            let asks = std::mem::take(&mut connection.asks);
            for ask in asks {
                match ask {
                    OpenAsk::Stop { n } => connection.answer(n, stopped),
                    OpenAsk::Await { .. } | OpenAsk::Room { .. } => connection.asks.push(ask),
                }
            }
        }
    }

    /// Forgets who is gone and tells how many of them held the lease.
    pub(crate) fn sweep(&mut self) -> usize {
        let held = |list: &[Connection]| list.iter().filter(|it| it.holds).count();
        let before = held(&self.connections);
        self.connections.retain(|connection| !connection.is_gone);
        before - held(&self.connections)
    }

    /// Gives everybody the last line and a moment to take it.
    pub(crate) fn farewell(&mut self, last: &Line, sizes: impl Fn(StreamName) -> Option<u64>) {
        for connection in &mut self.connections {
            for ask in std::mem::take(&mut connection.asks) {
                if let OpenAsk::Await { n, stream, .. } = ask {
                    let size = sizes(stream).unwrap_or(0);
                    connection.answer(n, &serde_json::json!({"size": size, "ended": true}));
                }
            }
            connection.say(last);
        }
        let end = std::time::Instant::now() + std::time::Duration::from_millis(FAREWELL_MS);
        loop {
            let slow = || self.connections.iter().filter(|it| it.has_output());
            let mut fds: Vec<_> = slow()
                .map(|connection| {
                    PollFd::from_borrowed_fd(connection.stream.as_fd(), PollFlags::OUT)
                })
                .collect();
            let left = end.saturating_duration_since(std::time::Instant::now());
            let Ok(patience) = Timespec::try_from(left) else {
                return;
            };
            if fds.is_empty()
                || left.is_zero()
                || rustix::event::poll(&mut fds, Some(&patience)).is_err()
            {
                return;
            }
            for connection in &mut self.connections {
                connection.flush();
            }
        }
    }
}

impl Connection {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether something waits to be sent.
    pub(crate) const fn has_output(&self) -> bool {
        !self.output.is_empty() && !self.is_gone
    }

    /// Reads what came and gives the whole requests in it. A line that is no request is answered here.
    pub(crate) fn read(&mut self) -> Vec<Request> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.is_gone = true;
                    break;
                }
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_gone |= error.kind() != io::ErrorKind::WouldBlock;
                    break;
                }
            }
            if self.input.len() > REQUEST_BYTES_MAX {
                break;
            }
        }
        let mut requests = Vec::new();
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            match serde_json::from_slice::<Request>(&line) {
                Ok(request) => requests.push(request),
                Err(error) => {
                    let n = serde_json::from_slice::<Value>(&line)
                        .ok()
                        .and_then(|line| line.get("n")?.as_u64())
                        .unwrap_or(0);
                    self.refuse(n, &format!("no request of this protocol: {error}"));
                }
            }
        }
        if self.input.len() > REQUEST_BYTES_MAX {
            self.refuse(
                0,
                &format!("a request has at most {REQUEST_BYTES_MAX} bytes"),
            );
            self.is_gone = true;
        }
        self.input.shrink_to_fit();
        requests
    }

    /// Keeps a question open, if there is room for one more.
    pub(crate) fn keep_open(&mut self, ask: OpenAsk) {
        let (OpenAsk::Await { n, .. } | OpenAsk::Stop { n } | OpenAsk::Room { n, .. }) = ask;
        if self.asks.len() >= OPEN_ASKS_MAX {
            self.refuse(
                n,
                &format!("at most {OPEN_ASKS_MAX} questions may be open on a connection"),
            );
        } else {
            self.asks.push(ask);
        }
    }

    /// Sends an answer.
    pub(crate) fn answer(&mut self, n: u64, ok: &impl Serialize) {
        let ok = serde_json::to_value(ok).unwrap_or(Value::Null);
        self.say(&Line::Ok { n, ok });
    }

    /// Sends a refusal.
    pub(crate) fn refuse(&mut self, n: u64, error: &str) {
        let error = error.to_owned();
        self.say(&Line::Error { n, error });
    }

    fn say(&mut self, line: &Line) {
        // A value of our own types has no reason to fail; a line less is better than a shim less.
        let Ok(text) = serde_json::to_vec(line) else {
            return;
        };
        self.output.extend_from_slice(&text);
        self.output.push(b'\n');
        self.flush();
        self.is_gone |= self.output.len() > UNREAD_BYTES_MAX;
    }

    /// Sends what the peer takes now.
    pub(crate) fn flush(&mut self) {
        while self.has_output() {
            match self.stream.write(&self.output) {
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_gone |= error.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            }
        }
        self.output.shrink_to_fit();
    }
}
