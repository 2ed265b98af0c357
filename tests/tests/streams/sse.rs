//! Server-sent events: where a stream begins, how it goes on, and what its blocks say.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use weft_tests::{Client, SseEvent, Stage, eventually};

use super::{follow, keep_events, publish_many, sequences};

fn newest(stage: &Stage) -> (String, u64) {
    let page = stage.call("mesh.read", json!({"topics": [">"]}));
    (
        page["epoch"].as_str().unwrap().to_owned(),
        page["next"].as_u64().unwrap(),
    )
}

/// Stops at the event with this datum.
fn datum(wanted: u64) -> impl FnMut(&SseEvent) -> bool {
    move |block| block.json()["data"] == wanted
}

#[test]
fn a_stream_begins_where_it_is_told_and_the_header_wins() {
    let stage = Stage::new();
    let client = stage.client();
    publish_many(&client, "t", 10, "x");
    let (epoch, last) = newest(&stage);
    let first = last - 9;
    let at = |offset: u64| first + offset;
    let cases: [(Option<String>, Option<String>, u64); 7] = [
        (Some("0".into()), None, 0),
        (Some(at(3).to_string()), None, 4),
        (Some(format!("{epoch}-{}", at(3))), None, 4),
        (None, Some(format!("{epoch}-{}", at(6))), 7),
        (None, Some(at(6).to_string()), 7),
        (Some("0".into()), Some(format!("{epoch}-{}", at(6))), 7),
        (Some(at(8).to_string()), Some(String::new()), 9),
    ];
    for (after, last_id, begins) in cases {
        let path = format!(
            "/v1/events?topics=t{}",
            after
                .as_ref()
                .map(|after| format!("&after={after}"))
                .unwrap_or_default()
        );
        let reader = match &last_id {
            Some(id) => client.clone().with("last-event-id", id),
            None => client.clone(),
        };
        let blocks = follow(&reader, &path, datum(9)).unwrap();
        assert_eq!(
            sequences(&blocks),
            (at(begins)..=last).collect::<Vec<_>>(),
            "{after:?} {last_id:?}"
        );
        for block in blocks.iter().filter(|block| !block.data.is_empty()) {
            assert_eq!(block.id, format!("{epoch}-{}", block.json()["sequence"]));
            assert_eq!(block.name, "");
        }
        // The first block carries a cursor, so that a client which saw no event yet resumes without a gap.
        assert!(
            blocks[0].data.is_empty() && blocks[0].id.starts_with(&format!("{epoch}-")),
            "{:?}",
            blocks[0]
        );
    }
    for bad in ["x", "-", "1.5"] {
        assert_eq!(
            client
                .clone()
                .with("last-event-id", bad)
                .get("/v1/events?topics=t")
                .status,
            422,
            "{bad}"
        );
        assert_eq!(
            client
                .get(&format!("/v1/events?topics=t&after={bad}"))
                .status,
            422,
            "{bad}"
        );
    }
}

#[test]
fn without_a_cursor_a_stream_begins_with_what_is_new() {
    let stage = Stage::new();
    let client = stage.client();
    publish_many(&client, "t", 5, "x");
    let mut told = false;
    let blocks = follow(&client, "/v1/events?topics=t", |block| {
        if !told {
            told = true;
            beside(|| publish_many(&client, "t", 1, "new"));
        }
        block.json()["text"] == "new"
    });
    assert_eq!(sequences(&blocks.unwrap()).len(), 1);
}

/// Does something while a stream is read: on a thread of its own, since each request brings its own runtime.
fn beside(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}

#[test]
fn the_head_says_where_it_begins_and_keeps_caches_out() {
    let stage = Stage::new();
    let client = stage.client();
    publish_many(&client, "t", 3, "x");
    let (epoch, last) = newest(&stage);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let headers = runtime.block_on(async {
        client
            .open("GET", "/v1/events?topics=t", None)
            .await
            .unwrap()
            .headers()
            .clone()
    });
    assert_eq!(headers["content-type"], "text/event-stream");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["weft-replay-from"], format!("{epoch}-{last}"));
}

