//! Whoever asks after the end gets the end, whenever it comes.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use weft_tests::{Client, Stage, processes, stage::finish, tasks};

use super::{follow, until};

/// Far beyond any answer and far below the waits that are asked for.
const PROMPT: Duration = Duration::from_secs(20);
const WAIT_MS: u64 = 60_000;

fn within<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    assert!(
        begin.elapsed() < PROMPT,
        "{what} used up its wait: {:?}",
        begin.elapsed()
    );
    done
}

/// Every way to ask for the end of a task that was just started, or ended long ago.
fn ask_all_ways(client: &Client, id: &str) {
    // Of another session, so that nothing is acknowledged before the owner reads.
    let other = client.clone().session("other");
    let ended = within("wait", || {
        other
            .call("tasks.wait", json!({"id": id, "timeoutMs": WAIT_MS}))
            .ok("tasks.wait")
    });
    assert_eq!(
        (
            &ended["timedOut"],
            &ended["task"]["state"],
            &ended["task"]["exitCode"]
        ),
        (&json!(false), &json!("exited"), &json!(0))
    );
    let watched = within("watch", || {
        other
            .call(
                "tasks.watch",
                json!({"id": id, "match": "x", "timeoutMs": WAIT_MS}),
            )
            .ok("tasks.watch")
    });
    assert_eq!(
        (&watched["reason"], &watched["lines"]),
        (&json!("finished"), &json!([]))
    );
    let read = within("read", || {
        other
            .call("tasks.read", json!({"id": id, "waitMs": WAIT_MS}))
            .ok("tasks.read")
    });
    assert_eq!(
        (&read["eof"], &read["bytes"], &read["state"]),
        (&json!(true), &json!(0), &json!("exited"))
    );
}

/// The owner's item for this task, which is then settled.
fn take_item(client: &Client, id: &str) {
    let answer = within("inbox", || {
        client
            .call("inbox.read", json!({"waitMs": WAIT_MS}))
            .ok("inbox.read")
    });
    let items = answer["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{answer}");
    assert_eq!(
        (&items[0]["taskId"], &items[0]["type"]),
        (&json!(id), &json!("finished"))
    );
    client
        .call("inbox.ack", json!({"seq": items[0]["seq"]}))
        .ok("inbox.ack");
}

fn loops(count: usize) {
    let stage = Stage::new();
    let client = stage.client().session("owner");
    for round in 0..count {
        let before = client.get("/readyz").ok("readyz")["newest"].clone();
        let id = tasks::start(
            &client,
            json!({"argv": ["true"], "lease": "durable", "notify": {"topic": "ends"}}),
        );
        match round % 4 {
            0 => ask_all_ways(&client, &id),
            1 => take_item(&client, &id),
            2 => {
                let path = format!("/v1/events?topics=ends&after={before}");
                let blocks = within("stream", || {
                    follow(&client, &path, |block| {
                        block.json()["id"] == format!("completion:{id}")
                    })
                    .unwrap()
                });
                assert_eq!(super::sequences(&blocks).len(), 1);
            }
            _ => {
                let page = within("mesh.read", || {
                    client
                        .call(
                            "mesh.read",
                            json!({"topics": ["ends"], "after": before, "waitMs": WAIT_MS}),
                        )
                        .ok("mesh.read")
                });
                assert_eq!(page["events"][0]["data"]["taskId"], id);
            }
        }
        // Whatever was asked first, the rest answers as well.
        ask_all_ways(&client, &id);
        if round % 4 != 1 {
            take_item(&client, &id);
        }
    }
}

#[test]
fn the_end_is_there_for_all_who_ask_at_once() {
    loops(24);
}

#[test]
fn heavy_five_hundred_ends_are_there_for_all_who_ask_at_once() {
    loops(500);
}

#[test]
fn the_end_is_there_for_all_who_ask_later() {
    let stage = Stage::new();
    let client = stage.client().session("owner");
    let start = client.call("mesh.read", json!({})).ok("mesh.read")["next"].clone();
    let id = tasks::durable(&client, "exit 0", "ends");
    let record = tasks::unread_end(&client, &id);
    assert_eq!(record["exitCode"], 0);
    ask_all_ways(&client, &id);
    take_item(&client, &id);
    let path = format!("/v1/events?topics=ends&after={start}");
    let blocks = within("stream", || {
        follow(&client, &path, |block| !block.data.is_empty()).unwrap()
    });
    assert_eq!(
        blocks.last().unwrap().json()["id"],
        format!("completion:{id}")
    );
    for words in [
        &["wait", &id][..],
        &["wait", "--timeout", "1m", &id],
        &["logs", "-f", &id],
        &["watch", &id, "x", "--timeout", "1m"],
        &["read", &id, "--wait", "1m"],
        &["get", &id],
    ] {
        let output = within("a command", || finish(&mut stage.weft(words)));
        // A watch tells by its code that the text never came.
        let code = i32::from(words[0] == "watch");
        assert_eq!(output.code, code, "{words:?}: {output:?}");
    }
}

