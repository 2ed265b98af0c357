//! Interactive tasks: input, terminals, screens, and people attached to them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on should say where"
)]

mod attach;
mod faults;
mod foreground;
mod input;
mod person;
mod screen;

use serde_json::{Value, json};
use weft_tests::tasks::start;
use weft_tests::{Client, eventually};

/// Starts a durable task with a terminal and answers its id.
#[track_caller]
fn on_terminal(client: &Client, line: &str) -> String {
    start(
        client,
        json!({"line": line, "lease": "durable", "io": "pty"}),
    )
}

/// Everything of a stream that is kept.
#[track_caller]
fn output(client: &Client, id: &str, stream: &str) -> String {
    let page = client.call("tasks.read", json!({"id": id, "stream": stream}));
    page.ok("tasks.read")["text"].as_str().unwrap().to_owned()
}

/// Waits until a stream holds this text.
#[track_caller]
fn wait_for(client: &Client, id: &str, stream: &str, text: &str) {
    eventually(text, || {
        output(client, id, stream).contains(text).then_some(())
    });
}

/// The task's screen.
#[track_caller]
fn screen_of(client: &Client, id: &str) -> Value {
    client
        .call("tasks.screen", json!({"id": id}))
        .ok("tasks.screen")
}

/// Waits until a row of the task's screen reads so.
#[track_caller]
fn wait_for_row(client: &Client, id: &str, text: &str) -> Value {
    eventually(text, || {
        let screen = screen_of(client, id);
        let rows = screen["rows"].as_array().unwrap();
        rows.iter().any(|row| row == text).then_some(screen.clone())
    })
}
