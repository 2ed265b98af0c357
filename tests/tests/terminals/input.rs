//! Writes, their order, their end and their bounds.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use weft_tests::tasks::{ended, sleepers, start, unique_sleep};
use weft_tests::{Stage, eventually};

use super::{on_terminal, output, wait_for};

#[test]
fn a_pipe_task_reads_what_is_written_in_order_and_ends_with_its_input() {
    let stage = Stage::new();
    let line = "while read -r line; do echo \"out $line\"; echo \"err $line\" >&2; done; echo over";
    let id = stage.json(["run", "--durable", "--io", "pipes", "--json", "-c", line]);
    assert_eq!((&id["io"], &id["tty"]), (&json!("pipes"), &json!(false)));
    assert_eq!(id["streams"], json!(["stdout", "stderr"]));
    let id = id["id"].as_str().unwrap();
    let client = stage.client();
    for n in 0..20 {
        let answer = client.call("tasks.write", json!({"id": id, "text": format!("{n}\n")}));
        let taken = format!("{n}\n").len();
        assert_eq!(
            answer.ok("tasks.write"),
            json!({"id": id, "written": taken, "closed": false})
        );
    }
    let _ = stage
        .run(["write", id, "by the command line", "--enter"])
        .expect_code(0);
    let _ = stage
        .run_with_input(["write", id, "-"], "one\ntwo\n")
        .expect_code(0);
    let _ = stage.run(["close-input", id]).expect_code(0);
    let record = ended(&client, id);
    assert_eq!(record["state"], "exited", "{record}");
    let lines: Vec<String> = (0..20)
        .map(|n| n.to_string())
        .chain(["by the command line", "one", "two"].map(str::to_owned))
        .collect();
    let expected = |word: &str| {
        let lines = lines.iter().map(|line| format!("{word} {line}\n"));
        lines.collect::<String>()
    };
    assert_eq!(output(&client, id, "stdout"), expected("out") + "over\n");
    assert_eq!(output(&client, id, "stderr"), expected("err"));
}

#[test]
fn a_terminal_echoes_and_its_end_key_ends_it() {
    let stage = Stage::new();
    let client = stage.client();
    let record = client.call(
        "tasks.run",
        json!({"argv": ["cat"], "lease": "session", "io": "pty"}),
    );
    let record = record.ok("tasks.run");
    assert_eq!(
        (&record["io"], &record["tty"], &record["streams"]),
        (&json!("pty"), &json!(true), &json!(["output"]))
    );
    let id = record["id"].as_str().unwrap();
    let written = client.call(
        "tasks.write",
        json!({"id": id, "text": "hällo", "enter": true}),
    );
    assert_eq!(written.ok("tasks.write")["written"], 7);
    wait_for(&client, id, "output", "hällo\r\nhällo\r\n");
    let closed = client.call("tasks.closeInput", json!({"id": id}));
    assert_eq!(
        closed.ok("tasks.closeInput"),
        json!({"id": id, "written": 0, "closed": true})
    );
    assert_eq!(ended(&client, id)["state"], "exited");
}

#[test]
fn the_terminal_is_of_a_known_kind_and_of_the_size_that_was_asked_for() {
    let stage = Stage::new();
    let client = stage.client();
    let line = "echo \"$TERM\"; stty size; test -t 0 && test -t 1 && test -t 2 && echo all";
    let id = on_terminal(&client, line);
    ended(&client, &id);
    assert_eq!(
        output(&client, &id, "output"),
        "xterm-256color\r\n40 120\r\nall\r\n"
    );
    let input = json!({"line": line, "lease": "durable", "io": "pty", "size": [77, 22], "env": {"TERM": "dumb"}});
    let id = start(&client, input);
    ended(&client, &id);
    assert_eq!(output(&client, &id, "output"), "dumb\r\n22 77\r\nall\r\n");
    // The caller's own kind of terminal is not the task's.
    let mut run = stage.weft([
        "run",
        "--background",
        "--pty",
        "--size",
        "50x10",
        "-c",
        line,
    ]);
    let printed = weft_tests::stage::finish(run.env("TERM", "vt52")).expect_code(0);
    let id = printed.stdout.trim();
    ended(&client, id);
    assert_eq!(
        output(&client, id, "output"),
        "xterm-256color\r\n10 50\r\nall\r\n"
    );
}

#[test]
fn a_resize_is_seen_by_the_command() {
    let stage = Stage::new();
    let client = stage.client();
    let line = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done";
    let id = on_terminal(&client, line);
    wait_for(&client, &id, "output", "ready");
    let _ = stage.run(["resize", &id, "101x31"]).expect_code(0);
    assert_eq!(ended(&client, &id)["state"], "exited");
    assert_eq!(output(&client, &id, "output"), "ready\r\n31 101\r\n");
}