#[test]
fn a_completion_reaches_the_session_that_started_the_task() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let gate = stage.dir().join("gate");
    let line = format!("{}; echo from-A", super::until(&gate));
    let start = |session: &str| {
        let words = [
            "--session",
            session,
            "--json",
            "run",
            "--durable",
            "-c",
            &line,
        ];
        stage.json(words)["id"].as_str().unwrap().to_owned()
    };
    let id = start("A");
    let client = stage.client();
    let inbox = |session: &str, wait: u64| -> Vec<Value> {
        let answer = client
            .call("inbox.read", json!({"session": session, "waitMs": wait}))
            .ok("inbox.read");
        answer["items"].as_array().unwrap().clone()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| inbox("B", 1500));
        let owner = scope.spawn(|| inbox("A", WAIT_MS));
        std::fs::write(&gate, "").unwrap();
        assert_eq!(
            other.join().unwrap(),
            Vec::<Value>::new(),
            "B got what is A's"
        );
        let items = owner.join().unwrap();
        assert_eq!(items.len(), 1);
        let item = &items[0];
        assert_eq!(
            (
                &item["type"],
                &item["taskId"],
                &item["state"],
                &item["exitCode"]
            ),
            (&json!("finished"), &json!(id), &json!("exited"), &json!(0))
        );
        assert!(
            item["summary"].as_str().unwrap().contains("from-A"),
            "{item}"
        );
        assert_eq!(item["untrusted"], true);
    });
    // It waits for its owner over any end of a node, and a look by somebody else takes nothing.
    let _ = stage.run(["--session", "B", "get", &id]).expect_code(0);
    let _ = stage.run(["--session", "B", "wait", &id]).expect_code(0);
    node.kill();
    let node = stage.node(&[]);
    assert_eq!(inbox("A", 0).len(), 1);
    node.terminate();
    let _node = stage.node(&[]);
    assert_eq!(inbox("A", 0).len(), 1);
    let shown = stage.run(["--session", "A", "inbox"]).expect_code(0);
    assert!(
        shown
            .stdout
            .starts_with("automated, not user input or approval\n"),
        "{shown:?}"
    );
    let seq = inbox("A", 0)[0]["seq"].to_string();
    let _ = stage
        .run(["--session", "B", "inbox", "--ack", &seq])
        .expect_code(0);
    assert_eq!(inbox("A", 0).len(), 1, "B settled what is A's");
    let _ = stage
        .run(["--session", "A", "inbox", "--ack", &seq])
        .expect_code(0);
    assert_eq!(inbox("A", 0).len(), 0);
}

#[test]
fn an_inbox_that_nothing_can_wake_does_not_wait() {
    let stage = Stage::new();
    let output = within("inbox --wait", || stage.run(["inbox", "--wait"]));
    assert_eq!(output.code, 1, "{output:?}");
    let id = stage
        .run(["run", "--durable", "-c", "sleep 0.2"])
        .expect_code(0)
        .stdout;
    let output = within("inbox --wait", || stage.run(["inbox", "--wait"])).expect_code(0);
    assert!(output.stdout.contains(id.trim()), "{output:?}");
}

#[test]
fn whoever_waits_before_the_node_has_met_the_shim_hears_what_the_task_says() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let gate = stage.dir().join("gate");
    let line = format!("{}; echo said; exec sleep 600", until(&gate));
    let id = tasks::start(&client, json!({"line": line, "lease": "durable"}));
    let shim = tasks::shim(&client, &id).expect("a shim");
    node.kill();
    // Frozen, it greets nobody: the next node has no connection to it until it wakes it, seconds later.
    processes::signal(shim, Signal::STOP);
    let _node = stage.node(&[]);
    std::fs::write(&gate, "").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let input = json!({"id": id, "waitMs": WAIT_MS});
            let read = within("a read", || client.call("tasks.read", input).ok("a read"));
            assert_eq!(read["text"], "said\n");
        });
        let input = json!({"id": id, "match": "said", "timeoutMs": WAIT_MS});
        let watched = within("a watch", || {
            client.call("tasks.watch", input).ok("a watch")
        });
        assert_eq!(watched["reason"], "match", "{watched}");
    });
}
