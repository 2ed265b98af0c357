//! The runs of a handler: one at a time, tried again, ended by their deadline, and never twice.

use std::time::Duration;

use serde_json::{Value, json};
use weft_tests::{Client, Stage, eventually, processes, tasks};

use super::{Scene, sequences};

#[test]
fn events_are_handled_one_at_a_time_and_in_order() {
    let scene = Scene::new();
    scene.create(
        "echo begin $WEFT_EVENT_SEQUENCE >> out; sleep 0.01; echo end $WEFT_EVENT_SEQUENCE >> out",
        json!({}),
    );
    let published: Vec<u64> = (0..20).map(|n| scene.publish(json!(n))).collect();
    let log = scene.settled("acknowledged", 20);
    assert_eq!(sequences(&log), published);
    assert!(
        log.iter()
            .all(|entry| entry["attempt"] == 1 && entry["taskId"].is_string())
    );
    let wanted: Vec<String> = published
        .iter()
        .flat_map(|n| [format!("begin {n}"), format!("end {n}")])
        .collect();
    assert_eq!(scene.lines("out"), wanted);
    // Its runs are tasks of a session of its own, whose ends are delivered to nobody.
    let task = tasks::record(&scene.client, log[0]["taskId"].as_str().unwrap());
    assert_eq!(
        (&task["session"], &task["lease"], &task["state"]),
        (&json!("resident.r"), &json!("durable"), &json!("exited"))
    );
    assert_eq!(tasks::inbox(&scene.client, "cli").len(), 0);
    assert_eq!(scene.act("get")["cursor"], *published.last().unwrap());
}

#[test]
fn a_handler_gets_the_event_on_stdin_and_in_its_environment() {
    let scene = Scene::new();
    scene.create("cat > body; env > env", json!({"env": {"MINE": "a b"}}));
    let grant = scene
        .client
        .call("mesh.grant", json!({"topic": "t", "kind": "ci.finished"}))
        .ok("a grant");
    let posted = scene
        .client
        .clone()
        .bearer(grant["token"].as_str().unwrap())
        .post(
            "/v1/topics/t/events",
            &json!({"data": {"ok": true, "big": 12_345_678_901_234_567_u64}}),
        )
        .ok("a post");
    scene.settled("acknowledged", 1);
    let event: Value =
        serde_json::from_str(&std::fs::read_to_string(scene.file("body")).unwrap()).unwrap();
    for (name, value) in [
        ("specversion", json!("1.0")),
        ("id", posted["id"].clone()),
        ("type", json!("ci.finished")),
        ("datacontenttype", json!("application/json")),
        (
            "data",
            json!({"ok": true, "big": 12_345_678_901_234_567_u64}),
        ),
        ("topic", json!("t")),
        ("sequence", json!(posted["sequence"].to_string())),
        ("origin", json!("external")),
        ("untrusted", json!(true)),
        ("grantid", grant["grantId"].clone()),
    ] {
        assert_eq!(event[name], value, "{name}: {event}");
    }
    let env = scene.lines("env");
    for (name, value) in [
        ("WEFT_EVENT_ID", posted["id"].as_str().unwrap()),
        ("WEFT_EVENT_SEQUENCE", &posted["sequence"].to_string()),
        ("WEFT_EVENT_TOPIC", "t"),
        ("WEFT_EVENT_KIND", "ci.finished"),
        ("WEFT_EVENT_ORIGIN", "external"),
        ("WEFT_EVENT_UNTRUSTED", "true"),
        ("WEFT_EVENT_ATTEMPT", "1"),
        ("WEFT_EVENT_RESIDENT", "r"),
        ("MINE", "a b"),
        ("WEFT_SESSION", "resident.r"),
    ] {
        assert!(
            env.contains(&format!("{name}={value}")),
            "{name}={value} is missing: {env:?}"
        );
    }
    assert!(
        env.iter().any(|line| line.starts_with("WEFT_TASK_ID=t-"))
            && env.iter().any(|line| line.starts_with("WEFT_HOME="))
    );
    assert!(
        !env.iter().any(|line| line.contains("eyJ")),
        "a token is in the environment"
    );
}

#[test]
fn a_failing_handler_is_tried_again_with_growing_pauses_and_then_lettered_once() {
    let scene = Scene::new();
    scene.create(
        "echo $WEFT_EVENT_ATTEMPT >> out; [ \"$(cat | grep -c good)\" = 1 ] || exit 3",
        json!({"retries": 2}),
    );
    let bad = scene.publish(json!("bad"));
    let good = scene.publish(json!("good"));
    let log = scene.settled("acknowledged", 1);
    let states: Vec<(&Value, &Value, u64)> = log
        .iter()
        .map(|entry| {
            (
                &entry["state"],
                &entry["attempt"],
                entry["sequence"].as_u64().unwrap(),
            )
        })
        .collect();
    let (failed, dead, acknowledged) = (json!("failed"), json!("dead"), json!("acknowledged"));
    let (one, two, three) = (json!(1), json!(2), json!(3));
    assert_eq!(
        states,
        [
            (&failed, &one, bad),
            (&failed, &two, bad),
            (&dead, &three, bad),
            (&acknowledged, &one, good)
        ]
    );
    assert!(
        log[..3]
            .iter()
            .all(|entry| entry["reason"] == "exit code 3"),
        "{log:?}"
    );
    let at = |n: usize| log[n]["at"].as_u64().unwrap();
    assert!(at(1) - at(0) >= 500 && at(2) - at(1) >= 1000, "{log:?}");
    assert_eq!(scene.lines("out"), ["1", "2", "3", "1"]);

    let letters = scene.stage.events(&["weft.dead.r"]);
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!(
        (
            &letter["from"],
            &letter["data"]["attempts"],
            &letter["data"]["reason"]
        ),
        (&json!("resident:r"), &three, &json!("exit code 3"))
    );
    assert_eq!(
        (
            &letter["data"]["event"]["sequence"],
            &letter["data"]["event"]["data"]
        ),
        (&json!(bad), &json!("bad"))
    );
}

