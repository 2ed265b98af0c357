//! Events and output as they reach those who read: names, cursors, streams, waits and text.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod names;
mod output;
mod reads;
mod sse;
mod stalled;
mod waits;

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use weft_tests::{Client, SseEvent};

/// Follows a stream until `done` says so of a block, and answers all of them.
fn follow(
    client: &Client,
    path: &str,
    mut done: impl FnMut(&SseEvent) -> bool,
) -> io::Result<Vec<SseEvent>> {
    let mut all = Vec::new();
    client.stream(path, |event| {
        let go_on = !done(&event);
        all.push(event);
        go_on
    })?;
    Ok(all)
}

/// The sequences of the events among blocks.
fn sequences(blocks: &[SseEvent]) -> Vec<u64> {
    blocks
        .iter()
        .filter_map(|block| block.json()["sequence"].as_u64())
        .collect()
}

/// Publishes texts `0`, `1`, … to a topic, a hundred at a time.
fn publish_many(client: &Client, topic: &str, count: usize, text: &str) {
    let numbers: Vec<usize> = (0..count).collect();
    for some in numbers.chunks(100) {
        let events: Vec<Value> = some
            .iter()
            .map(|n| json!({"topic": topic, "text": text, "data": n}))
            .collect();
        client
            .call("mesh.publishBatch", json!({"events": events}))
            .ok("mesh.publishBatch");
    }
}

/// Keeps no more than this many events of a topic from now on.
fn keep_events(client: &Client, topic: &str, count: u64) {
    client
        .call("mesh.retain", json!({"topic": topic, "maxCount": count}))
        .ok("mesh.retain");
}

/// A shell's wait for a file: what a test decides when it is made.
fn until(gate: &Path) -> String {
    format!("until [ -e '{}' ]; do sleep 0.02; done", gate.display())
}

/// Kilobytes of a process's memory, by a line of its status.
fn memory_kib(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|it| it.strip_prefix(line)).unwrap();
    found
        .trim_matches(|letter: char| !letter.is_ascii_digit())
        .parse()
        .unwrap()
}
