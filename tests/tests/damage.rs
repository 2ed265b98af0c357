//! What a hostile user, a broken disk or a task itself may do to a home: told, bounded and never for ever.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use serde_json::{Value, json};
use weft_tests::{Client, Stage, eventually, processes};

fn sleeper(client: &Client) -> (String, u32) {
    let task = client
        .call(
            "tasks.run",
            json!({"argv": ["sleep", "1000"], "lease": "durable"}),
        )
        .ok("tasks.run");
    (
        task["id"].as_str().unwrap().to_owned(),
        u32::try_from(task["pid"].as_u64().unwrap()).unwrap(),
    )
}

fn events(client: &Client, topic: &str) -> Vec<Value> {
    let page = client
        .call("mesh.read", json!({"topics": [topic]}))
        .ok("mesh.read");
    page["events"].as_array().unwrap().clone()
}

#[test]
fn a_stop_while_the_task_is_starting_ends_it() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    for round in 0..20_u64 {
        let client = Client::unix(stage.home());
        let before: Vec<_> = stage
            .home()
            .join("tasks")
            .read_dir()
            .unwrap()
            .flatten()
            .map(|it| it.file_name())
            .collect();
        let starter = client.clone();
        let words = format!("{}.{round}", 6000 + std::process::id());
        let argv = words.clone();
        let start = std::thread::spawn(move || {
            starter.call(
                "tasks.run",
                json!({"argv": ["sleep", argv], "lease": "durable"}),
            )
        });
        // The folder shows the id before the start is answered.
        let id = eventually("a new folder", || {
            let mut now = stage
                .home()
                .join("tasks")
                .read_dir()
                .unwrap()
                .flatten()
                .map(|it| it.file_name());
            now.find(|name| !before.contains(name))
                .map(|name| name.to_string_lossy().into_owned())
        });
        std::thread::sleep(Duration::from_micros(300 * (round % 10)));
        let stopped = client
            .call("tasks.stop", json!({"id": id}))
            .ok("tasks.stop");
        assert_eq!(
            stopped["task"]["state"], "killed",
            "round {round}: {stopped}"
        );
        start.join().unwrap();
        assert!(
            processes::running(&format!("sleep {words}")).is_empty(),
            "round {round}"
        );
    }
}

/// What it is called, and what it does to a file.
type Damage = (&'static str, fn(&std::path::Path));

#[test]
fn a_damaged_receipt_is_told_as_a_lost_end_once() {
    let damages: [Damage; 5] = [
        ("empty", |path| std::fs::write(path, "").unwrap()),
        ("half", |path| std::fs::write(path, "{").unwrap()),
        ("noise", |path| {
            std::fs::write(path, [0xff_u8; 300]).unwrap();
        }),
        ("folder", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }),
        ("link", |path| {
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
        }),
    ];
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let go = stage.dir().join("go");
    let line = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
    let ids: Vec<String> = damages
        .iter()
        .map(|_| {
            let input = json!({"line": line, "lease": "durable", "notify": {"topic": "done"}});
            client.call("tasks.run", input).ok("tasks.run")["id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    node.kill();
    std::fs::write(&go, "").unwrap();
    for (id, (_, damage)) in ids.iter().zip(&damages) {
        let folder = stage.home().join("tasks").join(id);
        eventually("the task has ended and its shim is gone", || {
            let gone = processes::with_cwd_below(&folder).is_empty();
            (folder.join("receipt.json").exists() && gone).then_some(())
        });
        damage(&folder.join("receipt.json"));
    }
    for _ in 0..2 {
        let node = stage.node(&[]);
        for (id, (name, _)) in ids.iter().zip(&damages) {
            let task = client.call("tasks.get", json!({"id": id})).ok("tasks.get")["task"].clone();
            assert_eq!(
                (&task["state"], &task["reason"]),
                (&json!("lost"), &json!("receipt-unreadable")),
                "{name}"
            );
        }
        assert_eq!(events(&client, "done").len(), damages.len());
        node.kill();
    }
}

#[test]
fn a_failing_resident_of_dead_letters_does_not_write_to_itself() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    for (name, topic) in [("letters", "weft.dead.>"), ("failing", "work")] {
        let input = json!({"name": name, "topics": [topic], "retries": 0, "handler": {"exec": {"argv": ["false"]}}});
        client
            .call("residents.create", input)
            .ok("residents.create");
    }
    client
        .call("mesh.publish", json!({"topic": "work"}))
        .ok("mesh.publish");
    eventually("the letter was given up", || {
        let log = client
            .call("residents.log", json!({"name": "letters"}))
            .ok("residents.log");
        (log["entries"][0]["state"] == "dead").then_some(())
    });
    client
        .call("mesh.publish", json!({"topic": "work"}))
        .ok("mesh.publish");
    eventually("the second letter was given up", || {
        let log = client
            .call("residents.log", json!({"name": "letters"}))
            .ok("residents.log");
        (log["entries"].as_array().unwrap().len() == 2).then_some(())
    });
    assert_eq!(events(&client, "weft.dead.failing").len(), 2);
    assert!(events(&client, "weft.dead.letters").is_empty());
}

#[test]
fn a_node_whose_socket_was_removed_makes_room_for_another() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let (id, pid) = sleeper(&Client::unix(stage.home()));
    std::fs::remove_file(stage.home().join("node.sock")).unwrap();
    let (_, log) = node.wait();
    assert!(log.contains("socket"), "{log}");
    let task = stage.json(["get", &id, "--json"]);
    assert_eq!(task["task"]["state"], "running");
    assert!(processes::is_alive(pid));
}

/// Stops a task and sees that its process is gone.
fn stop(client: &Client, task: &Value) {
    let pid = u32::try_from(task["pid"].as_u64().unwrap()).unwrap();
    let stopped = client
        .call("tasks.stop", json!({"id": task["id"]}))
        .ok("tasks.stop");
    assert_eq!(stopped["task"]["state"], "killed");
    assert!(!processes::is_alive(pid));
}

#[test]
fn a_task_that_freezes_its_shim_is_stopped_all_the_same() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let go = stage.dir().join("go");
    let line = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; kill -STOP $PPID; exec sleep 1000",
        go.display()
    );
    let task = client
        .call("tasks.run", json!({"line": line, "lease": "durable"}))
        .ok("tasks.run");
    let pid = u32::try_from(task["pid"].as_u64().unwrap()).unwrap();
    let shim = processes::parent(pid).unwrap();
    std::fs::write(&go, "").unwrap();
    eventually("the shim is frozen", || {
        (processes::state(shim) == Some('T')).then_some(())
    });
    stop(&client, &task);
}

#[test]
fn a_task_that_freezes_its_shim_at_once_is_started_and_stopped() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let input = json!({"line": "kill -STOP $PPID; exec sleep 1000", "lease": "durable"});
    let task = client.call("tasks.run", input).ok("tasks.run");
    stop(&client, &task);
}

#[test]
fn a_list_says_how_much_it_leaves_out() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let listed = Client::unix(stage.home())
        .call("tasks.list", json!({"all": true}))
        .ok("tasks.list");
    assert_eq!(listed, json!({"tasks": [], "omitted": 0}));
}
