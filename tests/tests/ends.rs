//! How an end is told: codes and signals by every door, and ends that do not wait for what was left behind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use weft_tests::tasks::{durable, ended, events, inbox, record, start};
use weft_tests::{Output, Stage, eventually, processes};

#[test]
fn a_command_killed_by_a_signal_is_no_success_by_any_door() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let table = [
        ("kill -9 $$", 137, Some("SIGKILL"), "failed"),
        ("kill -TERM $$", 143, Some("SIGTERM"), "failed"),
        ("kill -SEGV $$", 139, Some("SIGSEGV"), "failed"),
        ("kill -HUP $$", 129, Some("SIGHUP"), "failed"),
        ("exit 137", 137, None, "failed"),
        ("exit 0", 0, None, "exited"),
    ];
    for (line, code, signal, state) in table {
        let id = stage
            .run(["run", "--background", "--quiet", "-c", line])
            .expect_code(0)
            .stdout
            .trim()
            .to_owned();
        let items = eventually("the inbox item", || {
            Some(inbox(&client, "cli")).filter(|items| !items.is_empty())
        });
        assert_eq!(
            (
                &items[0]["taskId"],
                &items[0]["state"],
                &items[0]["exitCode"]
            ),
            (&json!(id), &json!(state), &json!(code)),
            "{line}"
        );
        let task = stage.run(["wait", &id, "--json"]).expect_code(code).json()["task"].clone();
        assert_eq!(
            (&task["state"], &task["exitCode"], &task["signal"]),
            (&json!(state), &json!(code), &json!(signal)),
            "{line}"
        );
        let receipt =
            std::fs::read(stage.home().join("tasks").join(&id).join("receipt.json")).unwrap();
        let receipt: Value = serde_json::from_slice(&receipt).unwrap();
        assert_eq!(
            (&receipt["exitCode"], &receipt["signal"]),
            (&json!(code), &json!(signal)),
            "{line}"
        );
        assert_eq!(
            stage.run(["run", "-c", line]).code,
            code,
            "weft run -c '{line}'"
        );
        let told = durable(&client, line, "ends");
        ended(&client, &told);
        let event = events(&client, "ends").pop().unwrap();
        let data = json!({"taskId": told, "exitCode": code, "state": state, "signal": signal, "reason": null});
        assert_eq!(event["data"], data, "{line}");
    }
}

/// The record of a foreground run, and how long the run took.
fn foreground(stage: &Stage, line: &str) -> (Output, Duration) {
    let begun = Instant::now();
    (stage.run(["run", "-c", line]), begun.elapsed())
}

/// What waiting for a descendant that sleeps would take at least.
const SLEPT: Duration = Duration::from_secs(25);

#[test]
fn a_quiet_descendant_does_not_hold_up_the_end() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let lines = [
        ("sleep 30 & echo started", true),
        ("setsid sleep 30 & echo started", true),
        ("sleep 30 >/dev/null & echo started", true),
        ("sleep 30 >/dev/null 2>&1 & echo started", false),
    ];
    for (line, is_held) in lines {
        let (out, took) = foreground(&stage, line);
        assert_eq!(
            (out.code, out.stdout.as_str(), out.stderr.as_str()),
            (0, "started\n", ""),
            "{line}"
        );
        assert!(took < SLEPT, "{line}: took {took:?}");
        for streams in ["merged", "split"] {
            let begun = Instant::now();
            let id = start(
                &client,
                json!({"line": line, "lease": "session", "streams": streams}),
            );
            let task = ended(&client, &id);
            assert!(
                begun.elapsed() < SLEPT,
                "{line}: took {:?}",
                begun.elapsed()
            );
            assert_eq!(
                (
                    &task["state"],
                    &task["exitCode"],
                    &task["outputBytes"],
                    &task["streamsHeldOpen"]
                ),
                (&json!("exited"), &json!(0), &json!(8), &json!(is_held)),
                "{line} {streams}"
            );
            let read = client.call("tasks.read", json!({"id": id})).ok("a read");
            assert_eq!(
                (&read["text"], &read["eof"]),
                (&json!("started\n"), &json!(true))
            );
        }
    }
}

