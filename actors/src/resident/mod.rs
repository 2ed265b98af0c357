//! Residents: durable actors that subscribe to topics and act on each event, one at a time.
//!
//! The log is the mailbox: a resident reads it by its durable cursor, runs its handler for one event, and moves the cursor in
//! the transaction that records the outcome. A handler's run is a task with a key of its own, recorded before it starts, so a
//! node that comes back joins the live run or reads its end instead of running the handler twice.

pub mod actor;
pub mod cloudevent;
pub mod machine;
pub mod rows;
pub mod run;
pub mod spec;
pub mod wake;

/// Runs of resident `x` belong to the session `resident.x`. No caller's session holds a dot, so none can be taken for it.
pub const SESSION_PREFIX: &str = "resident.";

/// The session of a resident's runs.
pub fn session_of(name: &str) -> String {
    format!("{SESSION_PREFIX}{name}")
}

/// The topic on which a resident alone is told something; reserved, so that only `residents.tell` writes it.
pub fn tell_topic(name: &str) -> String {
    format!("weft.resident.{name}")
}

/// The key that waiters of a resident's log watch.
pub fn log_key(name: &str) -> String {
    format!("resident-log:{name}")
}

/// The topics of dead letters begin so.
pub const DEAD_PREFIX: &str = "weft.dead.";

/// Where events go that a resident gave up.
pub fn dead_topic(name: &str) -> String {
    format!("{DEAD_PREFIX}{name}")
}