#[test]
fn a_signal_reaches_the_whole_task() {
    let stage = Stage::new();
    let client = stage.client();
    let line = "trap 'echo hup' HUP; echo ready; while :; do sleep 0.02; done";
    let id = start(&client, json!({"line": line, "lease": "durable"}));
    wait_for(&client, &id, "output", "ready");
    let _ = stage.run(["kill", "-s", "HUP", &id]).expect_code(0);
    wait_for(&client, &id, "output", "hup");
    let refused = stage.run(["kill", "-s", "NONE", &id]).expect_code(1);
    assert!(refused.stderr.contains("NONE"), "{refused:?}");
    let _ = stage.run(["kill", &id]).expect_code(0);
    let record = ended(&client, &id);
    assert_eq!(
        (&record["state"], &record["signal"]),
        (&json!("killed"), &json!("SIGTERM"))
    );
}

/// Each refusal names its reason.
#[test]
fn input_that_cannot_arrive_is_refused_with_the_reason() {
    let stage = Stage::new();
    let client = stage.client();
    let refused = |id: &str, input: Value, words: &[&str]| {
        let mut input = input;
        input["id"] = id.into();
        let answer = client.call("tasks.write", input);
        let detail = answer.body["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(answer.status >= 400, "{answer:?}");
        for word in words {
            assert!(detail.contains(word), "{word}: {detail}");
        }
    };
    let text = json!({"text": "x\n"});

    let id = start(
        &client,
        json!({"line": "exit 3", "lease": "durable", "io": "pipes"}),
    );
    ended(&client, &id);
    refused(&id, text.clone(), &["has ended", "failed", "code 3"]);

    let sleep = unique_sleep();
    let id = start(&client, json!({"line": sleep, "lease": "durable"}));
    refused(&id, text.clone(), &["batch task", "io pipes or pty"]);

    let id = start(
        &client,
        json!({"line": format!("cat; {sleep}"), "lease": "durable", "io": "pipes"}),
    );
    client
        .call("tasks.closeInput", json!({"id": id}))
        .ok("tasks.closeInput");
    client
        .call("tasks.closeInput", json!({"id": id}))
        .ok("tasks.closeInput");
    refused(&id, text.clone(), &["input is closed"]);

    let id = start(
        &client,
        json!({"line": format!("exec <&-; echo closed; {sleep}"), "lease": "durable", "io": "pipes"}),
    );
    wait_for(&client, &id, "stdout", "closed");
    refused(&id, text, &["has closed its input"]);

    let id = on_terminal(&client, &sleep);
    refused(
        &id,
        json!({"text": "x".repeat(4096)}),
        &["line mode", "4095"],
    );
    refused(
        &id,
        json!({"text": "x".repeat(64 * 1024 + 1)}),
        &["text", "65536"],
    );
    refused(&id, json!({}), &["text"]);
    refused(&id, json!({"text": "x", "data": "eA=="}), &["data"]);
    refused(&id, json!({"data": "?"}), &["data", "base64"]);
    let outdated = client.call(
        "tasks.write",
        json!({"id": id, "text": "x", "incarnation": "another"}),
    );
    assert_eq!(outdated.status, 409, "{outdated:?}");
    for bad in [json!([0, 10]), json!([10, 501]), json!([1001, 10])] {
        let answer = client.call("tasks.resize", json!({"id": id, "size": bad}));
        assert_eq!(answer.status, 422, "{answer:?}");
    }
    let refused = client.call(
        "tasks.run",
        json!({"line": "x", "lease": "durable", "io": "pty", "streams": "split"}),
    );
    assert_eq!(refused.status, 422, "{refused:?}");
}

#[test]
fn a_mebibyte_waits_for_a_task_that_does_not_read_and_no_more() {
    let stage = Stage::new();
    let client = stage.client();
    let (go, sleep) = (stage.dir().join("go"), unique_sleep());
    let line = format!(
        "while [ ! -e {} ]; do sleep 0.02; done; wc -c; {sleep}",
        go.display()
    );
    let id = start(
        &client,
        json!({"line": line, "lease": "durable", "io": "pipes"}),
    );
    let block = BASE64_STANDARD.encode(vec![b'x'; 64 * 1024]);
    let mut taken = 0;
    let refused = loop {
        let answer = client.call("tasks.write", json!({"id": id, "data": block}));
        if answer.status != 200 {
            break answer;
        }
        taken += answer.body["written"].as_u64().unwrap();
    };
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(
        refused.body["detail"]
            .as_str()
            .unwrap()
            .contains("write again later"),
        "{refused:?}"
    );
    assert!(
        (1 << 20..(1 << 20) + 200 * 1024).contains(&taken),
        "{taken}"
    );
    // A bounded wait that is in vain changes nothing; other verbs are prompt meanwhile.
    let vain = client.call(
        "tasks.write",
        json!({"id": id, "data": block, "waitMs": 50}),
    );
    assert_eq!(vain.status, 429, "{vain:?}");
    client.call("tasks.get", json!({"id": id})).ok("tasks.get");
    // A wait that is not in vain writes when there is room.
    let waits = std::thread::spawn({
        let (client, id) = (stage.client(), id.clone());
        move || {
            client.call(
                "tasks.write",
                json!({"id": id, "data": block, "waitMs": 60_000}),
            )
        }
    });
    std::fs::write(&go, "").unwrap();
    taken += waits.join().unwrap().ok("tasks.write")["written"]
        .as_u64()
        .unwrap();
    client
        .call("tasks.closeInput", json!({"id": id}))
        .ok("tasks.closeInput");
    eventually("all was read", || {
        let counted: Option<u64> = output(&client, &id, "stdout").trim().parse().ok();
        counted.map(|counted| assert_eq!(counted, taken))
    });
    // And a stop passes what waits.
    let stuck = start(
        &client,
        json!({"line": sleep, "lease": "durable", "io": "pipes"}),
    );
    let big = BASE64_STANDARD.encode(vec![b'x'; 64 * 1024]);
    for _ in 0..4 {
        client
            .call("tasks.write", json!({"id": stuck, "data": big}))
            .ok("tasks.write");
    }
    sleepers(&sleep, 2);
    client
        .call("tasks.stop", json!({"id": stuck}))
        .ok("tasks.stop");
    sleepers(&sleep, 1);
}

#[test]
fn a_write_that_meets_the_end_gets_one_of_two_answers() {
    let stage = Stage::new();
    let client = stage.client();
    for n in 0..60 {
        let io = ["pipes", "pty"][n % 2];
        let id = start(
            &client,
            json!({"line": "read line", "lease": "durable", "io": io}),
        );
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (client, id) = (stage.client(), id.clone());
                std::thread::spawn(move || {
                    client.call("tasks.write", json!({"id": id, "text": "x\n"}))
                })
            })
            .collect();
        for thread in threads {
            let answer = thread.join().unwrap();
            let detail = answer.body["detail"].as_str().unwrap_or_default();
            let is_told = detail.contains("has ended") || detail.contains("closed its input");
            assert!(
                answer.status == 200 || (answer.status == 409 && is_told),
                "{answer:?}"
            );
        }
        ended(&client, &id);
    }
}

