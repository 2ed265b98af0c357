//! The store under others' locks and kills.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_tests::{Client, Stage, eventually, tasks};

/// Another process's connection to the store file.
fn outside(stage: &Stage) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(stage.home().join("weft.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection
}

/// Holds the store's write lock for so long.
fn hold(stage: &Stage, how_long: Duration) {
    let store = outside(stage);
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::sleep(how_long);
    store.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn heavy_many_writers_never_meet_a_locked_store() {
    const CLIENTS: usize = 32;
    const ROUNDS: usize = 50;
    let stage = Stage::new();
    let client = stage.client();
    let longest = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            hold(&stage, Duration::from_secs(3));
            hold(&stage, Duration::from_secs(3));
        });
        let backup = scope.spawn(|| {
            let copy = stage.dir().join("backup.db");
            outside(&stage)
                .execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
                .unwrap();
            rusqlite::Connection::open(copy).unwrap()
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = client.clone().session(&format!("s{number}"));
                scope.spawn(move || {
                    let mut longest = Duration::ZERO;
                    for round in 0..ROUNDS {
                        let begin = Instant::now();
                        let event = json!({"topic": format!("t{number}"), "id": format!("e-{number}-{round}"), "data": round});
                        client.call("mesh.publish", event).ok("mesh.publish");
                        client.call("inbox.read", json!({})).ok("inbox.read");
                        client.call("inbox.ack", json!({"seq": 0})).ok("inbox.ack");
                        let read = client.call("mesh.read", json!({"topics": [format!("t{number}")], "limit": 1000})).ok("mesh.read");
                        assert_eq!(read["events"].as_array().unwrap().len(), round + 1, "what was acknowledged is there");
                        longest = longest.max(begin.elapsed());
                    }
                    longest
                })
            })
            .collect();
        let longest = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .max()
            .unwrap();
        holder.join().unwrap();
        let copy = backup.join().unwrap();
        let check: String = copy
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(check, "ok");
        longest
    });
    // Late, not lost: a call waits for the holder and goes on.
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    let (mut after, mut sequences) = (json!(0), Vec::new());
    loop {
        let page = client
            .call("mesh.read", json!({"after": after, "limit": 1000}))
            .ok("mesh.read");
        let events = page["events"].as_array().unwrap();
        if events.is_empty() {
            break;
        }
        sequences.extend(
            events
                .iter()
                .map(|event| event["sequence"].as_u64().unwrap()),
        );
        after = page["next"].clone();
    }
    assert_eq!(sequences.len(), CLIENTS * ROUNDS);
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn heavy_a_holder_that_stays_is_named_and_nothing_is_half_done() {
    let stage = Stage::new();
    let client = stage.client();
    let grant = client
        .call("mesh.grant", json!({"topic": "t"}))
        .ok("a grant");
    let store = outside(&stage);
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    let calls: Vec<Box<dyn Fn() -> weft_tests::Answer + Send + Sync>> = vec![
        Box::new(|| client.call("mesh.publish", json!({"topic": "t", "id": "held"}))),
        Box::new(|| {
            client
                .clone()
                .bearer(grant["token"].as_str().unwrap())
                .post("/v1/topics/t/events", &json!({"id": "posted"}))
        }),
        Box::new(|| client.call("tasks.run", json!({"argv": ["true"], "lease": "durable"}))),
        Box::new(|| client.call("inbox.ack", json!({"seq": 0}))),
    ];
    std::thread::scope(|scope| {
        let asks: Vec<_> = calls.iter().map(|call| scope.spawn(call)).collect();
        for ask in asks {
            let answer = ask.join().unwrap();
            assert_eq!(
                (answer.status, answer.slug().as_str()),
                (503, "store-busy"),
                "{}",
                answer.text
            );
            assert!(answer.header("retry-after").is_some());
        }
        // Reads are not held up.
        let begin = Instant::now();
        client.call("mesh.read", json!({})).ok("a read");
        assert!(begin.elapsed() < Duration::from_secs(5));
    });
    store.execute_batch("ROLLBACK").unwrap();
    client
        .call("mesh.publish", json!({"topic": "t", "id": "after"}))
        .ok("after the holder");
    let ids: Vec<Value> = stage
        .events(&["t"])
        .iter()
        .map(|event| event["id"].clone())
        .collect();
    assert_eq!(ids, ["after"]);
    assert_eq!(
        client
            .call("tasks.list", json!({"all": true}))
            .ok("tasks.list")["tasks"],
        json!([])
    );
    assert!(tasks::shims(stage.home()).is_empty());
    let posted = client
        .clone()
        .bearer(grant["token"].as_str().unwrap())
        .post("/v1/topics/t/events", &json!({"id": "posted"}));
    assert_eq!(posted.body["usesLeft"], 0, "{}", posted.text);
}

#[test]
fn acknowledged_events_survive_kills_amid_commits() {
    let stage = Stage::new();
    let mut node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let stop = AtomicBool::new(false);
    let (told, _node): (Vec<String>, _) = std::thread::scope(|scope| {
        let publishers: Vec<_> = (0..8)
            .map(|number| {
                let (client, stop) = (client.clone(), &stop);
                scope.spawn(move || {
                    let mut told = Vec::new();
                    let mut n = 0;
                    while !stop.load(Ordering::SeqCst) {
                        let id = format!("e-{number}-{n}");
                        n += 1;
                        let event = json!({"topic": "t", "id": id, "text": "x".repeat(200)});
                        if client
                            .try_call("mesh.publish", event)
                            .is_ok_and(|answer| answer.status == 200)
                        {
                            told.push(id);
                        }
                    }
                    told
                })
            })
            .collect();
        for _ in 0..5 {
            let newest = || client.try_get("/readyz").ok()?.body["newest"].as_u64();
            let before = eventually("the node is ready", newest);
            eventually("some more are there", || {
                newest().filter(|newest| *newest >= before + 100)
            });
            node.kill();
            node = stage.node(&[]);
        }
        stop.store(true, Ordering::SeqCst);
        let told = publishers.into_iter().flat_map(|one| one.join().unwrap());
        (told.collect(), node)
    });
    let stored: Vec<String> = tasks::events(&client, "t")
        .iter()
        .map(|event| event["id"].as_str().unwrap().to_owned())
        .collect();
    let unique: std::collections::HashSet<&String> = stored.iter().collect();
    assert_eq!(unique.len(), stored.len());
    let lost: Vec<&String> = told.iter().filter(|id| !unique.contains(id)).collect();
    assert!(
        lost.is_empty() && !told.is_empty(),
        "acknowledged and lost: {lost:?}"
    );
}
