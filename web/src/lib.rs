//! The HTTP surface of a weft node: thin routes over the actions, and the streams of the mesh.
//!
//! Two doors lead in. The home's Unix socket knows its callers by their processes; TCP knows them by their tokens. Both
//! end in [`weft_actors::action::call`], or for events in the store itself. Nothing here decides what an action does, and
//! nothing below this crate knows HTTP.
//!
//! A request passes four rooms: the *guard* looks at what a browser or a confused proxy could have made of it (`Host`,
//! `Origin`, content type), *auth* turns its credential into a caller, the *routes* turn it into an action's input, and
//! *problem* turns every refusal into a problem document. Status codes stand in that last room alone.
//!
//! Streams push nothing to anybody: each registers for a wake, reads a page of the log after its own cursor, writes it
//! and waits. A reader that stalls is only further behind in the log.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod auth;
mod body;
mod connection;
mod credential;
mod door;
mod error;
mod events;
mod guard;
mod health;
pub mod limits;
mod line;
mod problem;
mod query;
mod routes;
mod serve;
mod sse;
mod thin;
mod topics;

pub use error::Refused;
pub use serve::{TcpOptions, serve_tcp, serve_unix};
