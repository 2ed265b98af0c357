//! `mesh.read`: cursors, waits, and what retention took.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_tests::{Client, Stage};

use super::{keep_events, publish_many};

fn read(client: &Client, input: Value) -> Value {
    client.call("mesh.read", input).ok("mesh.read")
}

fn numbers(page: &Value) -> Vec<u64> {
    page["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["data"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_cursor_reads_each_event_once_in_pages() {
    let stage = Stage::new();
    let client = stage.client();
    publish_many(&client, "t", 25, "x");
    client
        .call("mesh.publish", json!({"topic": "other"}))
        .ok("another");
    let (mut after, mut seen) = (json!(0), Vec::new());
    loop {
        let page = read(
            &client,
            json!({"topics": ["t"], "after": after, "limit": 7}),
        );
        let new = numbers(&page);
        if new.is_empty() {
            break;
        }
        assert!(new.len() <= 7);
        assert_eq!(page["omitted"], json!([]));
        seen.extend(new);
        after = page["next"].clone();
    }
    assert_eq!(seen, (0..25).collect::<Vec<u64>>());
    // What was looked at and not wanted is passed by the cursor, too.
    let newest = read(&client, json!({"topics": ["other"]}))["next"].clone();
    let filtered = read(&client, json!({"topics": ["t"], "kinds": ["never"]}));
    assert_eq!(
        (&filtered["events"], &filtered["next"]),
        (&json!([]), &newest)
    );
    assert_eq!(
        read(&client, json!({"topics": ["t"], "kinds": ["message"]}))["events"]
            .as_array()
            .unwrap()
            .len(),
        25
    );
    // Both forms of a cursor mean the same.
    let epoch = filtered["epoch"].as_str().unwrap();
    for form in [json!(20), json!("20"), json!(format!("{epoch}-20"))] {
        assert_eq!(
            read(&client, json!({"topics": ["t"], "after": form}))["events"]
                .as_array()
                .unwrap()
                .len(),
            5,
            "{form}"
        );
    }
    for form in ["x", "-1", "1-", "-", "1.5", "a b-1", "+1"] {
        assert_eq!(
            client.call("mesh.read", json!({"after": form})).status,
            422,
            "{form}"
        );
    }
    for form in [json!(-1), json!(1.5), json!(null), json!({})] {
        assert!(
            matches!(
                client.call("mesh.read", json!({"after": form})).status,
                200 | 422
            ),
            "{form}"
        );
    }
    let path = client
        .get("/v1/topics/t/events?after=20&limit=2")
        .ok("by its path");
    assert_eq!(numbers(&path), [20, 21]);
    let words = ["--json", "mesh", "read", "t", "--after", "20", "-n", "2"];
    assert_eq!(numbers(&stage.json(words)), [20, 21]);
}

#[test]
fn sequences_go_on_over_a_restart_and_a_kill() {
    let stage = Stage::new();
    let mut last = 0;
    for round in 0..3 {
        let node = stage.node(&[]);
        let event = stage.call("mesh.publish", json!({"topic": "t", "data": round}));
        let sequence = event["sequence"].as_u64().unwrap();
        assert!(sequence > last);
        last = sequence;
        if round == 1 {
            node.kill();
        } else {
            node.terminate();
        }
    }
    let events = stage.events(&["t"]);
    assert_eq!(
        events
            .iter()
            .map(|event| event["data"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

#[test]
fn what_retention_took_is_told_with_its_size() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    publish_many(&client, "t", 10, "x");
    client
        .call("mesh.publish", json!({"topic": "u", "data": 0}))
        .ok("another topic");
    keep_events(&client, "t", 3);
    // Trimming happens inside an ordinary commit.
    client
        .call("mesh.publish", json!({"topic": "t", "data": 10}))
        .ok("one more");
    let page = read(&client, json!({"topics": ["t"]}));
    assert_eq!(numbers(&page), [8, 9, 10]);
    assert_eq!(
        page["omitted"],
        json!([{"topic": "t", "after": 0, "to": 8, "count": 8}])
    );
    assert_eq!(
        read(&client, json!({"topics": ["t"], "after": 5}))["omitted"],
        json!([{"topic": "t", "after": 5, "to": 8, "count": 3}])
    );
    for after in [8, 9, 12] {
        assert_eq!(
            read(&client, json!({"topics": ["t"], "after": after}))["omitted"],
            json!([]),
            "{after}"
        );
    }
    assert_eq!(
        read(&client, json!({"topics": ["u"]}))["omitted"],
        json!([])
    );
    assert_eq!(
        read(&client, json!({"topics": [">"]}))["omitted"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // The command line says so on stderr, and an id whose event is gone is still known.
    let output = stage.run(["mesh", "read", "t"]).expect_code(0);
    assert!(
        output.stderr.contains("8 events of t are no longer kept"),
        "{output:?}"
    );
    let topics = client.call("mesh.topics", json!({})).ok("mesh.topics");
    let topic = topics["topics"]
        .as_array()
        .unwrap()
        .iter()
        .find(|topic| topic["topic"] == "t")
        .unwrap();
    assert_eq!(
        (&topic["count"], &topic["trimmedTo"]),
        (&json!(3), &json!(8))
    );
}

#[test]
fn the_id_of_an_event_outlives_it() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let publish = |id: &str, text: &str| {
        client.call(
            "mesh.publish",
            json!({"topic": "t", "id": id, "text": text}),
        )
    };
    let first = publish("one", "a").ok("the first");
    keep_events(&client, "t", 1);
    publish("two", "b").ok("the second");
    assert_eq!(stage.events(&["t"]).len(), 1);
    let again = publish("one", "a").ok("the first again");
    assert_eq!(
        (&again["sequence"], &again["duplicate"]),
        (&first["sequence"], &json!(true))
    );
    assert_eq!(publish("one", "other").slug(), "id-conflict");
    assert_eq!(stage.events(&["t"]).len(), 1);
}

#[test]
fn a_cursor_of_another_epoch_is_refused_with_where_to_begin() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    publish_many(&client, "t", 3, "x");
    let old = read(&client, json!({}));
    node.terminate();
    for name in ["weft.db", "weft.db-wal", "weft.db-shm"] {
        let _ = std::fs::remove_file(stage.home().join(name));
    }
    let _node = stage.node(&[]);
    let event = client
        .call("mesh.publish", json!({"topic": "t", "data": 7}))
        .ok("an event of the new store");
    let cursor = format!("{}-{}", old["epoch"].as_str().unwrap(), old["next"]);
    let answer = client.call("mesh.read", json!({"topics": ["t"], "after": cursor}));
    assert_eq!(
        (answer.status, answer.slug().as_str()),
        (409, "resync"),
        "{}",
        answer.text
    );
    assert_ne!(answer.body["epoch"], old["epoch"]);
    assert_eq!(answer.body["oldest"], event["sequence"]);
    let output = stage
        .run(["mesh", "read", "t", "--after", &cursor])
        .expect_code(1);
    assert!(output.stderr.contains("another epoch"), "{output:?}");
    let page = read(
        &client,
        json!({"topics": ["t"], "after": format!("{}-0", answer.body["epoch"].as_str().unwrap())}),
    );
    assert_eq!(numbers(&page), [7]);
}

#[test]
fn a_wait_ends_with_the_first_event_that_matches() {
    let stage = Stage::new();
    let client = stage.client();
    let begin = Instant::now();
    let page = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            read(
                &client,
                json!({"topics": ["a.*"], "kinds": ["k"], "waitMs": 60_000}),
            )
        });
        for n in 0..20 {
            client
                .call("mesh.publish", json!({"topic": "b", "data": n}))
                .ok("another topic");
            client
                .call("mesh.publish", json!({"topic": "a.x", "data": n}))
                .ok("another kind");
        }
        assert!(!waiter.is_finished());
        client
            .call(
                "mesh.publish",
                json!({"topic": "a.y", "kind": "k", "data": 99}),
            )
            .ok("the one");
        waiter.join().unwrap()
    });
    assert_eq!(numbers(&page), [99]);
    assert!(begin.elapsed() < Duration::from_secs(30));
    // A wait that nothing ends is over after its time, and is empty.
    let begin = Instant::now();
    let page = read(&client, json!({"topics": ["never"], "waitMs": 200}));
    assert_eq!(page["events"], json!([]));
    assert!(begin.elapsed() >= Duration::from_millis(200));
}