#[test]
fn retries_are_counted_over_a_kill_of_the_node() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let scene = Scene { stage, client };
    scene.create(
        "echo $WEFT_EVENT_ATTEMPT >> out; exit 1",
        json!({"retries": 1}),
    );
    scene.publish(json!(0));
    scene.settled("failed", 1);
    node.kill();
    let _node = scene.stage.node(&[]);
    let log = scene.settled("dead", 1);
    assert_eq!(log.len(), 2);
    assert_eq!(scene.lines("out"), ["1", "2"]);
    assert_eq!(scene.stage.events(&["weft.dead.r"]).len(), 1);
}

#[test]
fn a_handler_that_cannot_start_is_a_failure_with_its_reason() {
    let scene = Scene::new();
    for (name, argv, cwd) in [
        ("missing", json!(["/nonexistent/handler"]), "/"),
        ("not-runnable", json!(["/etc/passwd"]), "/"),
        ("nowhere", json!(["/bin/true"]), "/nonexistent/cwd"),
    ] {
        let input = json!({"name": name, "topics": ["t"], "handler": {"exec": {"argv": argv}}, "retries": 0, "cwd": cwd});
        scene.client.call("residents.create", input).ok(name);
    }
    scene.publish(json!(1));
    for name in ["missing", "not-runnable", "nowhere"] {
        let letter = eventually("the letter is there", || {
            scene.stage.events(&[&format!("weft.dead.{name}")]).pop()
        });
        let reason = letter["data"]["reason"].as_str().unwrap();
        assert!(
            reason.contains("No such file") || reason.contains("ermission denied"),
            "{name}: {reason}"
        );
    }
    // Nothing of it stays behind as a task.
    let list = scene
        .client
        .call("tasks.list", json!({"all": true}))
        .ok("tasks.list");
    assert_eq!(list["tasks"], json!([]));
}

#[test]
fn a_handler_s_deadline_ends_its_whole_tree() {
    let scene = Scene::new();
    scene.create(
        "setsid sleep 77.31 & sleep 77.31",
        json!({"retries": 0, "timeoutMs": 300}),
    );
    scene.publish(json!(1));
    let log = scene.settled("dead", 1);
    assert_eq!(log[0]["reason"], "its deadline passed");
    let task = tasks::record(&scene.client, log[0]["taskId"].as_str().unwrap());
    assert_eq!(task["state"], "timed_out");
    let left: Vec<u32> = processes::running("sleep 77.31")
        .into_iter()
        .filter(|pid| scene.stage.processes().contains(pid))
        .collect();
    assert_eq!(left, Vec::<u32>::new());
}

#[test]
fn a_kill_of_the_node_runs_no_handler_twice() {
    let stage = Stage::new();
    let mut node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let scene = Scene { stage, client };
    let gate = scene.file("gate");
    scene.create(&format!("echo $WEFT_EVENT_SEQUENCE $WEFT_EVENT_ATTEMPT >> out; until [ -e {} ]; do sleep 0.02; done", gate.display()), json!({}));
    let published: Vec<u64> = (0..3).map(|n| scene.publish(json!(n))).collect();
    for _ in 0..3 {
        eventually("the handler runs", || {
            (scene.lines("out").len() == 1).then_some(())
        });
        node.kill();
        node = scene.stage.node(&[]);
    }
    std::fs::write(&gate, "").unwrap();
    let log = scene.settled("acknowledged", 3);
    assert_eq!(sequences(&log), published);
    assert_eq!(log.len(), 3);
    let wanted: Vec<String> = published.iter().map(|n| format!("{n} 1")).collect();
    assert_eq!(scene.lines("out"), wanted);
    // A run that ends while no node is there counts as well.
    std::fs::remove_file(&gate).unwrap();
    scene.publish(json!(3));
    eventually("the handler runs", || {
        (scene.lines("out").len() == 4).then_some(())
    });
    node.kill();
    std::fs::write(&gate, "").unwrap();
    let log = eventually("the next node settles it", || {
        let log = scene
            .stage
            .client()
            .call("residents.log", json!({"name": "r"}))
            .ok("its log")["entries"]
            .clone();
        (log.as_array()?.len() == 4).then_some(log)
    });
    assert_eq!(
        (&log[3]["state"], &log[3]["attempt"]),
        (&json!("acknowledged"), &json!(1))
    );
    assert_eq!(scene.lines("out").len(), 4);
}

#[test]
fn a_slow_resident_holds_up_no_other() {
    let scene = Scene::new();
    scene.create("sleep 60", json!({}));
    let input =
        json!({"name": "quick", "topics": ["t"], "handler": {"exec": {"argv": ["/bin/true"]}}});
    scene
        .client
        .call("residents.create", input)
        .ok("a quick one");
    let begin = std::time::Instant::now();
    for n in 0..10 {
        scene.publish(json!(n));
    }
    eventually("the quick one is through", || {
        let log = scene
            .client
            .call("residents.log", json!({"name": "quick"}))
            .ok("its log");
        (log["entries"].as_array()?.len() == 10).then_some(())
    });
    assert!(begin.elapsed() < Duration::from_secs(30));
    assert_eq!(scene.log().len(), 0);
}
