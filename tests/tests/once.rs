//! An end is announced once for ever: not again and not never, whatever becomes of topic, grant, inbox and store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};
use weft_tests::tasks::{
    assert_completion, completion, completions, durable, ended, events, gated, inbox, record,
    start, unread_end,
};
use weft_tests::{Client, Stage, eventually, processes};

const TOPIC: &str = "builds";

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
    completion(&client, TOPIC, &first);
    let (line, go) = gated(&stage, "exit 3");
    let second = durable(&client, &line, TOPIC);
    client
        .call("mesh.retain", json!({"topic": TOPIC, "maxCount": 1}))
        .ok("mesh.retain");
    node.kill();
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
        std::slice::from_ref(&second)
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
    let (line, go) = gated(&stage, "exit 3");
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
        assert_completion(&client, TOPIC, id, "task.completed", &data);
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
    let (line, go) = gated(&stage, "exit 3");
    let (revoked, other) = (
        durable(&client, &line, TOPIC),
        durable(&client, &line, TOPIC),
    );
    let grant = record(&client, &revoked)["notify"]["grantId"].clone();
    client
        .call("mesh.revoke", json!({"grantId": grant}))
        .ok("a revoke");
    std::fs::write(go, "").unwrap();
    completion(&client, TOPIC, &other);
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
    let (line, go) = gated(&stage, "echo done; exit 3");
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
    assert_completion(&client, TOPIC, &early, "task.completed", &data);
    assert_eq!(
        completions(&events(&client, TOPIC))
            .into_keys()
            .collect::<Vec<_>>(),
        std::slice::from_ref(&early)
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
    let (line, go) = gated(&stage, "exit 3");
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
    completion(&client, TOPIC, &first);
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
    completion(&client, TOPIC, &second);
    assert_eq!(
        completions(&events(&client, TOPIC))
            .into_keys()
            .collect::<Vec<_>>(),
        [second]
    );
    node.kill();
    assert_nothing_more(&stage, &["cli"]);
}
