//! A panic inside an actor ends that actor's machine and nothing else: it is rebuilt, its neighbours and the node never notice.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use serde_json::{Value, json};
use weft_tests::tasks::{completions, durable, ended, events, inbox, record};
use weft_tests::{Client, Node, Stage, eventually};

const TOPIC: &str = "jobs";

fn node(stage: &Stage, fail_points: &str) -> Node {
    stage.node_with(&[], &[("WEFT_FAIL_POINTS", fail_points)])
}

/// The node is the same and works for others.
fn assert_unharmed(client: &Client, node: &Node, neighbour: &str) {
    assert_eq!(
        client.call("node.status", json!({})).ok("status")["pid"],
        node.pid()
    );
    assert_eq!(record(client, neighbour)["state"], "running");
    let other = client.clone().session("other");
    let id = durable(&other, "exit 4", TOPIC);
    assert_eq!(ended(&other, &id)["exitCode"], 4);
}

#[test]
fn a_stop_that_fails_inside_answers_an_error_and_the_next_one_works() {
    let stage = Stage::new();
    let node = node(&stage, "task.stop=1");
    let client = stage.client();
    let published = client
        .call("mesh.publish", json!({"topic": TOPIC, "text": "before"}))
        .ok("a publish");
    let (id, neighbour) = (
        durable(&client, "sleep 100", TOPIC),
        durable(&client, "sleep 100", TOPIC),
    );
    // Until its actor has met the shim, a stop goes to the shim alone.
    eventually("both actors are connected", || {
        let status = client.call("node.status", json!({})).ok("status");
        (status["runningTasks"] == 2).then_some(())
    });
    let refused = client.call("tasks.stop", json!({"id": id}));
    assert_eq!(
        (refused.status, refused.slug().as_str()),
        (503, "actor-failed"),
        "{refused:?}"
    );
    assert!(
        refused.body["detail"].as_str().unwrap().contains(&id),
        "{refused:?}"
    );
    assert_eq!(record(&client, &id)["state"], "running");
    assert_unharmed(&client, &node, &neighbour);
    let stopped = client
        .call("tasks.stop", json!({"id": id}))
        .ok("the second stop");
    assert_eq!(stopped["task"]["state"], "killed");
    let all = eventually("its end is announced", || {
        Some(events(&client, TOPIC)).filter(|all| completions(all).contains_key(&id))
    });
    assert_eq!(completions(&all)[&id], 1);
    assert_eq!(
        all[0]["id"], published["id"],
        "an acknowledged event is gone"
    );
    assert_eq!(record(&client, &neighbour)["state"], "running");
    let log = node.kill();
    assert!(
        log.contains("fail point task.stop"),
        "the log does not tell: {log}"
    );
}

#[test]
fn a_task_whose_actor_fails_at_every_step_is_announced_once() {
    // At most five failures of one child are answered with a restart; each of these meets another step of some task.
    for count in 1..=5 {
        let stage = Stage::new();
        let node = node(&stage, &format!("task.on={count}"));
        let client = stage.client();
        let go = stage.dir().join("go");
        let id = durable(
            &client,
            &format!(
                "while [ ! -e {} ]; do sleep 0.02; done; exit 3",
                go.display()
            ),
            TOPIC,
        );
        std::fs::write(go, "").unwrap();
        let task = ended(&client.clone().session("looker"), &id);
        assert_eq!(
            (&task["state"], &task["exitCode"]),
            (&json!("failed"), &json!(3))
        );
        let neighbour = durable(&client, "sleep 100", "elsewhere");
        assert_unharmed(&client, &node, &neighbour);
        assert_eq!(completions(&events(&client, TOPIC))[&id], 1);
        assert_eq!(
            inbox(&client, "cli")
                .iter()
                .filter(|item| item["taskId"] == id.as_str())
                .count(),
            1
        );
        let (code, log) = node.terminate();
        assert_eq!(code, 0, "{log}");
        assert!(log.contains("fail point task.on"), "{log}");
    }
}

#[test]
fn an_actor_that_fails_without_end_is_given_up_and_the_next_node_announces_its_task() {
    let stage = Stage::new();
    let node = node(&stage, "task.on=1000000");
    let client = stage.client();
    let id = durable(&client, "exit 3", TOPIC);
    // The shim's own post needs no actor.
    let others: Vec<Value> = eventually("its event", || {
        Some(events(&client, TOPIC)).filter(|all| !all.is_empty())
    });
    assert_eq!(completions(&others)[&id], 1);
    assert_eq!(ended(&client, &id)["exitCode"], 3);
    node.kill();
    let _node = stage.node(&[]);
    assert_eq!(completions(&events(&client, TOPIC))[&id], 1);
}

#[test]
fn a_resident_that_fails_inside_handles_its_event_once() {
    let stage = Stage::new();
    let node = node(&stage, "resident.on=4");
    let client = stage.client();
    let ran = stage.dir().join("ran");
    let make = |name: &str| {
        let script = format!(
            "cat > /dev/null; echo {name} $WEFT_EVENT_SEQUENCE $WEFT_EVENT_ATTEMPT >> {}",
            ran.display()
        );
        let input = json!({"name": name, "topics": [TOPIC], "handler": {"exec": {"argv": ["sh", "-c", script]}}});
        client.call("residents.create", input).ok("a resident");
    };
    make("one");
    make("two");
    for text in ["first", "second"] {
        client
            .call("mesh.publish", json!({"topic": TOPIC, "text": text}))
            .ok("a publish");
    }
    for name in ["one", "two"] {
        let entries = eventually("both events are acknowledged", || {
            let log = client
                .call("residents.log", json!({"name": name}))
                .ok("a log");
            let entries = log["entries"].as_array().unwrap().clone();
            (entries.len() >= 2).then_some(entries)
        });
        let told: Vec<_> = entries
            .iter()
            .map(|entry| {
                (
                    entry["sequence"].as_u64().unwrap(),
                    entry["state"].as_str().unwrap(),
                    entry["attempt"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [(1, "acknowledged", 1), (2, "acknowledged", 1)],
            "{name}"
        );
    }
    let ran = std::fs::read_to_string(ran).unwrap();
    let mut runs: Vec<&str> = ran.lines().collect();
    runs.sort_unstable();
    assert_eq!(runs, ["one 1 1", "one 2 1", "two 1 1", "two 2 1"]);
    let (code, log) = node.terminate();
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("fail point resident.on"), "{log}");
}
