//! A task's output as text: characters, enormous lines, and files that others cut.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use weft_tests::{Client, Stage, eventually, tasks};

use super::{memory_kib, until};

fn start(client: &Client, line: &str) -> String {
    tasks::start(client, json!({"line": line, "lease": "durable"}))
}

fn read(client: &Client, id: &str, more: Value) -> Value {
    let mut input = json!({"id": id});
    for (name, value) in more.as_object().unwrap() {
        input[name] = value.clone();
    }
    client.call("tasks.read", input).ok("tasks.read")
}

/// Reads text to the end of the task, as a follower does.
fn read_all(client: &Client, id: &str, from: u64, max: u64) -> (String, u64) {
    let (mut text, mut offset, mut omitted) = (String::new(), from, 0);
    loop {
        let page = read(
            client,
            id,
            json!({"offset": offset, "max": max, "waitMs": 60_000}),
        );
        text.push_str(page["text"].as_str().unwrap());
        omitted += page["omittedBytes"].as_u64().unwrap();
        offset = page["next"].as_u64().unwrap();
        if page["eof"] == true {
            return (text, omitted);
        }
    }
}

#[test]
fn a_character_split_between_two_writes_stays_whole() {
    let stage = Stage::new();
    let client = stage.client();
    let gate = stage.dir().join("gate");
    let line = format!(
        r#"printf "left \342"; {}; printf "\206\222 right\n""#,
        until(&gate)
    );
    let id = start(&client, &line);
    let first = eventually("the first half is there", || {
        Some(read(&client, &id, json!({"encoding": "base64"}))).filter(|page| page["bytes"] == 6)
    });
    assert_eq!(first["data"], BASE64_STANDARD.encode(b"left \xe2"));
    let page = read(&client, &id, json!({}));
    assert_eq!(
        (&page["text"], &page["next"], &page["bytes"], &page["eof"]),
        (&json!("left "), &json!(5), &json!(5), &json!(false))
    );
    // A text read waits for the rest of the character instead of answering with nothing.
    let page = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&client, &id, json!({"offset": 5, "waitMs": 60_000})));
        let printer = scope.spawn(|| stage.run(["logs", "-f", "--no-log-prefix", &id]));
        let watcher = scope.spawn(|| {
            client
                .call(
                    "tasks.watch",
                    json!({"id": id, "match": "→", "timeoutMs": 60_000}),
                )
                .ok("tasks.watch")
        });
        std::fs::write(&gate, "").unwrap();
        let seen = watcher.join().unwrap();
        assert_eq!(
            (&seen["reason"], &seen["lines"][0]["text"]),
            (&json!("match"), &json!("left → right"))
        );
        let shown = printer.join().unwrap();
        assert_eq!(shown.stdout, "left → right\n", "{shown:?}");
        reader.join().unwrap()
    });
    let text = page["text"].as_str().unwrap();
    assert!(
        text.starts_with('→') && !text.contains('\u{fffd}'),
        "{page}"
    );
    for max in [1, 2, 3, 4, 65_536] {
        assert_eq!(
            read_all(&client, &id, 0, max),
            ("left → right\n".to_owned(), 0),
            "max {max}"
        );
    }
    let answer = client.call("tasks.get", json!({"id": id})).ok("tasks.get");
    assert_eq!(
        (&answer["output"][0]["tail"], &answer["task"]["outputBytes"]),
        (&json!("left → right\n"), &json!(15))
    );
}

