//! A task is stopped as a whole tree, and the tree ends where another weft begins.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_tests::stage::weft_bin;
use weft_tests::tasks::{sleepers, unique_sleep};
use weft_tests::{Stage, eventually, processes};

/// `weft stop`, and the record it answers.
#[track_caller]
fn stop(stage: &Stage, args: &[&str]) -> Value {
    stage.json([&["stop", "--json"], args].concat())["task"].clone()
}

#[test]
fn stop_ends_what_left_the_process_group() {
    let stage = Stage::new();
    let lines = [
        "setsid SLEEP & SLEEP",
        "(setsid sh -c 'setsid SLEEP &' &); SLEEP",
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; SLEEP; SLEEP' & SLEEP; SLEEP",
        "bash -c 'set -m; setsid SLEEP & SLEEP'",
    ];
    let started: Vec<_> = lines
        .iter()
        .map(|line| {
            let sleep = unique_sleep();
            let record = stage.json([
                "run",
                "--durable",
                "--json",
                "-c",
                &line.replace("SLEEP", &sleep),
            ]);
            (record["id"].as_str().unwrap().to_owned(), sleep)
        })
        .collect();
    for (id, sleep) in &started {
        sleepers(sleep, 2);
        let stopped = stop(&stage, &[id]);
        assert_eq!(
            processes::running(sleep),
            [0_u32; 0],
            "{sleep} outlived its stop"
        );
        assert_eq!(
            (&stopped["state"], &stopped["survivors"]),
            (&json!("killed"), &json!([])),
            "{stopped}"
        );
        assert_eq!(
            stop(&stage, &[id]),
            stopped,
            "a second stop answers the same"
        );
    }
}

#[test]
fn a_deadline_ends_the_same_tree() {
    let stage = Stage::new();
    let sleep = unique_sleep();
    let line = format!("setsid {sleep} & trap '' TERM; {sleep}; {sleep}");
    let started = stage.json([
        "run",
        "--durable",
        "--timeout",
        "700ms",
        "--json",
        "-c",
        &line,
    ]);
    let out = stage.run(["wait", started["id"].as_str().unwrap(), "--json"]);
    assert_eq!(
        (out.code, &out.json()["task"]["state"]),
        (124, &json!("timed_out")),
        "{out:?}"
    );
    assert!(processes::running(&sleep).is_empty());
}

#[test]
fn what_a_task_leaves_at_its_own_end_is_left_alone() {
    let stage = Stage::new();
    let sleep = unique_sleep();
    let started = stage.json([
        "run",
        "--durable",
        "--json",
        "-c",
        &format!("setsid {sleep} & echo up"),
    ]);
    let id = started["id"].as_str().unwrap();
    let ended = stage.run(["wait", id, "--json"]).expect_code(0).json();
    assert_eq!(
        (&ended["task"]["state"], &ended["task"]["streamsHeldOpen"]),
        (&json!("exited"), &json!(true))
    );
    let left = sleepers(&sleep, 1);
    // The task has ended: its id names nobody any more, and a stop reaches nobody.
    assert_eq!(stop(&stage, &[id])["state"], "exited");
    assert!(processes::is_alive(left[0]));
}

#[test]
fn who_ignores_the_first_signal_gets_the_last() {
    let stage = Stage::new();
    let sleep = unique_sleep();
    for (grace, least) in [(None, 500), (Some("50ms"), 50)] {
        let started = stage.json([
            "run",
            "--durable",
            "--json",
            "-c",
            &format!("trap '' TERM; while :; do {sleep}; done"),
        ]);
        sleepers(&sleep, 1);
        let begun = Instant::now();
        let id = started["id"].as_str().unwrap();
        let stopped = match grace {
            None => stop(&stage, &[id]),
            Some(grace) => stop(&stage, &["--grace", grace, id]),
        };
        assert!(
            begun.elapsed() >= Duration::from_millis(least),
            "killed within the grace"
        );
        assert_eq!(
            (&stopped["state"], &stopped["signal"], &stopped["exitCode"]),
            (&json!("killed"), &json!("SIGKILL"), &json!(137))
        );
        assert!(processes::running(&sleep).is_empty());
    }
}

