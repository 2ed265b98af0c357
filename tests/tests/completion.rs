//! A task's end is announced once: the event, the owner's inbox item and the spent grant, whatever happens around it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};
use weft_tests::tasks::{
    completions, durable, ended, events, inbox, record, shim, start, unread_end,
};
use weft_tests::{Client, Stage, eventually, processes};

const TOPIC: &str = "builds";

/// A shell line that ends when the file `go` appears, however long the test takes to make it.
fn until_go(stage: &Stage, end: &str) -> (String, PathBuf) {
    let go = stage.dir().join("go");
    (
        format!(
            "while [ ! -e {} ]; do sleep 0.02; done; {end}",
            go.display()
        ),
        go,
    )
}

fn event_of(client: &Client, id: &str) -> Value {
    eventually("the completion event is there", || {
        events(client, TOPIC)
            .into_iter()
            .find(|event| event["id"] == format!("completion:{id}"))
    })
}

/// Looks at the whole event: what is not named here must not be in it.
fn assert_event(client: &Client, id: &str, kind: &str, data: &Value) {
    let event = event_of(client, id);
    let grant = record(client, id)["notify"]["grantId"].clone();
    assert!(grant.is_string(), "{event}");
    assert!(
        event["sequence"]
            .as_u64()
            .is_some_and(|sequence| sequence > 0),
        "{event}"
    );
    assert!(
        event["createdAt"]
            .as_u64()
            .is_some_and(|at| at > 1_600_000_000_000),
        "{event}"
    );
    let expected = json!({
        "id": format!("completion:{id}"), "sequence": event["sequence"], "topic": TOPIC, "kind": kind, "from": format!("task:{id}"),
        "to": null, "text": null, "data": data, "createdAt": event["createdAt"], "origin": "external", "untrusted": true,
        "grantId": grant, "scheduled": null
    });
    assert_eq!(event, expected);
}

#[test]
fn an_exit_is_announced_in_the_contract_s_words() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let (line, go) = until_go(&stage, "exit 0");
    let id = start(
        &client,
        json!({"line": line, "lease": "durable", "label": "Build it", "notify": {"topic": TOPIC}}),
    );
    let notify = record(&client, &id)["notify"].clone();
    assert_eq!(
        (&notify["topic"], &notify["kind"], &notify["state"]),
        (&json!(TOPIC), &json!("task.completed"), &json!("pending"))
    );
    std::fs::write(go, "").unwrap();
    let data = json!({"taskId": id, "exitCode": 0, "description": "Build it", "state": "exited", "signal": null, "reason": null});
    assert_event(&client, &id, "task.completed", &data);
    assert_eq!(record(&client, &id)["notify"]["state"], "posted");
    let items = inbox(&client, "cli");
    assert_eq!(items.len(), 1, "{items:?}");
    let expected = json!({
        "seq": items[0]["seq"], "type": "finished", "taskId": id, "state": "exited", "exitCode": 0, "label": "Build it", "summary": null,
        "lines": null, "omitted": 0, "nextCursor": null, "untrusted": true, "createdAt": items[0]["createdAt"]
    });
    assert_eq!(items[0], expected);
}

#[test]
fn a_failure_keeps_its_signal_and_its_own_kind() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let notify = json!({"topic": TOPIC, "kind": "build.done"});
    let id = start(
        &client,
        json!({"line": "echo last words; kill -9 $$", "lease": "durable", "notify": notify}),
    );
    let data = json!({"taskId": id, "exitCode": 137, "state": "failed", "signal": "SIGKILL", "reason": null});
    assert_event(&client, &id, "build.done", &data);
    assert_eq!(inbox(&client, "cli")[0]["summary"], "last words\n");
}

