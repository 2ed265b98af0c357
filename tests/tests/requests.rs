//! Requests that are repeated, keys, prefixes, callers that wait too long or go, and homes with long paths.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_tests::tasks::{durable, ended, inbox, record, start, unread_end};
use weft_tests::{Stage, eventually};

#[test]
fn a_repeated_request_starts_nothing_more() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let count = stage.dir().join("count");
    let input = json!({"line": format!("echo x >> {}; sleep 100", count.display()), "lease": "durable", "requestId": "r-1"});
    let id = start(&client, input.clone());
    assert_eq!(start(&client, input.clone()), id);
    let other = client.call(
        "tasks.run",
        json!({"line": "true", "lease": "durable", "requestId": "r-1"}),
    );
    assert_eq!(
        (other.status, other.slug().as_str()),
        (422, "request-id-reused"),
        "{other:?}"
    );
    // Another caller's request of this name is another request.
    let theirs = start(&client.clone().session("B"), input.clone());
    assert_ne!(theirs, id);
    node.kill();
    let _node = stage.node(&[]);
    assert_eq!(start(&client, input), id);
    eventually("both ran", || {
        (std::fs::read_to_string(&count).unwrap_or_default() == "x\nx\n").then_some(())
    });
    // A start that came to nothing is not an answer to keep.
    let command = stage.dir().join("later");
    let input =
        json!({"argv": [command.to_str().unwrap()], "lease": "durable", "requestId": "r-2"});
    assert!(client.call("tasks.run", input.clone()).status >= 400);
    std::fs::write(&command, "#!/bin/sh\nexit 9\n").unwrap();
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(ended(&client, &start(&client, input))["exitCode"], 9);
}

#[test]
fn a_key_has_one_unfinished_task() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let run = |line: &str| {
        client
            .call(
                "tasks.run",
                json!({"line": line, "lease": "durable", "key": "nightly"}),
            )
            .ok("a run")
    };
    let first = run("sleep 100");
    assert_eq!(first["joined"], false);
    let second = run("echo another");
    assert_eq!(
        (&second["joined"], &second["id"]),
        (&json!(true), &first["id"])
    );
    let out = stage
        .run([
            "run",
            "--durable",
            "--key",
            "nightly",
            "--json",
            "--",
            "true",
        ])
        .expect_code(0)
        .json();
    assert_eq!((&out["joined"], &out["id"]), (&json!(true), &first["id"]));
    client
        .call("tasks.stop", json!({"id": first["id"]}))
        .ok("a stop");
    let third = run("exit 0");
    assert_eq!(third["joined"], false);
    assert_ne!(third["id"], first["id"]);
    // What is asked for beside the command is there, or is refused.
    let key = |more: Value| {
        let mut input = json!({"line": "sleep 100", "key": "told"});
        input
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        client.call("tasks.run", input)
    };
    let session = json!({"lease": "session"});
    let first = key(session.clone()).ok("a task of the session");
    assert_eq!(key(session).ok("joined")["id"], first["id"]);
    for more in [
        json!({"lease": "durable"}),
        json!({"lease": "durable", "notify": {"topic": "t"}}),
    ] {
        let refused = key(more);
        assert_eq!(refused.slug(), "wrong-state", "{}", refused.text);
        assert!(refused.text.contains(first["id"].as_str().unwrap()));
    }
    let reserved = client.call("tasks.run", json!({"line": "true", "key": "resident:x"}));
    assert!(
        reserved.status == 422 && reserved.text.contains("key"),
        "{reserved:?}"
    );
    // Ten at once are one.
    let ids: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..10)
            .map(|_| {
                scope.spawn(|| {
                    start(
                        &client,
                        json!({"line": "sleep 100", "lease": "durable", "key": "many"}),
                    )
                })
            })
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect()
    });
    assert_eq!(ids.len(), 1);
}

#[test]
fn an_id_is_taken_by_any_prefix_that_names_one_task() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let ids = [
        durable(&client, "exit 1", "t"),
        durable(&client, "exit 2", "t"),
    ];
    for id in &ids {
        unread_end(&client, id);
    }
    let common = ids[0]
        .chars()
        .zip(ids[1].chars())
        .take_while(|(one, other)| one == other)
        .count();
    let short = &ids[0][..=common];
    assert_eq!(stage.run(["wait", short]).code, 1);
    let refused = stage.run(["get", &ids[0][..common]]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(
        ids.iter().all(|id| refused.stderr.contains(id.as_str())),
        "{refused:?}"
    );
    let unknown = stage.run(["get", "t-nobody"]);
    assert!(
        unknown.code == 1 && unknown.stderr.contains("t-nobody"),
        "{unknown:?}"
    );
    for id in ["", "%", "t-_", "../x", "t-\u{e9}"] {
        let refused = client.call("tasks.get", json!({"id": id}));
        assert!((400..500).contains(&refused.status), "{id}: {refused:?}");
    }
}