#[test]
fn a_task_that_forks_without_end_is_stopped() {
    let stage = Stage::new();
    let hop = stage.dir().join("hop.sh");
    // Each generation starts the next in a session of its own and goes.
    std::fs::write(&hop, "setsid sh \"$0\" &\n").unwrap();
    let line = format!(
        "trap '' TERM; sh {hop} & sh {hop} & while :; do sleep 0.1 & done",
        hop = hop.display()
    );
    let started = stage.json(["run", "--durable", "--json", "-c", &line]);
    let id = started["id"].as_str().unwrap();
    eventually("it forks", || {
        (processes::with_variable("WEFT_TASK_ID", Path::new(id)).len() > 5).then_some(())
    });
    let stopped = stop(&stage, &["--grace", "20ms", id]);
    assert_eq!(
        (&stopped["state"], &stopped["survivors"]),
        (&json!("killed"), &json!([])),
        "{stopped}"
    );
    let left: Vec<_> = processes::with_variable("WEFT_TASK_ID", Path::new(id))
        .into_iter()
        .filter(|pid| processes::is_alive(*pid))
        .collect();
    assert_eq!(left, [0_u32; 0], "processes of it outlived the stop");
}

/// A task of `stage` below which another weft runs a task in a home of its own.
struct Nested {
    stage: Stage,
    home: PathBuf,
    sleep: String,
    outer: String,
    inner: String,
}

impl Nested {
    fn new() -> Self {
        let stage = Stage::new();
        let other = stage.dir().join("other");
        std::fs::create_dir(&other).unwrap();
        let (home, sleep) = (other.join(".weft"), unique_sleep());
        let weft = weft_bin();
        let line = format!(
            "cd {} && {} --home {} run --durable --quiet -- {sleep}; sleep 100",
            other.display(),
            weft.display(),
            home.display()
        );
        let variable = format!("WEFT_STATE_DIR={}", stage.state().display());
        let args = [
            "run",
            "--session",
            "A",
            "--background",
            "--env",
            &variable,
            "--json",
            "-c",
            &line,
        ];
        let outer = stage.json(args)["id"].as_str().unwrap().to_owned();
        sleepers(&sleep, 1);
        let inner = eventually("the inner run printed its id", || {
            let text = stage.run(["logs", &outer]).stdout;
            text.lines()
                .find(|line| line.starts_with("t-"))
                .map(|line| line.trim().to_owned())
        });
        Nested {
            stage,
            home,
            sleep,
            outer,
            inner,
        }
    }

    fn inner(&self, args: &[&str]) -> Value {
        let mut all = vec!["--home", self.home.to_str().unwrap(), "--json"];
        all.extend(args);
        self.stage.json(all)
    }

    fn stop_outer(&self) {
        let stopped = stop(&self.stage, &["--session", "A", &self.outer]);
        assert_eq!(
            (&stopped["state"], &stopped["survivors"]),
            (&json!("killed"), &json!([])),
            "{stopped}"
        );
    }

    /// The inner task is whole, and is stopped by its own weft alone.
    fn assert_inner_lives(&self) {
        assert_eq!(
            processes::running(&self.sleep).len(),
            1,
            "the inner task was ended"
        );
        assert_eq!(
            self.inner(&["get", &self.inner])["task"]["state"],
            "running"
        );
        assert_eq!(
            self.inner(&["stop", &self.inner])["task"]["state"],
            "killed"
        );
        assert!(processes::running(&self.sleep).is_empty());
    }
}

#[test]
fn stop_ends_where_another_weft_begins() {
    let nested = Nested::new();
    let node = nested.inner(&["node", "status"])["pid"].clone();
    nested.stop_outer();
    assert_eq!(
        nested.inner(&["node", "status"])["pid"],
        node,
        "the inner node was ended"
    );
    nested.assert_inner_lives();
}

#[test]
fn stop_spares_the_shims_of_another_weft_whose_node_was_started_anew() {
    let nested = Nested::new();
    let node = nested.inner(&["node", "status"])["pid"].as_u64().unwrap();
    processes::kill(node as u32);
    eventually("the inner node is gone", || {
        (!processes::is_alive(node as u32)).then_some(())
    });
    let _ = nested.inner(&["ps"]);
    assert_ne!(nested.inner(&["node", "status"])["pid"], node);
    nested.stop_outer();
    nested.assert_inner_lives();
}
