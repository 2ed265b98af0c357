//! Starts that a node's death cuts off between the row and the command's first byte.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

use serde_json::json;
use weft_tests::{Client, Node, Stage, eventually, tasks};

/// A node that dies as soon as the row of its first task is there.
fn dying(stage: &Stage) -> Node {
    stage.node_with(&[], &[("WEFT_FAIL_POINTS", "launch.committed=1")])
}

#[test]
fn whoever_asks_again_gets_the_command_and_one_end() {
    for how in [
        &["run", "--durable", "--notify", "ends"][..],
        &["run", "--background"],
        &["run"],
    ] {
        let stage = Stage::new();
        let node = dying(&stage);
        let ran = stage.dir().join("ran");
        let line = format!("echo once >> {}", ran.display());
        let run = stage.run(how.iter().copied().chain(["-c", &line]));
        let run = run.expect_code(0);
        node.wait();
        let client = Client::unix(stage.home());
        let task = eventually("the task has ended", || {
            let list = stage.call("tasks.list", json!({"all": true}));
            let tasks = list["tasks"].as_array().unwrap();
            assert_eq!(tasks.len(), 1, "{how:?}: {tasks:?}");
            Some(tasks[0].clone()).filter(|task| task["running"] == false)
        });
        assert_eq!(task["state"], "exited", "{how:?}");
        assert_eq!(std::fs::read_to_string(&ran).unwrap(), "once\n");
        let id = task["id"].as_str().unwrap();
        if how.len() > 1 {
            assert_eq!(run.stdout.trim(), id);
            assert_eq!(tasks::inbox(&client, "cli").len(), 1);
        }
        let ends = tasks::completions(&stage.events(&["ends"]));
        let expected = usize::from(how.contains(&"--notify"));
        assert_eq!(ends.get(id).copied().unwrap_or(0), expected, "{how:?}");
        assert_eq!(ends.len(), expected);
    }
}

#[test]
fn heavy_what_nobody_asks_for_again_is_lost_once() {
    let stage = Stage::new();
    let node = dying(&stage);
    let ran = stage.dir().join("ran");
    let input = json!({"line": format!("echo x > {}", ran.display()), "lease": "durable", "requestId": "r", "notify": {"topic": "ends"}});
    let client = Client::unix(stage.home());
    assert!(client.try_call("tasks.run", input.clone()).is_err());
    node.wait();
    let _node = stage.node(&[]);
    let event = eventually("its end is told", || stage.events(&["ends"]).pop());
    assert_eq!(
        (&event["data"]["state"], &event["data"]["reason"]),
        (&json!("lost"), &json!("never-started"))
    );
    assert!(!ran.exists());
    // A repeat that comes later still than that is a start of its own.
    let task = client.call("tasks.run", input).ok("a late repeat");
    assert_eq!(
        tasks::ended(&client, task["id"].as_str().unwrap())["state"],
        "exited"
    );
    assert_eq!(stage.events(&["ends"]).len(), 2);
    assert!(ran.exists());
}