#[test]
fn a_stop_is_announced_and_discards_the_owner_s_own_item_only() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let (own, other) = (
        durable(&client, "sleep 100", TOPIC),
        durable(&client, "sleep 100", TOPIC),
    );
    let stopped = client.call("tasks.stop", json!({"id": own})).ok("a stop");
    assert_eq!(stopped["task"]["state"], "killed");
    client
        .clone()
        .session("someone-else")
        .call("tasks.stop", json!({"id": other}))
        .ok("a stop by another");
    for id in [&own, &other] {
        let data = json!({"taskId": id, "exitCode": 143, "state": "killed", "signal": "SIGTERM", "reason": "stopped"});
        assert_event(&client, id, "task.completed", &data);
    }
    let items = inbox(&client, "cli");
    assert_eq!(items.len(), 1, "{items:?}");
    assert_eq!(
        (&items[0]["taskId"], &items[0]["state"]),
        (&json!(other), &json!("killed"))
    );
    assert!(inbox(&client, "someone-else").is_empty());
    // The owner's stop after the end is a reading of it.
    client
        .call("tasks.stop", json!({"id": other}))
        .ok("a second stop");
    assert!(inbox(&client, "cli").is_empty());
}

#[test]
fn a_deadline_is_announced_as_such() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let input = json!({"line": "sleep 100", "lease": "durable", "timeoutMs": 150, "notify": {"topic": TOPIC}});
    let id = start(&client, input);
    let data = json!({"taskId": id, "exitCode": 143, "state": "timed_out", "signal": "SIGTERM", "reason": "deadline"});
    assert_event(&client, &id, "task.completed", &data);
}

#[test]
fn a_lost_task_is_announced_without_a_code() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let id = durable(&client, "sleep 97.31", TOPIC);
    processes::kill(shim(&client, &id).unwrap());
    let data = json!({"taskId": id, "exitCode": null, "state": "lost", "signal": null, "reason": "shim-gone"});
    assert_event(&client, &id, "task.completed", &data);
    let task = record(&client, &id);
    assert_eq!(
        (&task["state"], &task["descendants"]),
        (&json!("lost"), &json!("ended"))
    );
    assert!(processes::running("sleep 97.31").is_empty());
    assert_eq!(inbox(&client, "cli").len(), 1);
    assert_eq!(
        stage.run(["wait", &id]).code,
        125,
        "weft wait on a lost task"
    );
}

#[test]
fn whoever_waits_is_told_once() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let ran = stage.dir().join("ran");
    let handler = json!({"exec": {"argv": ["sh", "-c", format!("cat > /dev/null; echo $WEFT_EVENT_ID >> {}", ran.display())]}});
    client
        .call(
            "residents.create",
            json!({"name": "once", "topics": [TOPIC], "handler": handler}),
        )
        .ok("a resident");

    // Both wait before the task begins.
    let (tell, told) = mpsc::channel();
    let (streaming, polling) = (client.clone(), client.clone());
    let sse = std::thread::spawn(move || {
        streaming.stream("/v1/events?topics=builds&after=0", |event| {
            if event.id.is_empty() || event.data.is_empty() {
                return true;
            }
            tell.send(event.json()).unwrap();
            event.json()["kind"] != "last"
        })
    });
    let poll = std::thread::spawn(move || {
        polling.call("mesh.read", json!({"topics": [TOPIC], "waitMs": 60_000}))
    });

    let id = durable(&client, "true", TOPIC);
    let completion = event_of(&client, &id);
    let polled = poll.join().unwrap().ok("the long-poll");
    assert_eq!(polled["events"], json!([completion]));
    assert_eq!(
        told.recv_timeout(Duration::from_secs(60)).unwrap(),
        completion
    );

    let log = || {
        client
            .call("residents.log", json!({"name": "once"}))
            .ok("the log")["entries"]
            .as_array()
            .unwrap()
            .clone()
    };
    let entries = eventually("the resident acknowledged it", || {
        Some(log()).filter(|entries| !entries.is_empty())
    });
    client
        .call("mesh.publish", json!({"topic": TOPIC, "kind": "last"}))
        .ok("a publish");
    eventually("the resident took the last one", || {
        (log().len() > 1).then_some(())
    });
    assert_eq!(log().len(), 2);
    assert_eq!(
        (
            &entries[0]["eventId"],
            &entries[0]["state"],
            &entries[0]["attempt"]
        ),
        (&completion["id"], &json!("acknowledged"), &json!(1))
    );
    let ids = std::fs::read_to_string(ran).unwrap();
    assert_eq!(
        ids.matches(completion["id"].as_str().unwrap()).count(),
        1,
        "{ids}"
    );
    sse.join().unwrap().unwrap();
    let rest: Vec<Value> = told.try_iter().collect();
    assert_eq!(
        rest.iter().map(|event| &event["kind"]).collect::<Vec<_>>(),
        ["last"]
    );
}

