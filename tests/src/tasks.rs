//! Tasks and what became of them, through the actions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::http::Client;
use crate::processes;
use crate::stage::{Stage, eventually};

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

/// The shims of a home: processes that stand in its task folders, without those they are about to start.
pub fn shims(home: &Path) -> Vec<u32> {
    let found = processes::with_cwd_below(&home.join("tasks"));
    let is_child = |pid: u32| processes::parent(pid).is_some_and(|parent| found.contains(&parent));
    found
        .iter()
        .copied()
        .filter(|pid| !is_child(*pid))
        .collect()
}

/// A shell line that goes on to `end` when the answered file appears, however long the test takes to make it.
pub fn gated(stage: &Stage, end: &str) -> (String, PathBuf) {
    let go = stage.dir().join("go");
    (
        format!(
            "while [ ! -e {} ]; do sleep 0.02; done; {end}",
            go.display()
        ),
        go,
    )
}

/// The completion event of a task, once it is there.
#[track_caller]
pub fn completion(client: &Client, topic: &str, id: &str) -> Value {
    let event_id = format!("completion:{id}");
    eventually("the completion event is there", || {
        events(client, topic)
            .into_iter()
            .find(|event| event["id"] == event_id)
    })
}

/// Looks at the whole of a completion event: what is not named here must not be in it.
#[track_caller]
pub fn assert_completion(client: &Client, topic: &str, id: &str, kind: &str, data: &Value) {
    let event = completion(client, topic, id);
    let grant = record(client, id)["notify"]["grantId"].clone();
    assert!(grant.is_string(), "{event}");
    assert!(
        event["sequence"]
            .as_u64()
            .is_some_and(|sequence| sequence > 0),
        "{event}"
    );
    assert!(
        event["createdAt"]
            .as_u64()
            .is_some_and(|at| at > 1_600_000_000_000),
        "{event}"
    );
    let expected = json!({
        "id": format!("completion:{id}"), "sequence": event["sequence"], "topic": topic, "kind": kind, "from": format!("task:{id}"),
        "to": null, "text": null, "data": data, "createdAt": event["createdAt"], "origin": "external", "untrusted": true,
        "grantId": grant, "scheduled": null
    });
    assert_eq!(event, expected);
}

/// `sleep` of a length that nobody else on this machine sleeps.
pub fn unique_sleep() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "sleep 44{}.{}",
        COUNT.fetch_add(1, Ordering::Relaxed),
        std::process::id()
    )
}

/// Waits until as many processes as that are this very `sleep`.
#[track_caller]
pub fn sleepers(sleep: &str, count: usize) -> Vec<u32> {
    let is_sleep = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|comm| comm.trim() == "sleep")
    };
    eventually("the sleepers sleep", || {
        let found: Vec<u32> = processes::running(sleep)
            .into_iter()
            .filter(is_sleep)
            .collect();
        (found.len() == count).then_some(found)
    })
}
