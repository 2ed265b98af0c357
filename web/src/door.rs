//! What all connections of one listener share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weft_actors::house::House;

use crate::error::Refused;
use crate::limits::{CONNECTIONS_MAX, REFUSALS_MAX, STREAMS_MAX};

/// One listener's side of a node.
pub(crate) struct Door {
    /// The node.
    pub(crate) house: Arc<House>,
    /// The `aud` of its tokens.
    pub(crate) audience: String,
    /// The `iss` of its tokens.
    pub(crate) issuer: String,
    /// What it counted.
    pub(crate) counts: Counts,
    /// Requests that are being answered.
    pub(crate) requests_open: AtomicU64,
    connections: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// What a place among the connections allows.
pub(crate) enum Place {
    /// To be served, as long as the permit is held.
    Served(OwnedSemaphorePermit),
    /// To be told that there is no place.
    Refused(OwnedSemaphorePermit),
    /// Nothing: too many wait to be told.
    None,
}

impl Door {
    pub(crate) fn new(house: Arc<House>) -> Arc<Self> {
        Arc::new(Door {
            audience: house.audience(),
            issuer: house.node_id(),
            house,
            counts: Counts::default(),
            requests_open: AtomicU64::new(0),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        })
    }

    /// A place for a connection that has just been accepted.
    pub(crate) fn place(&self) -> Place {
        let take = |places: &Arc<Semaphore>| places.clone().try_acquire_owned().ok();
        take(&self.connections)
            .map(Place::Served)
            .or_else(|| take(&self.refusals).map(Place::Refused))
            .unwrap_or(Place::None)
    }

    /// A place for a stream, as long as the permit is held.
    pub(crate) fn stream_place(&self) -> Result<OwnedSemaphorePermit, Refused> {
        self.streams
            .clone()
            .try_acquire_owned()
            .map_err(|_| Refused::Streams)
    }

    /// Connections that are open.
    pub(crate) fn connections_open(&self) -> usize {
        CONNECTIONS_MAX - self.connections.available_permits()
    }

    /// Streams that are open.
    pub(crate) fn streams_open(&self) -> usize {
        STREAMS_MAX - self.streams.available_permits()
    }
}

/// Requests answered, by the first digit of their status.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; 6]);

impl Counts {
    pub(crate) fn add(&self, status: StatusCode) {
        if let Some(count) = self.0.get(usize::from(status.as_u16() / 100)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each class with its count: `("2xx", 17)`.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ["0xx", "1xx", "2xx", "3xx", "4xx", "5xx"];
        names
            .into_iter()
            .zip(&self.0)
            .skip(2)
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}