#[test]
fn an_end_reaches_its_owner_and_nobody_else() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let (line, go) = until_go(&stage, "echo from-A");
    let id = start(
        &client.clone().session("A"),
        json!({"line": line, "lease": "session"}),
    );
    let other = client.clone().session("B");
    let waiting = std::thread::spawn(move || {
        let begun = Instant::now();
        let read = other
            .call("inbox.read", json!({"waitMs": 700}))
            .ok("B's wait");
        (read, begun.elapsed())
    });
    std::fs::write(go, "").unwrap();
    let items = eventually("A's item", || {
        Some(inbox(&client, "A")).filter(|items| !items.is_empty())
    });
    assert_eq!(items.len(), 1);
    let item = &items[0];
    assert_eq!(
        (&item["type"], &item["taskId"], &item["exitCode"]),
        (&json!("finished"), &json!(id), &json!(0))
    );
    assert!(item["summary"].as_str().unwrap().contains("from-A"));
    let (read, took) = waiting.join().unwrap();
    assert_eq!(read["items"], json!([]));
    assert!(
        took >= Duration::from_millis(700),
        "B's wait ended early: {took:?}"
    );
    // Kept over a node's death, until its owner, and only its owner, acknowledges it.
    node.kill();
    let _node = stage.node(&[]);
    client
        .clone()
        .session("B")
        .call("tasks.get", json!({"id": id}))
        .ok("another's look");
    client
        .clone()
        .session("B")
        .call("tasks.wait", json!({"id": id}))
        .ok("another's wait");
    assert_eq!(inbox(&client, "A"), items);
    client
        .clone()
        .session("A")
        .call("tasks.get", json!({"id": id}))
        .ok("the owner's look");
    assert!(inbox(&client, "A").is_empty());
}

#[test]
fn asking_after_the_end_still_gets_the_end() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let begun = Instant::now();
    let mut after = 0;
    for round in 0..60 {
        // Asked at once, while the end may be at any point of its way.
        let owner = client.clone().session(&format!("s{round}"));
        let id = durable(&owner, "exit 0", TOPIC);
        let page = client
            .call(
                "mesh.read",
                json!({"topics": [TOPIC], "after": after, "waitMs": 60_000}),
            )
            .ok("a long-poll");
        assert_eq!(completions(page["events"].as_array().unwrap())[&id], 1);
        after = page["next"].as_u64().unwrap();
        let items = owner
            .call("inbox.read", json!({"waitMs": 60_000}))
            .ok("an inbox")["items"]
            .clone();
        assert_eq!((&items[0]["taskId"], &items[1]), (&json!(id), &Value::Null));
        let watched = client
            .call(
                "tasks.watch",
                json!({"id": id, "match": "x", "timeoutMs": 60_000}),
            )
            .ok("a watch");
        assert_eq!(watched["reason"], "finished");
        assert_eq!(ended(&owner, &id)["exitCode"], 0);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(55),
        "some wait was used up"
    );
}

/// The store of a home whose node is down.
fn store(stage: &Stage) -> Connection {
    Connection::open(stage.home().join("weft.db")).unwrap()
}

/// Starts a node twice more and looks each time that nothing came or went: not an event, not an item.
fn assert_nothing_more(stage: &Stage, sessions: &[&str]) {
    let look = |client: &Client| {
        let items: Vec<_> = sessions
            .iter()
            .map(|session| inbox(client, session))
            .collect();
        (events(client, TOPIC), items)
    };
    let before = {
        let node = stage.node(&[]);
        let found = look(&stage.client());
        node.kill();
        found
    };
    for _ in 0..2 {
        let node = stage.node(&[]);
        let client = stage.client();
        // Its end goes the whole way through the same house, after whatever the start had to announce.
        ended(
            &client.clone().session("sentinel"),
            &durable(&client.clone().session("sentinel"), "true", "elsewhere"),
        );
        assert_eq!(look(&client), before);
        node.kill();
    }
}