#[test]
fn broken_characters_are_shown_once_and_kept_exact() {
    let stage = Stage::new();
    let client = stage.client();
    let gate = stage.dir().join("gate");
    let cut = start(&client, &format!(r#"printf "a\342"; {}"#, until(&gate)));
    eventually("both bytes are there", || {
        (read(&client, &cut, json!({"encoding": "base64"}))["bytes"] == 2).then_some(())
    });
    let page = read(&client, &cut, json!({}));
    assert_eq!(
        (&page["text"], &page["next"], &page["eof"]),
        (&json!("a"), &json!(1), &json!(false))
    );
    std::fs::write(&gate, "").unwrap();
    assert_eq!(tasks::ended(&client, &cut)["exitCode"], 0);
    let page = read(&client, &cut, json!({}));
    assert_eq!(
        (&page["text"], &page["next"], &page["eof"]),
        (&json!("a\u{fffd}"), &json!(2), &json!(true))
    );
    assert_eq!(
        read(&client, &cut, json!({"encoding": "base64"}))["data"],
        "YeI="
    );

    let broken = start(&client, r#"printf "a\377b\n"; sleep 60"#);
    let page = eventually("the line is there at once", || {
        Some(read(&client, &broken, json!({}))).filter(|page| page["bytes"] == 4)
    });
    assert_eq!(page["text"], "a\u{fffd}b\n");
    // One mark for each maximal part: a cut head of three bytes is one, stray bytes are one each.
    let parts = start(&client, r#"printf "\360\237\230x\200\200\355\240\200""#);
    tasks::ended(&client, &parts);
    let (text, _) = read_all(&client, &parts, 0, 65_536);
    assert_eq!(text, "\u{fffd}x\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
}

#[test]
fn offsets_and_arguments_are_checked() {
    let stage = Stage::new();
    let client = stage.client();
    let id = start(&client, "printf 0123456789");
    tasks::ended(&client, &id);
    for (input, field) in [
        (json!({"id": id, "offset": 11}), "offset"),
        (json!({"id": id, "max": 0}), "max"),
        (json!({"id": id, "max": 65_537}), "max"),
        (json!({"id": id, "waitMs": 300_001}), "waitMs"),
        (json!({"id": id, "stream": "stderr"}), "stream"),
        (json!({"id": id, "encoding": "hex"}), ""),
    ] {
        let answer = client.call("tasks.read", input.clone());
        assert_eq!(answer.status, 422, "{input}: {}", answer.text);
        assert!(
            field.is_empty() || answer.body["field"] == field,
            "{input}: {}",
            answer.text
        );
    }
    let page = read(&client, &id, json!({"offset": 10}));
    assert_eq!(
        (&page["bytes"], &page["eof"], &page["next"]),
        (&json!(0), &json!(true), &json!(10))
    );
    assert_eq!(
        read(&client, &id, json!({"offset": 4, "max": 3}))["text"],
        "456"
    );
    let path = client
        .get(&format!("/v1/tasks/{id}/output?offset=4&max=3"))
        .ok("by its path");
    assert_eq!(
        (&path["text"], &path["stream"]),
        (&json!("456"), &json!("output"))
    );
    let output = stage.run(["read", &id, "4", "--max", "3"]).expect_code(0);
    assert_eq!(output.stdout, "456");
    assert!(output.stderr.contains("next offset 7"), "{output:?}");
    for (words, code) in [
        (&["watch", &id][..], 1),
        (&["watch", &id, ""], 1),
        (&["watch", "t-none", "x"], 1),
        (&["watch"], 2),
    ] {
        assert_eq!(stage.run(words).code, code, "{words:?}");
    }
}

#[test]
fn heavy_one_enormous_line_hurts_nobody() {
    const BYTES: u64 = 50_000_006;
    const GROWTH_KIB: u64 = 32 * 1024;
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let other = start(&client, "echo other; sleep 600");
    eventually("the other task has spoken", || {
        (read(&client, &other, json!({}))["bytes"] == 6).then_some(())
    });
    let before = memory_kib(node.pid(), "VmRSS:");
    let gate = stage.dir().join("gate");
    let id = start(
        &client,
        &format!(
            "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo TAIL; {}",
            until(&gate)
        ),
    );
    let watched = std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (stage, id) = (&stage, &id);
        scope.spawn(move || {
            let _ = tell.send(stage.json(["--json", "watch", id, "TAIL", "--timeout", "5m"]));
        });
        loop {
            let begin = Instant::now();
            read(&client, &other, json!({}));
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "another task's read took {:?}",
                begin.elapsed()
            );
            match told.recv_timeout(Duration::from_millis(20)) {
                Ok(watched) => break watched,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("the watch failed"),
            }
        }
    });
    assert_eq!(
        (&watched["reason"], &watched["omittedBytes"]),
        (&json!("match"), &json!(0)),
        "{watched}"
    );
    assert_eq!(
        watched["lines"],
        json!([{"offset": 50_000_001, "text": "TAIL"}])
    );
    let long = client
        .call("tasks.watch", json!({"id": id, "match": "x"}))
        .ok("the long line");
    assert_eq!(long["lines"].as_array().unwrap().len(), 1);
    let text = long["lines"][0]["text"].as_str().unwrap();
    assert_eq!((text.len(), &long["lines"][0]["offset"]), (2048, &json!(0)));
    let shim = tasks::shim(&client, &id).expect("a shim");
    let shim = memory_kib(shim, "VmHWM:");
    assert!(shim < GROWTH_KIB, "the shim grew to {shim} KiB");
    std::fs::write(&gate, "").unwrap();
    let task = tasks::ended(&client, &id);
    assert_eq!(
        (&task["state"], &task["exitCode"], &task["outputBytes"]),
        (&json!("exited"), &json!(0), &json!(BYTES))
    );
    let grown = memory_kib(node.pid(), "VmHWM:").saturating_sub(before);
    assert!(grown < GROWTH_KIB, "the node grew by {grown} KiB");
}

/// A task that says three old lines, waits, and says a new one, while `change` is done to its log in between.
fn changed_log(change: impl FnOnce(&Path)) {
    let stage = Stage::new();
    let client = stage.client();
    let gate = stage.dir().join("gate");
    let id = start(
        &client,
        &format!(
            "echo old-1; echo old-2; echo old-3; {}; echo new-1",
            until(&gate)
        ),
    );
    let page = eventually("the old lines are there", || {
        Some(read(&client, &id, json!({}))).filter(|page| page["bytes"] == 18)
    });
    assert_eq!(page["next"], 18);
    let path = tasks::record(&client, &id)["logPath"]
        .as_str()
        .unwrap()
        .to_owned();
    change(Path::new(&path));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&client, &id, 18, 65_536));
        let watcher = scope.spawn(|| {
            client
                .call(
                    "tasks.watch",
                    json!({"id": id, "match": "new-1", "timeoutMs": 60_000}),
                )
                .ok("tasks.watch")
        });
        std::fs::write(&gate, "").unwrap();
        assert_eq!(reader.join().unwrap(), ("new-1\n".to_owned(), 0));
        let seen = watcher.join().unwrap();
        assert_eq!(
            (&seen["reason"], &seen["lines"]),
            (&json!("match"), &json!([{"offset": 18, "text": "new-1"}])),
            "{seen}"
        );
    });
    let (text, omitted) = read_all(&client, &id, 0, 65_536);
    let whole = ("old-1\nold-2\nold-3\nnew-1\n", 0);
    assert!(
        (text.as_str(), omitted) == whole || (text.as_str(), omitted) == ("new-1\n", 18),
        "{text:?}, {omitted} omitted"
    );
    let logs = stage.run(["logs", &id]).expect_code(0);
    assert!(
        logs.stdout.contains("new-1") && !logs.stdout.contains('\0'),
        "{logs:?}"
    );
    let task = tasks::ended(&client, &id);
    assert_eq!(
        (&task["state"], &task["exitCode"], &task["outputBytes"]),
        (&json!("exited"), &json!(0), &json!(24))
    );
}

#[test]
fn a_log_that_is_copied_and_cut_goes_on_at_its_true_offset() {
    changed_log(|log| {
        std::fs::copy(log, log.with_extension("1")).unwrap();
        std::fs::File::options()
            .write(true)
            .open(log)
            .unwrap()
            .set_len(0)
            .unwrap();
    });
}

#[test]
fn a_log_that_is_removed_goes_on() {
    changed_log(|log| std::fs::remove_file(log).unwrap());
}

#[test]
fn a_log_that_is_renamed_goes_on() {
    changed_log(|log| std::fs::rename(log, log.with_extension("1")).unwrap());
}

#[test]
fn a_log_that_is_replaced_by_a_link_is_not_followed() {
    changed_log(|log| {
        let secret = log.with_extension("secret");
        std::fs::write(&secret, "secret-1\nsecret-2\nsecret-3\nsecret-4\n").unwrap();
        std::fs::remove_file(log).unwrap();
        std::os::unix::fs::symlink(secret, log).unwrap();
    });
}
