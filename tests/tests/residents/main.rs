//! Residents with a handler that runs: order, retries, dead letters, and what survives what.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod life;
mod runs;

use std::path::PathBuf;

use serde_json::{Value, json};
use weft_tests::{Client, Stage, eventually};

/// A home with a node that can be killed, and a file into which handlers write.
struct Scene {
    stage: Stage,
    client: Client,
}

impl Scene {
    fn new() -> Self {
        let stage = Stage::new();
        let client = stage.client();
        Scene { stage, client }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.dir().join(name)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Creates a resident `r` on `t` with a shell line as handler.
    #[track_caller]
    fn create(&self, line: &str, more: Value) -> Value {
        let mut input = json!({"name": "r", "topics": ["t"], "handler": {"exec": {"argv": ["/bin/sh", "-c", line]}}, "cwd": self.stage.dir()});
        for (name, value) in more.as_object().unwrap() {
            input[name] = value.clone();
        }
        self.client
            .call("residents.create", input)
            .ok("residents.create")["resident"]
            .clone()
    }

    fn publish(&self, data: Value) -> u64 {
        let event = self
            .client
            .call("mesh.publish", json!({"topic": "t", "data": data}))
            .ok("mesh.publish");
        event["sequence"].as_u64().unwrap()
    }

    fn log(&self) -> Vec<Value> {
        let log = self
            .client
            .call("residents.log", json!({"name": "r"}))
            .ok("residents.log");
        log["entries"].as_array().unwrap().clone()
    }

    /// Waits until the log of `r` has so many entries of this state, and answers all entries.
    #[track_caller]
    fn settled(&self, state: &str, count: usize) -> Vec<Value> {
        eventually("the resident is through", || {
            let log = self.log();
            let found = log.iter().filter(|entry| entry["state"] == state).count();
            assert!(found <= count, "{log:?}");
            (found == count).then_some(log)
        })
    }

    fn act(&self, verb: &str) -> Value {
        self.client
            .call(&format!("residents.{verb}"), json!({"name": "r"}))
            .ok(verb)["resident"]
            .clone()
    }
}

fn sequences(entries: &[Value]) -> Vec<u64> {
    entries
        .iter()
        .map(|entry| entry["sequence"].as_u64().unwrap())
        .collect()
}
