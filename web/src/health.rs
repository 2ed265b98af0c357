//! What monitors and other nodes ask: liveness, readiness, counts, public keys.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use serde_json::json;
use weft_mesh::{MeshError, WriteError};

use crate::door::Door;
use crate::error::Refused;
use crate::limits::{JWKS_CACHE_SECS, READY_MS};
use crate::thin::{Answer, Ask, to_answer};

/// What an acknowledgement means here.
const DURABILITY: &str = "fsync";

/// `GET /healthz`: the process answers.
pub(crate) async fn live() -> Answer {
    to_answer(&json!({"status": "ok"}))
}

/// `GET /readyz`: the store can be written, and how durable what it acknowledges is.
pub(crate) async fn ready(State(door): State<Arc<Door>>) -> Answer {
    if *door.house.stopping.borrow() {
        return Err(weft_actors::error::Error::NodeStopping.into());
    }
    let write = door.house.store.write(|_| Ok::<_, MeshError>(()));
    match tokio::time::timeout(Duration::from_millis(READY_MS), write).await {
        Ok(written) => written
            .map_err(WriteError::flatten)
            .map_err(|error| Refused::NotReady(error.to_string()))?,
        Err(_elapsed) => {
            return Err(Refused::NotReady(format!(
                "it did not answer within {READY_MS} ms"
            )));
        }
    }
    let store = &door.house.store;
    to_answer(
        &json!({"status": "ready", "durability": DURABILITY, "epoch": store.epoch(), "newest": store.newest()}),
    )
}

/// `GET /.well-known/jwks.json`: the keys that verify our tokens.
pub(crate) async fn jwks(State(door): State<Arc<Door>>) -> Answer {
    let mut answer = to_answer(&door.house.keys().jwks())?;
    let cached = HeaderValue::try_from(format!("public, max-age={JWKS_CACHE_SECS}"));
    if let Ok(cached) = cached {
        answer.headers_mut().insert(CACHE_CONTROL, cached);
    }
    Ok(answer)
}

/// `GET /metrics`: counts in the text format of Prometheus, for anybody with a credential.
pub(crate) async fn metrics(ask: Ask) -> Answer {
    ask.who().await?;
    let mut response = Response::new(Body::from(counts(&ask.door)));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4"),
    );
    Ok(response)
}

fn counts(door: &Door) -> String {
    let mut out = String::from("# TYPE weft_http_requests_total counter\n");
    // Writing to a string cannot fail.
    for (class, count) in door.counts.classes() {
        let _ = writeln!(out, "weft_http_requests_total{{class=\"{class}\"}} {count}");
    }
    let gauges = [
        ("weft_http_connections", door.connections_open() as u64),
        (
            "weft_http_requests_open",
            door.requests_open.load(Ordering::Relaxed),
        ),
        ("weft_http_streams", door.streams_open() as u64),
        ("weft_tasks_running", door.house.live.len() as u64),
        ("weft_mesh_sequence", door.house.store.newest()),
    ];
    for (name, value) in gauges {
        let _ = writeln!(out, "# TYPE {name} gauge\n{name} {value}");
    }
    out
}