#[test]
fn kinds_are_filtered_and_text_with_line_breaks_stays_one_event() {
    let stage = Stage::new();
    let client = stage.client();
    for (kind, text) in [
        ("a", "one\ntwo\r\nthree"),
        ("b", "no"),
        ("a", "data: x\n\nid: 9-9\n\n"),
        ("c", "\u{1b}[2J"),
        ("a", "end"),
    ] {
        client
            .call(
                "mesh.publish",
                json!({"topic": "t", "kind": kind, "text": text}),
            )
            .ok(kind);
    }
    let blocks = follow(&client, "/v1/events?topics=t&after=0&kinds=a,c", |block| {
        block.json()["text"] == "end"
    })
    .unwrap();
    let texts: Vec<Value> = blocks
        .iter()
        .filter(|block| !block.data.is_empty())
        .map(|block| block.json()["text"].clone())
        .collect();
    assert_eq!(
        texts,
        [
            "one\ntwo\r\nthree",
            "data: x\n\nid: 9-9\n\n",
            "\u{1b}[2J",
            "end"
        ]
    );
}

#[test]
fn a_reader_that_comes_back_over_kills_sees_each_event_once() {
    const EVENTS: u64 = 300;
    let stage = Stage::new();
    let mut node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let done = AtomicBool::new(false);
    let blocks = std::thread::scope(|scope| {
        // Repeats under the same id until it is told that the event is there.
        let publisher = scope.spawn(|| {
            for n in 0..EVENTS {
                let event = json!({"topic": "t", "id": format!("e-{n}"), "data": n});
                eventually("the publish is acknowledged", || {
                    client
                        .try_call("mesh.publish", event.clone())
                        .ok()
                        .filter(|answer| answer.status == 200)
                });
            }
            done.store(true, Ordering::SeqCst);
        });
        let reader = scope.spawn(|| {
            let mut all: Vec<SseEvent> = Vec::new();
            eventually("all events were read", || {
                let last = all
                    .iter()
                    .rev()
                    .find(|block| !block.id.is_empty())
                    .map(|block| block.id.clone());
                let reader = last.map_or_else(
                    || client.clone(),
                    |id| client.clone().with("last-event-id", &id),
                );
                // A cut stream is an error of the connection; what came before it counts.
                let _ = reader.stream("/v1/events?topics=t&after=0", |block| {
                    let is_last = block.json()["data"] == EVENTS - 1;
                    all.push(block);
                    !is_last
                });
                all.last()
                    .is_some_and(|block| block.json()["data"] == EVENTS - 1)
                    .then_some(())
            });
            all
        });
        for round in 1..=4 {
            eventually("some events are there", || {
                let page = client
                    .try_call("mesh.read", json!({"topics": ["t"], "limit": 1000}))
                    .ok()?;
                (page.body["events"].as_array()?.len() as u64 >= round * EVENTS / 6).then_some(())
            });
            node.kill();
            node = stage.node(&[]);
        }
        publisher.join().unwrap();
        reader.join().unwrap()
    });
    assert!(done.load(Ordering::SeqCst));
    let data: Vec<u64> = blocks
        .iter()
        .filter(|block| block.name.is_empty())
        .filter_map(|block| block.json()["data"].as_u64())
        .collect();
    assert_eq!(data, (0..EVENTS).collect::<Vec<_>>());
    assert!(
        blocks.iter().all(|block| block.name != "resync"),
        "a resync without a reason"
    );
    assert!(sequences(&blocks).is_sorted());
    // The command line follows on over a restart as well.
    let before = stage.events(&["t"]);
    assert_eq!(before.len() as u64, EVENTS);
}