#[test]
fn retention_brings_no_second_announcement() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let first = durable(&client, "true", TOPIC);
    event_of(&client, &first);
    let (line, go) = until_go(&stage, "exit 3");
    let second = durable(&client, &line, TOPIC);
    node.kill();
    let keep_one = r#"{"maxAgeMs":null,"maxCount":1,"maxBytes":null}"#;
    assert_eq!(
        store(&stage)
            .execute(
                "UPDATE topics SET retention = ?1 WHERE name = ?2",
                [keep_one, TOPIC]
            )
            .unwrap(),
        1
    );
    std::fs::write(go, "").unwrap();
    wait_for_receipt(stage.home(), &second);
    let node = stage.node(&[]);
    let client = stage.client();
    assert_eq!(unread_end(&client, &second)["notify"]["state"], "posted");
    // It takes the place of the first, and a third takes its own.
    assert_eq!(
        completions(&events(&client, TOPIC))
            .into_keys()
            .collect::<Vec<_>>(),
        [second.clone()]
    );
    client
        .call("mesh.publish", json!({"topic": TOPIC, "text": "newer"}))
        .ok("a publish");
    assert!(completions(&events(&client, TOPIC)).is_empty());
    node.kill();
    assert_nothing_more(&stage, &["cli"]);
    let _node = stage.node(&[]);
    let owners: Vec<Value> = inbox(&stage.client(), "cli")
        .into_iter()
        .map(|item| item["taskId"].clone())
        .collect();
    assert_eq!(owners, [json!(first), json!(second)]);
}

fn wait_for_receipt(home: &Path, id: &str) {
    let folder = home.join("tasks").join(id);
    eventually("the receipt is written and its shim gone", || {
        (folder.join("receipt.json").is_file() && processes::with_cwd_below(&folder).is_empty())
            .then_some(())
    });
}

#[test]
fn an_expired_grant_loses_no_announcement() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let (line, go) = until_go(&stage, "exit 3");
    let ids = [
        durable(&client, &line, TOPIC),
        durable(&client, &line, TOPIC),
    ];
    node.kill();
    assert_eq!(
        store(&stage)
            .execute("UPDATE grants SET exp = 1000000000", [])
            .unwrap(),
        2
    );
    // The node is up again when they end, so that their own posts are refused.
    let node = stage.node(&[]);
    std::fs::write(go, "").unwrap();
    let client = stage.client();
    for id in &ids {
        let data =
            json!({"taskId": id, "exitCode": 3, "state": "failed", "signal": null, "reason": null});
        assert_event(&client, id, "task.completed", &data);
        assert_eq!(record(&client, id)["notify"]["state"], "posted");
    }
    assert_eq!(inbox(&client, "cli").len(), 2);
    node.kill();
    assert_nothing_more(&stage, &["cli"]);
}

#[test]
fn a_revoked_grant_means_no_event_and_still_one_item() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let (line, go) = until_go(&stage, "exit 3");
    let (revoked, other) = (
        durable(&client, &line, TOPIC),
        durable(&client, &line, TOPIC),
    );
    let grant = record(&client, &revoked)["notify"]["grantId"].clone();
    client
        .call("mesh.revoke", json!({"grantId": grant}))
        .ok("a revoke");
    std::fs::write(go, "").unwrap();
    event_of(&client, &other);
    let task = unread_end(&client, &revoked);
    assert_eq!(
        (&task["state"], &task["exitCode"], &task["notify"]["state"]),
        (&json!("failed"), &json!(3), &json!("revoked"))
    );
    assert!(task["notify"]["reason"].is_string(), "{task}");
    assert_eq!(
        completions(&events(&client, TOPIC))
            .into_keys()
            .collect::<Vec<_>>(),
        [other]
    );
    assert_eq!(inbox(&client, "cli").len(), 2);
    node.kill();
    assert_nothing_more(&stage, &["cli"]);
}

