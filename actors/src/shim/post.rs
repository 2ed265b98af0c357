//! The one post of the completion: a small HTTP request on the node's socket, written by hand.
//!
//! Nothing depends on it. The receipt is on disk before, and a node that was not told finds it there.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::limits::shim::POST_MS;
use crate::task::wire::Secret;

/// The node's socket, inside the home.
const NODE_SOCKET: &str = "node.sock";

/// What became of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// A node answered with this status.
    Answered(u16),
    /// There is no node.
    NoNode,
    /// There is one, and it did not answer in time.
    NoAnswer,
}

/// Posts an empty document: the node takes the event's data from the receipt.
pub(crate) fn post(home: &OwnedFd, topic: &str, token: &Secret) -> Posted {
    let end = Instant::now() + Duration::from_millis(POST_MS);
    let Ok(mut stream) = connect(home, Duration::from_millis(POST_MS)) else {
        return Posted::NoNode;
    };
    let request = format!(
        "POST /v1/topics/{topic}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}",
        token.expose()
    );
    if stream.write_all(request.as_bytes()).is_err() {
        return Posted::NoNode;
    }
    read_status(&mut stream, end)
}

/// Connects to the node, waiting no longer than this also where its queue is full.
pub(crate) fn connect(home: &OwnedFd, patience: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    let path = format!("/proc/self/fd/{}/{NODE_SOCKET}", home.as_raw_fd());
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

fn read_status(stream: &mut UnixStream, end: Instant) -> Posted {
    let mut head = Vec::new();
    let mut buffer = [0; 512];
    while !head.contains(&b'\n') {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Posted::NoAnswer;
        }
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) if head.len() + bytes <= 4 * buffer.len() => {
                head.extend_from_slice(&buffer[..bytes]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return Posted::NoAnswer,
        }
    }
    match status_of(&head) {
        Some(status) => Posted::Answered(status),
        // A node that ended between connection and answer.
        None if head.is_empty() => Posted::NoNode,
        None => Posted::NoAnswer,
    }
}

fn status_of(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\n').next()?).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    rest.split(' ').nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_read_and_nothing_else_is() {
        assert_eq!(status_of(b"HTTP/1.1 201 Created\r\n"), Some(201));
        assert_eq!(status_of(b"HTTP/1.1 409\r\n"), Some(409));
        assert_eq!(status_of(b"SSH-2.0\r\n"), None);
    }

    #[test]
    fn a_home_without_a_node_says_so() {
        let home = tempfile::tempdir().unwrap();
        let home: OwnedFd = std::fs::File::open(home.path()).unwrap().into();
        assert_eq!(
            post(&home, "builds", &Secret::new("t".into())),
            Posted::NoNode
        );
    }
}
