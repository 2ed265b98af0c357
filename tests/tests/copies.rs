//! Homes that are copied, and nodes that come back: what was announced, and who is signalled.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::process::Command;

use serde_json::json;
use weft_tests::{Client, Stage, eventually, processes};

#[test]
fn a_trusted_copy_of_a_home_leaves_the_tasks_of_the_original_alone() {
    let stage = Stage::new();
    let original = stage.node(&[]);
    let task = stage.call(
        "tasks.run",
        json!({"argv": ["sleep", "1000"], "lease": "durable", "notify": {"topic": "done"}}),
    );
    let (id, pid) = (
        task["id"].as_str().expect("an id").to_owned(),
        task["pid"].as_u64().expect("a pid") as u32,
    );
    let copy = stage.dir().join("copy");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(stage.home())
        .arg(&copy)
        .status()
        .expect("cp");
    assert!(copied.success());
    let weft = |args: &[&str]| {
        let mut command = stage.weft(args);
        command.env("WEFT_HOME", &copy);
        weft_tests::stage::finish(&mut command)
    };
    let trusted = weft(&["home", "trust", copy.to_str().expect("a text")]);
    assert_eq!(trusted.code, 0, "{trusted:?}");
    // In the copy the task is lost, since it never ran there; that is told once, and nobody is signalled.
    let there = eventually("the copy looks after its rows", || {
        let output = weft(&["get", &id, "--json"]);
        (output.code == 0)
            .then(|| output.json()["task"].clone())
            .filter(|task| task["running"] == false)
    });
    assert_eq!(
        (&there["state"], &there["reason"], &there["descendants"]),
        (&json!("lost"), &json!("copied"), &json!("unknown"))
    );
    assert!(
        processes::is_alive(pid),
        "the original's process was ended by its copy"
    );
    let here = Client::unix(stage.home())
        .call("tasks.get", json!({"id": id}))
        .ok("tasks.get");
    assert_eq!(here["task"]["state"], "running");
    let _ = weft(&["node", "stop"]);
    drop(original);
}

#[test]
fn the_first_caller_of_a_new_node_sees_what_ended_without_one() {
    for round in 0..5 {
        let stage = Stage::new();
        let node = stage.node(&[]);
        let go = stage.dir().join("go");
        let line = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
        let task = stage.call(
            "tasks.run",
            json!({"line": line, "lease": "durable", "notify": {"topic": "done"}}),
        );
        let id = task["id"].as_str().expect("an id").to_owned();
        node.kill();
        std::fs::write(&go, "").expect("the cue");
        let receipt = stage.home().join("tasks").join(&id).join("receipt.json");
        eventually("the task has ended", || receipt.exists().then_some(()));
        let events = stage.json(["mesh", "read", "done", "--json"]);
        assert_eq!(
            events["events"].as_array().map(Vec::len),
            Some(1),
            "round {round}: {events}"
        );
        let listed = stage.json(["ps", "--all", "--json"]);
        assert_eq!(
            listed["tasks"][0]["state"], "exited",
            "round {round}: {listed}"
        );
    }
}
