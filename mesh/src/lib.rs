//! The mesh: one ordered, durable log of events with one writer.
//!
//! A [`Store`] owns one SQLite file. One thread writes it and commits whatever is waiting as one transaction (group
//! commit), so that many publishers share one flush; an answer comes only after the commit is on stable storage. Reads
//! run on threads of their own and never hold up the writer. A [`Watcher`] is a hint that something was appended:
//! register it first, then read by cursor, then wait.
//!
//! The log promises: sequences only grow and are never used twice within an epoch; at most one event with a given id;
//! at most `uses` posts a grant; what retention took away is told to the reader who missed it.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod clock;
mod depth;
mod error;
mod event;
mod grant;
pub mod limits;
mod name;
mod pattern;
mod query;
mod store;
mod wake;

pub use error::{MeshError, WriteError};
pub use event::{Appended, Draft, Event, Origin, Posted, Scheduled};
pub use grant::{GrantRow, NewGrant, Spend};
pub use name::{EventId, Kind, Topic};
pub use pattern::Pattern;
pub use query::{Cursor, Omitted, Page, Query, Retention, TopicInfo};
pub use store::{Hold, Store, StoreOptions, Tx};
pub use wake::Watcher;