#[test]
fn an_acknowledged_item_does_not_come_again() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let id = durable(&client, "true", TOPIC);
    unread_end(&client, &id);
    let seq = inbox(&client, "cli")[0]["seq"].clone();
    client
        .call("inbox.ack", json!({"seq": seq}))
        .ok("an acknowledgement");
    assert!(inbox(&client, "cli").is_empty());
    node.kill();
    // Even where the mark in the folder did not make it to the disk: the row alone decides.
    std::fs::remove_file(stage.home().join("tasks").join(&id).join("announced")).unwrap();
    assert_nothing_more(&stage, &["cli"]);
    let _node = stage.node(&[]);
    assert_eq!(completions(&events(&stage.client(), TOPIC)).len(), 1);
}

#[test]
fn a_replaced_store_announces_what_was_not_and_nothing_else() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let announced = durable(&client, "true", TOPIC);
    unread_end(&client, &announced);
    let (line, go) = until_go(&stage, "echo done; exit 3");
    let input = |label: &str| json!({"line": line, "lease": "durable", "session": "A", "label": label, "notify": {"topic": TOPIC}});
    let (early, late) = (
        start(&client, input("early")),
        start(
            &client,
            json!({"line": "sleep 100", "lease": "durable", "session": "A"}),
        ),
    );
    let mark = stage
        .home()
        .join("tasks")
        .join(&announced)
        .join("announced");
    eventually("the mark in the folder", || mark.is_file().then_some(()));
    let epoch = client.call("node.status", json!({})).ok("status")["epoch"].clone();
    node.kill();
    std::fs::write(go, "").unwrap();
    wait_for_receipt(stage.home(), &early);
    for name in ["weft.db", "weft.db-wal", "weft.db-shm"] {
        let _ = std::fs::remove_file(stage.home().join(name));
    }

    let node = stage.node(&[]);
    let client = stage.client();
    assert_ne!(
        client.call("node.status", json!({})).ok("status")["epoch"],
        epoch
    );
    let data = json!({"taskId": early, "exitCode": 3, "description": "early", "state": "failed", "signal": null, "reason": null});
    assert_event(&client, &early, "task.completed", &data);
    assert_eq!(
        completions(&events(&client, TOPIC))
            .into_keys()
            .collect::<Vec<_>>(),
        [early.clone()]
    );
    let items = inbox(&client, "A");
    assert_eq!(
        (items.len(), &items[0]["taskId"], &items[0]["summary"]),
        (1, &json!(early), &json!("done\n"))
    );
    assert!(inbox(&client, "cli").is_empty());
    // What was announced before is still known; what runs on is still under control.
    assert_eq!(record(&client, &announced)["state"], "exited");
    assert_eq!(record(&client, &late)["state"], "running");
    let stopped = client.call("tasks.stop", json!({"id": late})).ok("a stop");
    assert_eq!(stopped["task"]["state"], "killed");
    node.kill();
    assert_nothing_more(&stage, &["A", "cli"]);
}

#[test]
fn a_store_put_back_from_a_copy_announces_nothing_again() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let (line, go) = until_go(&stage, "exit 3");
    let (first, second) = (
        durable(&client, &line, TOPIC),
        durable(&client, "sleep 100", TOPIC),
    );
    node.kill();
    let copy = stage.dir().join("copy.db");
    store(&stage)
        .execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
        .unwrap();
    let node = stage.node(&[]);
    std::fs::write(go, "").unwrap();
    event_of(&client, &first);
    let mark = stage.home().join("tasks").join(&first).join("announced");
    eventually("the mark in the folder", || mark.is_file().then_some(()));
    node.kill();
    for name in ["weft.db-wal", "weft.db-shm"] {
        let _ = std::fs::remove_file(stage.home().join(name));
    }
    std::fs::rename(copy, stage.home().join("weft.db")).unwrap();

    let node = stage.node(&[]);
    assert_eq!(record(&client, &first)["state"], "failed");
    assert_eq!(record(&client, &second)["state"], "running");
    client
        .clone()
        .session("other")
        .call("tasks.stop", json!({"id": second}))
        .ok("a stop");
    event_of(&client, &second);
    assert_eq!(
        completions(&events(&client, TOPIC))
            .into_keys()
            .collect::<Vec<_>>(),
        [second]
    );
    node.kill();
    assert_nothing_more(&stage, &["cli"]);
}