#[test]
fn a_chatty_descendant_does_not_hold_up_the_end_either() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let beats = stage.dir().join("beats");
    let line = format!(
        "(trap '' PIPE; while :; do echo tick; echo x >> {}; sleep 0.05; done) & echo up",
        beats.display()
    );
    let line = line.as_str();
    let id = start(&client, json!({"line": line, "lease": "session"}));
    let (out, took) = foreground(&stage, line);
    // Ticks or not, it is over two seconds after the shell is.
    assert_eq!(out.code, 0, "{out:?}");
    assert!(
        out.stdout
            .lines()
            .all(|line| line == "up" || line == "tick")
            && out.stdout.contains("up\n"),
        "{out:?}"
    );
    assert!(
        took > Duration::from_millis(1500) && took < Duration::from_secs(20),
        "took {took:?}"
    );
    let task = ended(&client, &id);
    assert_eq!(
        (&task["state"], &task["exitCode"], &task["streamsHeldOpen"]),
        (&json!("exited"), &json!(0), &json!(true))
    );
    let size = task["outputBytes"].as_u64().unwrap();
    let file = std::path::PathBuf::from(task["logPath"].as_str().unwrap());
    // It goes on, and nothing of what it prints now reaches the task's record or its file.
    let beat = || std::fs::metadata(&beats).map_or(0, |file| file.len());
    let then = beat();
    eventually("the leftover goes on", || (beat() > then + 4).then_some(()));
    assert_eq!(std::fs::metadata(file).unwrap().len(), size);
    assert_eq!(record(&client, &id)["outputBytes"], size);
    let read = client
        .call("tasks.read", json!({"id": id, "offset": size}))
        .ok("a read");
    assert_eq!((&read["eof"], &read["next"]), (&json!(true), &json!(size)));
}

#[test]
fn a_deadline_has_a_code_of_its_own() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let begun = Instant::now();
    let out = stage.run(["run", "--timeout", "200ms", "-c", "echo begun; sleep 100"]);
    assert_eq!((out.code, out.stdout.as_str()), (124, "begun\n"), "{out:?}");
    assert!(begun.elapsed() < SLEPT);
    let out = stage
        .run([
            "run",
            "--timeout",
            "200ms",
            "--json",
            "-c",
            "trap '' TERM; sleep 100",
        ])
        .expect_code(124)
        .json();
    assert_eq!(
        (&out["state"], &out["reason"]),
        (&json!("timed_out"), &json!("deadline"))
    );
    assert!(out["exitCode"] == 137 || out["exitCode"] == 143, "{out}");
    // A wait's own time is none of the task's.
    let id = stage
        .run(["run", "--background", "--quiet", "--", "sleep", "100"])
        .stdout
        .trim()
        .to_owned();
    let waited = stage.run(["wait", "--timeout", "100ms", &id]);
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(waited.stderr.contains("still running"), "{waited:?}");
    assert_eq!(
        stage.json(["get", "--json", &id])["task"]["state"],
        "running"
    );
}

#[test]
fn a_node_that_stood_still_loses_nothing() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let mark = stage.dir().join("mark");
    let line = format!(
        "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.05; done; echo done > {}",
        mark.display()
    );
    let ids = [
        durable(&client, &line, "ends"),
        start(
            &client,
            json!({"line": "sleep 100", "lease": "durable", "timeoutMs": 300}),
        ),
    ];
    processes::signal(node.pid(), Signal::STOP);
    eventually("the task ended under a node that stands still", || {
        mark.is_file().then_some(())
    });
    for id in &ids {
        let receipt = stage.home().join("tasks").join(id).join("receipt.json");
        eventually("the receipt", || receipt.is_file().then_some(()));
    }
    processes::signal(node.pid(), Signal::CONT);
    let task = ended(&client, &ids[0]);
    assert_eq!(
        (&task["state"], &task["outputBytes"]),
        (&json!("exited"), &json!(8 * 7))
    );
    assert!(task["finishedAt"].as_u64() >= task["startedAt"].as_u64());
    assert_eq!(events(&client, "ends").len(), 1);
    // The deadline is the shim's, whatever the node does.
    let task = ended(&client, &ids[1]);
    assert_eq!(task["state"], "timed_out");
    let took = task["finishedAt"].as_u64().unwrap() - task["startedAt"].as_u64().unwrap();
    assert!((290..20_000).contains(&took), "took {took} ms");
}

#[test]
fn what_others_ran_is_shown_by_name_or_command_with_its_end() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let other = stage.client().session("other");
    let id = weft_tests::tasks::start(
        &other,
        serde_json::json!({"line": "exit 7", "lease": "durable"}),
    );
    weft_tests::tasks::ended(&other, &id);
    let shown = stage.run(["external"]).expect_code(0).stdout;
    let line = shown.lines().find(|line| line.starts_with(&id)).unwrap();
    assert!(
        line.contains("failed (7)") && line.ends_with("exit 7"),
        "{shown}"
    );
}
