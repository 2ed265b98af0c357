//! One HTTP/1.1 connection to a node: how it is reached, and one request with its answer.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::app::on_thread;
use crate::exit::{Failure, Problem};
use crate::limits::{ANSWER_BYTES_MAX, SOCKET_PATH_BYTES_MAX};

/// A path that fits a socket's address: the plain one, or one through a descriptor of its folder.
pub(crate) struct SocketPath {
    path: PathBuf,
    /// Keeps the way through the descriptor open.
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// The way to the socket `name` in `folder`, however long that is.
    pub(crate) fn new(folder: &Path, name: &str) -> io::Result<Self> {
        let plain = folder.join(name);
        if plain.as_os_str().as_bytes().len() <= SOCKET_PATH_BYTES_MAX {
            return Ok(SocketPath {
                path: plain,
                _folder: None,
            });
        }
        let folder = rustix::fs::open(
            folder,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()));
        Ok(SocketPath {
            path,
            _folder: Some(folder),
        })
    }

    /// Connects. It waits while the listener's queue is full, which a non-blocking connect would report as an error.
    pub(crate) fn connect(&self) -> io::Result<std::os::unix::net::UnixStream> {
        std::os::unix::net::UnixStream::connect(&self.path)
    }

    /// Binds a listener there.
    pub(crate) fn bind(&self) -> io::Result<std::os::unix::net::UnixListener> {
        std::os::unix::net::UnixListener::bind(&self.path)
    }
}

/// An open connection.
pub(crate) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    ended: tokio::task::JoinHandle<Result<(), hyper::Error>>,
    peer: Option<Pid>,
}

impl Connection {
    /// To the node's socket in the folder `home`.
    pub(crate) async fn unix(home: &Path) -> io::Result<Self> {
        let stream = SocketPath::new(home, "node.sock")?.connect()?;
        stream.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(stream)?;
        let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let mut connection = Connection::over(stream).await?;
        connection.peer = peer.and_then(Pid::from_raw);
        Ok(connection)
    }

    /// Over a stream that stands.
    pub(crate) async fn over<T>(stream: T) -> io::Result<Self>
    where
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // What goes wrong on it comes out of the request.
        Ok(Connection {
            requests,
            ended: tokio::spawn(connection),
            peer: None,
        })
    }

    /// The process that listens on the other side; none over TCP, or where it lives in another world of numbers.
    pub(crate) fn peer(&self) -> Option<Pid> {
        self.peer
    }

    /// Sends one request. An error means that no byte of an answer came.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.requests.ready().await?;
        self.requests.send_request(request).await
    }

    /// Returns when the other side has closed the connection.
    pub(crate) async fn closed(self) {
        let Connection {
            requests, ended, ..
        } = self;
        // How it ended does not matter. The sender lives until then, since dropping it would be our own end.
        let _ = ended.await;
        drop(requests);
    }
}

/// Waits, at most `bound`, until the process `pid` is gone. A stranger that got its number meanwhile costs the bound, and nothing
/// else.
pub(crate) async fn gone(pid: Pid, bound: Duration) {
    // Whoever waited for itself would wait for nothing. A process that cannot be opened is gone.
    if pid == getpid() {
        return;
    }
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let bound = Timespec {
        tv_sec: bound.as_secs().cast_signed(),
        tv_nsec: i64::from(bound.subsec_nanos()),
    };
    // The kernel's wait, on a thread of its own. How it ends does not matter: the caller goes on in any case.
    let wait = move || poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&bound));
    let _ = on_thread(wait).await;
}

/// The whole body of a good answer; a refusal becomes [`Failure::Refused`].
pub(crate) async fn body_of(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let status = response.status();
    let body = read_whole(response.into_body()).await?;
    if status.is_success() {
        Ok(body)
    } else {
        Err(Failure::Refused(Problem::parse(status.as_u16(), &body)))
    }
}

async fn read_whole(body: Incoming) -> Result<Bytes, Failure> {
    match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Failure::Protocol(
            format!("an answer of more than {ANSWER_BYTES_MAX} bytes"),
        )),
        Err(error) => Err(Failure::Cut(format!("{error} in the middle of an answer"))),
    }
}