#[test]
fn what_is_kept_of_a_topic_is_set_for_one_or_for_all_and_survives_the_node() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    publish_many(&client, "t", 10, "x");
    publish_many(&client, "u", 10, "x");
    let kept = |topic: &str| {
        let topics = client.call("mesh.topics", json!({})).ok("mesh.topics");
        let found = topics["topics"].as_array().unwrap().iter();
        let count = |it: &Value| it["count"].as_u64();
        found
            .clone()
            .find(|it| it["topic"] == topic)
            .and_then(count)
    };
    let answer = stage
        .run([
            "mesh", "retain", "t", "--age", "7d", "--count", "4", "--json",
        ])
        .expect_code(0)
        .json();
    assert_eq!(answer["topic"], "t");
    assert_eq!(
        (
            &answer["retention"]["maxAgeMs"],
            &answer["retention"]["maxCount"]
        ),
        (&json!(604_800_000), &json!(4))
    );
    assert_eq!((kept("t"), kept("u")), (Some(4), Some(10)));
    // A bound that is not given stays, and the others follow the default.
    let answer = client
        .call("mesh.retain", json!({"topic": "t", "maxBytes": 1_000_000}))
        .ok("mesh.retain");
    assert_eq!(answer["retention"]["maxCount"], 4);
    client
        .call("mesh.retain", json!({"maxCount": 2}))
        .ok("mesh.retain");
    node.kill();
    let _node = stage.node(&[]);
    publish_many(&client, "t", 1, "x");
    publish_many(&client, "u", 1, "x");
    assert_eq!((kept("t"), kept("u")), (Some(4), Some(2)));
    client
        .call("mesh.retain", json!({"topic": "t", "reset": true}))
        .ok("mesh.retain");
    publish_many(&client, "t", 1, "x");
    assert_eq!(kept("t"), Some(2));
    for (input, field) in [
        (json!({}), "maxCount"),
        (json!({"maxCount": 0}), "maxCount"),
        (json!({"maxAgeMs": 1}), "maxAgeMs"),
        (json!({"topic": "a b", "maxCount": 1}), "a b"),
    ] {
        let refused = client.call("mesh.retain", input);
        assert!((400..500).contains(&refused.status), "{refused:?}");
        let detail = refused.body["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(field), "{refused:?}");
    }
}