#[test]
fn the_command_line_follows_on_over_a_kill() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let words = [
        "--json",
        "mesh",
        "subscribe",
        "t",
        "--after",
        "0",
        "-n",
        "4",
    ];
    let child = stage
        .weft(words)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    publish_many(&client, "t", 2, "x");
    eventually("it is connected", || {
        let metrics = client.try_get("/metrics").ok()?.text;
        metrics
            .lines()
            .any(|line| line == "weft_http_streams 1")
            .then_some(())
    });
    node.kill();
    // The command line starts the next node, or finds the one that is started here.
    publish_many(&stage.client(), "t", 2, "y");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let got: Vec<(Value, Value)> = lines
        .iter()
        .map(|line| (line["text"].clone(), line["data"].clone()))
        .collect();
    let wanted: Vec<(Value, Value)> = [("x", 0), ("x", 1), ("y", 0), ("y", 1)]
        .map(|(text, n)| (json!(text), json!(n)))
        .into();
    assert_eq!(got, wanted);
}

#[test]
fn a_trimmed_cursor_is_told_and_goes_on_from_the_oldest() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    publish_many(&client, "t", 10, "x");
    keep_events(&client, "t", 4);
    client
        .call("mesh.publish", json!({"topic": "t", "data": 10}))
        .ok("one more");
    let (epoch, last) = newest(&stage);
    let blocks = follow(&client, "/v1/events?topics=t&after=2", datum(10)).unwrap();
    let resync: Vec<&SseEvent> = blocks
        .iter()
        .filter(|block| block.name == "resync")
        .collect();
    assert_eq!(resync.len(), 1, "{blocks:?}");
    let word = resync[0].json();
    assert_eq!(
        word,
        json!({"epoch": epoch, "omitted": [{"topic": "t", "after": 2, "to": last - 4, "count": last - 4 - 2}]})
    );
    assert_eq!(sequences(&blocks), (last - 3..=last).collect::<Vec<_>>());
    // Who lost nothing is told nothing.
    let blocks = follow(
        &client,
        &format!("/v1/events?topics=t&after={}", last - 2),
        datum(10),
    )
    .unwrap();
    assert!(
        blocks.iter().all(|block| block.name.is_empty()),
        "{blocks:?}"
    );
}

#[test]
fn a_cursor_of_another_epoch_is_told_and_begins_with_the_oldest() {
    let stage = Stage::new();
    let client = stage.client();
    publish_many(&client, "t", 3, "x");
    let (epoch, last) = newest(&stage);
    for foreign in [
        "0123456789-2".to_owned(),
        format!("{epoch}-{}", last + 1000),
        format!("x{epoch}-1"),
    ] {
        for reader in [
            client.clone().with("last-event-id", &foreign),
            client.clone(),
        ] {
            let blocks = follow(
                &reader,
                &format!("/v1/events?topics=t&after={foreign}"),
                datum(2),
            )
            .unwrap();
            let resync: Vec<Value> = blocks
                .iter()
                .filter(|block| block.name == "resync")
                .map(SseEvent::json)
                .collect();
            assert_eq!(
                resync,
                [json!({"epoch": epoch, "omitted": []})],
                "{foreign}"
            );
            assert_eq!(sequences(&blocks).len(), 3, "{foreign}");
        }
    }
}

#[test]
fn heavy_a_quiet_stream_shows_life_and_moves_its_cursor() {
    let stage = Stage::new();
    let client = stage.client();
    let mut blocks = 0;
    let all = follow(&client, "/v1/events?topics=t&kinds=wanted", |_| {
        blocks += 1;
        if blocks == 1 {
            beside(|| publish_many(&client, "t", 5, "not wanted"));
        }
        blocks == 2
    });
    let (epoch, last) = newest(&stage);
    let beat = &all.unwrap()[1];
    assert_eq!(
        *beat,
        SseEvent {
            id: format!("{epoch}-{last}"),
            ..SseEvent::default()
        }
    );
}