#[test]
fn writes_that_waited_in_vain_leave_the_task_to_others() {
    let stage = Stage::new();
    let client = stage.client();
    let id = start(
        &client,
        json!({"line": "trap 'echo heard' USR1; while :; do sleep 0.02; done", "lease": "durable", "io": "pipes"}),
    );
    let block = BASE64_STANDARD.encode(vec![b'x'; 64 * 1024]);
    while client
        .call("tasks.write", json!({"id": id, "data": block}))
        .status
        == 200
    {}
    // More than a connection to a shim keeps open at once.
    for _ in 0..80 {
        let read = json!({"id": id, "stream": "stdout", "waitMs": 5});
        assert_eq!(client.call("tasks.read", read).ok("tasks.read")["text"], "");
        let vain = client.call("tasks.write", json!({"id": id, "data": block, "waitMs": 5}));
        assert_eq!(vain.status, 429, "{vain:?}");
    }
    let many: Vec<_> = (0..80)
        .map(|_| {
            let (client, id, block) = (stage.client(), id.clone(), block.clone());
            std::thread::spawn(move || {
                client.call(
                    "tasks.write",
                    json!({"id": id, "data": block, "waitMs": 300_000}),
                )
            })
        })
        .collect();
    let readers: Vec<_> = (0..80)
        .map(|_| {
            let (client, id) = (stage.client(), id.clone());
            let input = json!({"id": id, "stream": "stdout", "waitMs": 300_000});
            std::thread::spawn(move || client.call("tasks.read", input))
        })
        .collect();
    let _ = stage.run(["kill", "-s", "USR1", &id]).expect_code(0);
    for reader in readers {
        let page = reader.join().unwrap().ok("tasks.read");
        assert_eq!(page["text"], "heard\n");
    }
    let stopped = client.call("tasks.stop", json!({"id": id}));
    assert_eq!(stopped.ok("tasks.stop")["task"]["state"], "killed");
    for waiting in many {
        let answer = waiting.join().unwrap();
        assert_eq!(answer.status, 409, "{answer:?}");
    }
}