#[test]
fn a_call_that_takes_too_long_hands_its_task_over() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let go = stage.dir().join("go");
    let line = format!(
        "echo begun; while [ ! -e {} ]; do sleep 0.02; done; exit 5",
        go.display()
    );
    let handed = client
        .call("tasks.run", json!({"line": line, "hangMs": 150}))
        .ok("a call");
    assert_eq!(
        (&handed["running"], &handed["lease"]),
        (&json!(true), &json!("session")),
        "{handed}"
    );
    let id = handed["id"].as_str().unwrap();
    assert!(handed["notice"].as_str().unwrap().contains(id), "{handed}");
    assert_eq!(record(&client, id)["state"], "running");
    std::fs::write(go, "").unwrap();
    unread_end(&client, id);
    let items = inbox(&client, "cli");
    assert_eq!(
        (items.len(), &items[0]["taskId"], &items[0]["exitCode"]),
        (1, &json!(id), &json!(5))
    );
    // One that ends before is answered whole, and is no delivery.
    let whole = client
        .call(
            "tasks.run",
            json!({"line": "echo out; exit 3", "hangMs": 60_000}),
        )
        .ok("a call");
    assert_eq!(
        (
            &whole["running"],
            &whole["exitCode"],
            &whole["output"][0]["tail"]
        ),
        (&json!(false), &json!(3), &json!("out\n"))
    );
    assert_eq!(inbox(&client, "cli").len(), 1);
}

#[test]
fn a_caller_that_hangs_up_ends_its_foreground_task() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let ready = stage.dir().join("ready");
    let body = json!({"line": format!("touch {}; sleep 100", ready.display())}).to_string();
    let mut raw = std::os::unix::net::UnixStream::connect(stage.home().join("node.sock")).unwrap();
    let head = format!(
        "POST /v1/call/tasks.run HTTP/1.1\r\nhost: weft\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    std::io::Write::write_all(&mut raw, format!("{head}{body}").as_bytes()).unwrap();
    eventually("the task runs", || ready.is_file().then_some(()));
    drop(raw);
    let begun = Instant::now();
    let tasks = || client.call("tasks.list", json!({"all": true})).ok("a list")["tasks"].clone();
    eventually("its task is stopped", || {
        (tasks()[0]["state"] == "killed").then_some(())
    });
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "its stop was late: {:?}",
        begun.elapsed()
    );
}

#[test]
fn a_home_may_have_a_long_path() {
    // The socket's own path passes 107 bytes at different lengths of node and task.
    for length in [60, 90, 98, 107, 120, 200] {
        let stage = Stage::new();
        let rest = length - stage.dir().as_os_str().len() - 1;
        let name = if rest > 120 {
            format!("{}/{}", "d".repeat(100), "h".repeat(rest - 101))
        } else {
            "h".repeat(rest)
        };
        let stage = {
            drop(stage);
            Stage::with_home(name)
        };
        assert_eq!(stage.home().as_os_str().len(), length);
        let out = stage.run(["run", "-c", "echo ok"]);
        assert_eq!(
            (out.code, out.stdout.as_str()),
            (0, "ok\n"),
            "{length}: {out:?}"
        );
        let id = stage
            .run(["run", "--durable", "--quiet", "-c", "echo ok; sleep 100"])
            .expect_code(0)
            .stdout
            .trim()
            .to_owned();
        assert_eq!(
            stage.json(["stop", "--json", &id])["task"]["state"],
            "killed"
        );
        assert_eq!(stage.run(["logs", &id]).stdout, "ok\n");
    }
}

#[test]
fn twins_with_a_long_common_beginning_do_not_meet() {
    let stage = Stage::with_home(format!("{}/{}", "d".repeat(120), "one"));
    let twin = stage.home().with_file_name("two");
    let here = stage
        .run(["run", "--durable", "--quiet", "--", "sleep", "100"])
        .expect_code(0)
        .stdout;
    let there = stage
        .run([
            "--home",
            twin.to_str().unwrap(),
            "run",
            "--durable",
            "--quiet",
            "--",
            "sleep",
            "100",
        ])
        .expect_code(0)
        .stdout;
    for (home, id) in [(stage.home(), here), (&twin, there)] {
        let list = stage.json(["--home", home.to_str().unwrap(), "ps", "--all", "--json"]);
        let ids: Vec<&str> = list["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, [id.trim()]);
    }
}
