//! A wall clock that somebody sets, and a node that stands still for a while.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

use rustix::process::Signal;
use serde_json::{Value, json};
use weft_tests::{Client, MovedClock, Node, Stage, eventually, processes, tasks};

const HOUR: i64 = 3600;

/// A node whose wall clock the test moves.
fn moved(stage: &Stage) -> (MovedClock, Node, Client) {
    let clock = MovedClock::new(stage.dir());
    let node = stage.node_with(&[], &clock.variables());
    (clock, node, Client::unix(stage.home()))
}

/// Sets the clock, and shows that the node goes by it.
fn set(clock: &MovedClock, client: &Client, seconds: i64) {
    clock.set(seconds);
    let event = client
        .call("mesh.publish", json!({"topic": "clock"}))
        .ok("an event");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let by_node = event["createdAt"].as_u64().unwrap() / 1000;
    let off = by_node.cast_signed() - now.cast_signed();
    assert!((off - seconds).abs() < 60, "{off} is not {seconds}");
}

#[test]
fn a_clock_that_jumps_ends_no_task_and_makes_none_look_long() {
    let stage = Stage::new();
    let (clock, _node, client) = moved(&stage);
    let (line, go) = tasks::gated(&stage, "echo ok");
    let id = tasks::start(
        &client,
        json!({"line": line, "lease": "durable", "timeoutMs": 60_000, "notify": {"topic": "ends"}}),
    );
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| tasks::ended(&client, &id));
        for seconds in [HOUR, -HOUR] {
            set(&clock, &client, seconds);
            assert_eq!(tasks::record(&client, &id)["state"], "running");
            assert!(!wait.is_finished());
        }
        std::fs::write(&go, "").unwrap();
        let task = wait.join().unwrap();
        assert_eq!(
            (&task["state"], &task["exitCode"]),
            (&json!("exited"), &json!(0))
        );
        let (began, ended) = (&task["startedAt"], &task["finishedAt"]);
        let ran = ended.as_u64().unwrap().checked_sub(began.as_u64().unwrap());
        assert!(ran.is_some_and(|ran| ran < 60_000), "{ran:?}: {task}");
    });
    let read = client
        .call("tasks.read", json!({"id": id}))
        .ok("tasks.read");
    assert_eq!(read["text"], "ok\n");
    let ends = tasks::completions(&tasks::events(&client, "ends"));
    assert_eq!(ends, [(id, 1)].into());
}

#[test]
fn a_grant_holds_by_the_wall_clock() {
    let stage = Stage::new();
    let (clock, _node, client) = moved(&stage);
    let grant = client
        .call(
            "mesh.grant",
            json!({"topic": "builds", "ttlMs": 60_000, "uses": 1}),
        )
        .ok("a grant");
    let bearer = client.clone().bearer(grant["token"].as_str().unwrap());
    for (seconds, refusal) in [(HOUR, "grant-expired"), (-HOUR, "grant-early")] {
        set(&clock, &client, seconds);
        let refused = bearer.post("/v1/topics/builds/events", &json!({}));
        assert_eq!(refused.slug(), refusal, "{}", refused.text);
    }
    set(&clock, &client, 0);
    let posted = bearer.post("/v1/topics/builds/events", &json!({}));
    assert_eq!(posted.status, 200, "{}", posted.text);
    assert_eq!(tasks::events(&client, "builds").len(), 1);
}

#[test]
fn a_node_that_stood_still_has_every_byte_and_calls_nobody_lost() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let (line, go) = tasks::gated(&stage, "seq 100000; exit 3");
    let id = tasks::durable(&client, &line, "ends");
    let shim = tasks::shim(&client, &id).unwrap();
    processes::signal(node.pid(), Signal::STOP);
    std::fs::write(&go, "").unwrap();
    let receipt = stage.home().join("tasks").join(&id).join("receipt.json");
    eventually("the task ends without its node", || {
        receipt.exists().then_some(())
    });
    eventually("its shim is through", || {
        (!processes::is_alive(shim)).then_some(())
    });
    processes::signal(node.pid(), Signal::CONT);
    let task = tasks::ended(&client, &id);
    assert_eq!(
        (&task["state"], &task["exitCode"]),
        (&json!("failed"), &json!(3))
    );
    let logs = stage.run(["logs", &id]).expect_code(0).stdout;
    let printed = logs.lines().map(|line| line.parse::<u32>().unwrap());
    assert!(printed.eq(1..=100_000), "{} bytes", logs.len());
    let ends: Vec<Value> = tasks::events(&client, "ends");
    assert_eq!(tasks::completions(&ends), [(id, 1)].into());
}
