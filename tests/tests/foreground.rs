//! `weft run` in the foreground: output as it comes, the command's own code, signals, and a lease that is this process's own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use weft_tests::stage::read_all;
use weft_tests::{Stage, eventually, processes};

/// A running `weft run`.
struct Run {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Run {
    fn new(stage: &Stage, line: &str) -> Self {
        let mut child = stage
            .weft(["run", "-c", line])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Run { child, stdout }
    }

    /// Reads one line and compares it.
    #[track_caller]
    fn expect(&mut self, line: &str) {
        let mut found = String::new();
        self.stdout.read_line(&mut found).unwrap();
        assert_eq!(found.trim_end_matches('\n'), line);
    }

    fn signal(&self, signal: Signal) {
        processes::signal(self.child.id(), signal);
    }

    /// The exit code and the rest of standard output.
    #[track_caller]
    fn end(mut self) -> (i32, String) {
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut self.stdout, &mut rest).unwrap();
        let status = self.child.wait().unwrap();
        let errors = read_all(self.child.stderr.take().unwrap());
        let code = status
            .code()
            .unwrap_or_else(|| panic!("ended by signal {:?}: {errors}", status.signal()));
        (code, String::from_utf8(rest).unwrap())
    }
}

/// The newest task's record.
fn newest(stage: &Stage) -> Value {
    stage.json(["ps", "--all", "--json"])["tasks"][0].clone()
}

#[test]
fn output_comes_as_it_is_written_and_streams_stay_apart() {
    let stage = Stage::new();
    let go = stage.dir().join("go");
    let line = format!(
        "echo first; while [ ! -e {} ]; do sleep 0.02; done; echo second; exit 42",
        go.display()
    );
    let mut run = Run::new(&stage, &line);
    run.expect("first");
    std::fs::write(go, "").unwrap();
    run.expect("second");
    assert_eq!(run.end(), (42, String::new()));

    let out = stage.run(["run", "-c", "echo out; echo err >&2; printf tail"]);
    assert_eq!(
        (out.code, out.stdout.as_str(), out.stderr.as_str()),
        (0, "out\ntail", "err\n")
    );
    assert_eq!(newest(&stage)["streams"], json!(["stdout", "stderr"]));
}

#[test]
fn one_file_for_both_streams_gets_them_in_their_true_order() {
    let stage = Stage::new();
    let file = stage.dir().join("both");
    let line = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done";
    let both = std::fs::File::create(&file).unwrap();
    let status = stage
        .weft(["run", "-c", line])
        .stdin(Stdio::null())
        .stdout(both.try_clone().unwrap())
        .stderr(both)
        .status()
        .unwrap();
    assert!(status.success());
    let pairs: Vec<String> = (1..=9).map(|i| format!("out {i}\nerr {i}\n")).collect();
    let expected = pairs.concat();
    assert_eq!(std::fs::read_to_string(file).unwrap(), expected);
    assert_eq!(newest(&stage)["streams"], json!(["output"]));
}

#[test]
fn its_code_is_the_command_s() {
    let stage = Stage::new();
    for code in [0, 1, 2, 42, 124, 125, 126, 127, 255] {
        assert_eq!(stage.run(["run", "-c", &format!("exit {code}")]).code, code);
    }
    let json = stage
        .run(["run", "--json", "-c", "echo out; exit 3"])
        .expect_code(3)
        .json();
    assert_eq!(
        (&json["state"], &json["exitCode"], &json["lease"]),
        (&json!("failed"), &json!(3), &json!("foreground"))
    );
    // Its caller has seen the end: it is no delivery.
    assert_eq!(stage.json(["inbox", "--json"])["items"], json!([]));
}

#[test]
fn each_ctrl_c_is_harder_than_the_one_before() {
    let stage = Stage::new();
    let wait = "echo ready; while :; do sleep 0.02; done";
    let mut once = Run::new(
        &stage,
        &format!("trap 'echo interrupted; exit 5' INT; {wait}"),
    );
    once.expect("ready");
    once.signal(Signal::INT);
    once.expect("interrupted");
    assert_eq!(once.end().0, 5);

    let mut twice = Run::new(
        &stage,
        &format!("trap 'echo interrupted' INT; trap 'exit 6' TERM; {wait}"),
    );
    twice.expect("ready");
    twice.signal(Signal::INT);
    twice.expect("interrupted");
    twice.signal(Signal::INT);
    assert_eq!(twice.end().0, 6);

    let mut thrice = Run::new(
        &stage,
        &format!("trap 'echo interrupted' INT; trap 'echo terminated' TERM; {wait}"),
    );
    thrice.expect("ready");
    thrice.signal(Signal::INT);
    thrice.expect("interrupted");
    thrice.signal(Signal::INT);
    thrice.expect("terminated");
    thrice.signal(Signal::INT);
    assert_eq!(thrice.end().0, 137);
}

#[test]
fn the_end_of_the_command_line_is_the_end_of_the_task() {
    let stage = Stage::new();
    for (number, signal) in [Signal::TERM, Signal::HUP, Signal::KILL]
        .into_iter()
        .enumerate()
    {
        let sleep = format!("sleep 7{number}.{}", std::process::id());
        let mut run = Run::new(&stage, &format!("echo ready; setsid {sleep} & {sleep}"));
        run.expect("ready");
        eventually("both sleep", || {
            (processes::running(&sleep).len() >= 2).then_some(())
        });
        run.signal(signal);
        if signal == Signal::KILL {
            assert_eq!(run.child.wait().unwrap().signal(), Some(9));
            eventually("its task is stopped", || {
                processes::running(&sleep).is_empty().then_some(())
            });
        } else {
            assert_eq!(run.end().0, 143, "{signal:?}");
            assert!(processes::running(&sleep).is_empty(), "{signal:?}");
        }
        eventually("the record says so", || {
            (newest(&stage)["state"] == "killed").then_some(())
        });
    }
}

#[test]
fn the_node_s_death_does_not_disturb_it() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let go = stage.dir().join("go");
    let line = format!(
        "echo first; while [ ! -e {} ]; do sleep 0.02; done; echo second; echo err >&2; exit 7",
        go.display()
    );
    let mut run = Run::new(&stage, &line);
    run.expect("first");
    node.kill();
    std::fs::write(go, "").unwrap();
    run.expect("second");
    assert_eq!(run.end(), (7, String::new()));
    // The next node knows of it, and tells its caller nothing that it has seen.
    let task = eventually("its end is known", || {
        Some(newest(&stage)).filter(|task| task["running"] == false)
    });
    assert_eq!(
        (&task["state"], &task["exitCode"]),
        (&json!("failed"), &json!(7))
    );
    assert_eq!(stage.json(["inbox", "--json"])["items"], json!([]));
}

#[test]
fn a_small_keep_takes_nothing_from_who_reads_along() {
    let stage = Stage::new();
    for keep in ["4KiB", "64KiB", "1MiB"] {
        let out = stage
            .run(["run", "--keep", keep, "-c", "seq 1 1000000"])
            .expect_code(0);
        let printed = out.stdout.lines().map(|line| line.parse::<u32>().unwrap());
        assert!(printed.eq(1..=1_000_000), "{keep}: {}", out.stdout.len());
    }
}
