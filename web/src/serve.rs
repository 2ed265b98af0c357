//! The two listeners: accept, find out who is there, serve, and end when the node does.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use weft_actors::house::House;

use crate::connection::{self, Connection};
use crate::door::{Door, Place};
use crate::guard::Site;
use crate::limits::{ACCEPT_PAUSE_MS, STOP_MS};
use crate::routes;

/// What a TCP listener must be told.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TcpOptions {
    /// Host names, without ports, that this listener answers to beside loopback and its own address.
    pub names: Vec<String>,
}

impl TcpOptions {
    /// Options with these host names.
    pub fn with_names(names: Vec<String>) -> Self {
        TcpOptions { names }
    }
}

/// Serves the home's Unix socket until the node stops: no new connection is taken then, open waits and streams are
/// answered `node-stopping`, and what is left is dropped after four seconds.
pub async fn serve_unix(house: Arc<House>, listener: UnixListener) {
    serve(house, listener).await;
}

/// Serves a TCP port, as [`serve_unix`] does. Callers there need a token; `Host` and `Origin` must be ours.
pub async fn serve_tcp(house: Arc<House>, listener: TcpListener, options: TcpOptions) {
    serve(
        house,
        Tcp {
            listener,
            names: options.names.into(),
        },
    )
    .await;
}

/// Where connections come from.
trait Accept: Send {
    type Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Socket, Arc<Connection>)>> + Send;
}

impl Accept for UnixListener {
    type Socket = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Arc<Connection>)> {
        let (socket, _) = UnixListener::accept(self).await?;
        let credentials = socket.peer_cred()?;
        let ours = rustix::process::geteuid();
        let is_stranger = credentials.uid() != ours.as_raw() && credentials.uid() != 0;
        // A process of another namespace has the number 0 here; it cannot be below one of our shims.
        let pid = credentials
            .pid()
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| *pid != 0);
        Ok((socket, Connection::new(Site::Unix, pid, is_stranger)))
    }
}

struct Tcp {
    listener: TcpListener,
    names: Arc<[String]>,
}

impl Accept for Tcp {
    type Socket = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Arc<Connection>)> {
        let (socket, _) = self.listener.accept().await?;
        // Without it answers only come later.
        let _ = socket.set_nodelay(true);
        let local: SocketAddr = socket.local_addr()?;
        Ok((
            socket,
            Connection::new(
                Site::Tcp {
                    local,
                    names: self.names.clone(),
                },
                None,
                false,
            ),
        ))
    }
}

async fn serve<A: Accept>(house: Arc<House>, listener: A) {
    let door = Door::new(house);
    let router = routes::router(door.clone());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = door.house.stopping() => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            accepted = listener.accept() => match accepted {
                Ok((socket, connection)) => admit(&mut connections, &door, &router, socket, connection),
                Err(error) => pause(&error).await,
            },
        }
    }
    // From here on who connects is refused by the system, and finds or starts the next node.
    drop(listener);
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    };
    if tokio::time::timeout(Duration::from_millis(STOP_MS), all_ended)
        .await
        .is_err()
    {
        tracing::info!(
            connections = connections.len(),
            "connections did not end in time and are dropped"
        );
    }
}

fn admit<S>(
    connections: &mut JoinSet<()>,
    door: &Arc<Door>,
    router: &Router,
    socket: S,
    connection: Arc<Connection>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match door.place() {
        Place::Served(permit) => {
            let (door, router) = (door.clone(), router.clone());
            connections.spawn(async move {
                connection::serve(door, connection, router, socket).await;
                drop(permit);
            });
        }
        Place::Refused(permit) => {
            connections.spawn(async move {
                connection::refuse(socket).await;
                drop(permit);
            });
        }
        Place::None => {}
    }
}

/// A connection that was cut before it was accepted is its own matter; without descriptors, asking again at once would
/// only burn a core.
async fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept a connection; waiting a little");
        tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
    }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a request failed inside; its connection is closed");
    }
}
