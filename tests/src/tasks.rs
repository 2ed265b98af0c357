//! Tasks and what became of them, through the actions.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::http::Client;
use crate::processes;
use crate::stage::eventually;

/// Milliseconds a single wait may last; the tests' own patience is shorter.
const WAIT_MS: u64 = 60_000;

/// Starts a task as `input` says and answers its id.
#[track_caller]
pub fn start(client: &Client, input: Value) -> String {
    let record = client.call("tasks.run", input).ok("tasks.run");
    record["id"]
        .as_str()
        .expect("a record has an id")
        .to_owned()
}

/// Starts a durable shell line, announced on `topic`.
#[track_caller]
pub fn durable(client: &Client, line: &str, topic: &str) -> String {
    start(
        client,
        json!({"line": line, "lease": "durable", "notify": {"topic": topic}}),
    )
}

/// Waits for the end of a task and answers its record. Acknowledges the end where the client acts as the owner.
#[track_caller]
pub fn ended(client: &Client, id: &str) -> Value {
    let answer = client
        .call("tasks.wait", json!({"id": id, "timeoutMs": WAIT_MS}))
        .ok("tasks.wait");
    assert_eq!(answer["timedOut"], false, "task {id} did not end: {answer}");
    answer["task"].clone()
}

/// A task's record by a list, which acknowledges nothing.
#[track_caller]
pub fn record(client: &Client, id: &str) -> Value {
    let list = client
        .call("tasks.list", json!({"all": true}))
        .ok("tasks.list");
    let tasks = list["tasks"].as_array().expect("a list of tasks");
    tasks
        .iter()
        .find(|task| task["id"] == id)
        .cloned()
        .unwrap_or(Value::Null)
}

/// Waits for the end of a task without acknowledging it.
#[track_caller]
pub fn unread_end(client: &Client, id: &str) -> Value {
    eventually("the task's end is known", || {
        Some(record(client, id))
            .filter(|task| task["running"] == false && task["finishedAt"].is_u64())
    })
}

/// All events of a topic that are kept.
#[track_caller]
pub fn events(client: &Client, topic: &str) -> Vec<Value> {
    let mut events = Vec::new();
    let mut after = 0;
    loop {
        let page = client
            .call(
                "mesh.read",
                json!({"topics": [topic], "after": after, "limit": 1000}),
            )
            .ok("mesh.read");
        let found = page["events"].as_array().expect("a list of events");
        if found.is_empty() {
            return events;
        }
        after = page["next"].as_u64().expect("a cursor");
        events.extend(found.iter().cloned());
    }
}

/// How often each task's completion stands among events.
pub fn completions(events: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for event in events {
        if let Some(id) = event["id"]
            .as_str()
            .and_then(|id| id.strip_prefix("completion:"))
        {
            *counts.entry(id.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// What waits in the inbox of a session, without acknowledging it.
#[track_caller]
pub fn inbox(client: &Client, session: &str) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    loop {
        let after = items
            .last()
            .map_or(0, |item| item["seq"].as_u64().expect("a place"));
        let page = client
            .call("inbox.read", json!({"session": session, "after": after}))
            .ok("inbox.read");
        let found = page["items"].as_array().expect("a list of items");
        if found.is_empty() {
            return items;
        }
        items.extend(found.iter().cloned());
    }
}

/// The shim of a living task: whoever holds the task's folder as its working directory and is the parent of its process.
pub fn shim(client: &Client, id: &str) -> Option<u32> {
    let pid = record(client, id)["pid"].as_u64()?;
    processes::parent(u32::try_from(pid).ok()?)
}

/// The shims of a home: processes that stand in its task folders.
pub fn shims(home: &Path) -> Vec<u32> {
    processes::with_cwd_below(&home.join("tasks"))
}
