//! The manners of the command line: one document, exit codes, other names of verbs, and nobody else's control codes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod codes;

use serde_json::{Value, json};
use weft_tests::stage::{finish, finish_with_input};
use weft_tests::{Stage, eventually};

/// One JSON document on one line, and nothing else.
#[track_caller]
fn one_document(stdout: &str, what: &str) -> Value {
    assert_eq!(stdout.matches('\n').count(), 1, "{what}: {stdout:?}");
    serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{what}: {error}: {stdout:?}"))
}

#[test]
fn with_json_every_verb_prints_one_document_and_nothing_else() {
    let stage = Stage::new();
    let json = |words: &[&str]| -> Value {
        let output = stage.run([&["--json"], words].concat());
        assert!(matches!(output.code, 0 | 1), "{words:?}: {output:?}");
        one_document(&output.stdout, &format!("{words:?}"))
    };
    let made = json(&[
        "run",
        "--durable",
        "--label",
        "a label",
        "-c",
        "echo out; echo err >&2; exit 3",
    ]);
    let id = made["id"].as_str().unwrap().to_owned();
    for field in [
        "id",
        "session",
        "by",
        "label",
        "command",
        "argv",
        "cwd",
        "lease",
        "io",
        "tty",
        "streams",
        "state",
        "running",
        "exitCode",
        "signal",
        "reason",
        "pid",
        "startedAt",
        "finishedAt",
        "lastOutputAt",
        "outputBytes",
        "logPath",
        "deadlineAt",
        "streamsHeldOpen",
        "survivors",
        "notify",
        "monitor",
        "target",
        "usage",
        "adopted",
        "incarnation",
        "node",
    ] {
        assert!(made.get(field).is_some(), "{field} is missing: {made}");
    }
    let waited = stage.run(["--json", "wait", &id]);
    assert_eq!(
        (
            waited.code,
            &one_document(&waited.stdout, "wait")["task"]["exitCode"]
        ),
        (3, &json!(3))
    );
    let grant = json(&["mesh", "grant", "t", "--uses", "2"]);
    let event = json(&["mesh", "publish", "t", "--text", "x"]);
    let token = json(&["token", "create", "--scope", "mesh:read"]);
    json(&["residents", "create", "r", "--topic", "t", "--", "true"]);
    let running = json(&["run", "--background", "--", "sleep", "600"]);
    let running = running["id"].as_str().unwrap();
    let still = stage.run(["--json", "wait", "--timeout", "10ms", running]);
    assert_eq!(still.code, 1);
    assert_eq!(
        one_document(&still.stdout, "wait --timeout")["timedOut"],
        true
    );
    assert!(still.stderr.contains("still running"), "{still:?}");
    for words in [
        &["ps"][..],
        &["ps", "--all"],
        &["get", &id],
        &["read", &id],
        &[
            "read",
            &id,
            "output",
            "1",
            "--max",
            "2",
            "--encoding",
            "base64",
        ],
        &["watch", &id, "out"],
        &["external"],
        &["inbox"],
        &["inbox", "--ack", "1"],
        &["call", "tasks.list", "{}"],
        &["capabilities"],
        &["node", "status"],
        &["mesh", "read"],
        &["mesh", "read", "never"],
        &["mesh", "topics"],
        &["mesh", "grants"],
        &["mesh", "revoke", grant["grantId"].as_str().unwrap()],
        &["residents", "list"],
        &["residents", "get", "r"],
        &["residents", "log", "r"],
        &["residents", "pause", "r"],
        &["residents", "resume", "r"],
        &["residents", "tell", "r", "hello"],
        &["residents", "remove", "r"],
        &["token", "list"],
        &["token", "revoke", token["tokenId"].as_str().unwrap()],
        &["adopt", running],
        &["stop", running],
    ] {
        json(words);
    }
    // Refusals are one document as well, where messages go.
    for (words, slug) in [
        (&["get", "t-none"][..], "not-found"),
        (&["mesh", "publish", "weft.x"], "topic-reserved"),
        (&["residents", "get", "nobody"], "not-found"),
        (&["call", "no.such", "{}"], "unknown-action"),
        (&["mesh", "revoke", "g-none"], "not-found"),
    ] {
        let output = stage.run([&["--json"], words].concat()).expect_code(1);
        assert_eq!(output.stdout, "", "{words:?}");
        let problem = one_document(&output.stderr, &format!("{words:?}"));
        assert_eq!(
            problem["type"],
            format!("urn:weft:problem:{slug}"),
            "{words:?}"
        );
    }
    // Streams have one document a line.
    for words in [
        &["logs", &id][..],
        &["logs", "-f", &id],
        &["mesh", "subscribe", "t", "--after", "0", "-n", "1"],
    ] {
        let output = stage.run([&["--json"], words].concat()).expect_code(0);
        assert!(!output.stdout.is_empty(), "{words:?}");
        for line in output.stdout.lines() {
            serde_json::from_str::<Value>(line)
                .unwrap_or_else(|error| panic!("{words:?}: {error}: {line}"));
        }
    }
    assert_eq!(event["topic"], "t");
    json(&["node", "stop"]);
}

#[test]
fn a_usage_error_ends_with_two_and_does_nothing() {
    let stage = Stage::new();
    for words in [
        &[][..],
        &["fly"],
        &["--flag", "ps"],
        &["ps", "--flag"],
        &["ps", "word"],
        &["run"],
        &["run", "--durable"],
        &["run", "--durable", "--background", "--", "true"],
        &["run", "--labl", "x", "--", "true"],
        &["run", "--timeout", "soon", "--", "true"],
        &["run", "--timeout", "-1s", "--", "true"],
        &["run", "-e", "=x", "--", "true"],
        &["run", "-c", "true", "--", "true"],
        &["run", "--kind", "k", "--", "true"],
        &["get"],
        &["wait"],
        &["wait", "--timeout", "x", "t-1"],
        &["read"],
        &["stop"],
        &["logs"],
        &["inbox", "--ack", "x"],
        &["inbox", "--ack", "1", "--wait"],
        &["call", "tasks.list", "{"],
        &["call", "../x", "{}"],
        &["mesh"],
        &["mesh", "publish"],
        &["mesh", "publish", "t", "--data", "{"],
        &["mesh", "publish", "t", "--data", "@/nonexistent/file"],
        &["mesh", "grant", "t", "--ttl", "long"],
        &["mesh", "subscribe"],
        &["token", "create"],
        &["home", "trust"],
        &["node", "--idle", "soon"],
        &["node", "--log-format", "xml"],
        &["--session", "a b", "ps"],
        &["--session", "", "ps"],
        &["--session", &"s".repeat(65), "ps"],
    ] {
        let output = stage.run(words);
        assert_eq!(output.code, 2, "{words:?}: {output:?}");
        assert!(
            !output.stderr.is_empty() && output.stdout.is_empty(),
            "{words:?}: {output:?}"
        );
    }
    for words in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["mesh", "grant", "--help"],
    ] {
        let output = stage.run(words).expect_code(0);
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{words:?}: {output:?}"
        );
    }
    assert!(
        stage.processes().is_empty(),
        "a usage error started something"
    );
}

#[test]
fn verbs_have_the_names_people_type() {
    let stage = Stage::new();
    let started = stage.json([
        "--json",
        "start",
        "--",
        "sh",
        "-c",
        "echo one; echo two; sleep 600",
    ]);
    assert_eq!(started["lease"], "durable");
    let id = started["id"].as_str().unwrap();
    let plain = stage.run(["ps"]).expect_code(0).stdout;
    assert!(plain.contains(id), "{plain}");
    for name in ["ls", "list"] {
        assert!(
            stage.run([name]).expect_code(0).stdout.contains(id),
            "{name}"
        );
    }
    for name in ["get", "inspect", "status"] {
        assert!(
            stage.run([name, id]).expect_code(0).stdout.contains(id),
            "{name}"
        );
    }
    eventually("both lines are there", || {
        stage
            .run(["read", id])
            .stdout
            .ends_with("two\n")
            .then_some(())
    });
    for option in ["-n", "--tail"] {
        assert_eq!(
            stage.run(["logs", option, "1", id]).expect_code(0).stdout,
            "two\n",
            "{option}"
        );
    }
    // Ids by any prefix that fits one; of more than one the candidates are named.
    assert_eq!(stage.run(["get", &id[..8]]).code, 0);
    let second = stage.json(["--json", "start", "--", "sleep", "600"]);
    let ambiguous = stage.run(["get", "t-"]).expect_code(1);
    assert!(
        ambiguous.stderr.contains(id) && ambiguous.stderr.contains(second["id"].as_str().unwrap()),
        "{ambiguous:?}"
    );
    assert_eq!(
        stage
            .run(["ps", "-q"])
            .expect_code(0)
            .stdout
            .lines()
            .count(),
        2
    );
    let _ = stage.run(["stop", "-t", "100ms", id]).expect_code(0);
    let _ = stage.run(["stop", "--grace", "100ms", id]).expect_code(0);
    assert_eq!(stage.json(["--json", "get", id])["task"]["state"], "killed");
}

#[test]
fn every_option_can_be_a_variable() {
    let stage = Stage::new();
    let run = |words: &[&str], variables: &[(&str, &str)]| {
        finish(stage.weft(words).envs(variables.iter().copied()))
    };
    let made = run(
        &["run", "--", "true"],
        &[
            ("WEFT_JSON", "1"),
            ("WEFT_RUN_DURABLE", "true"),
            ("WEFT_RUN_LABEL", "by variable"),
            ("WEFT_SESSION", "mine"),
        ],
    );
    let made = made.expect_code(0).json();
    assert_eq!(
        (&made["label"], &made["session"], &made["lease"]),
        (&json!("by variable"), &json!("mine"), &json!("durable"))
    );
    // The option wins over its variable, and such a variable does not reach the task.
    let made = run(
        &[
            "--json",
            "run",
            "--label",
            "by option",
            "--durable",
            "-c",
            "env",
        ],
        &[
            ("WEFT_RUN_LABEL", "by variable"),
            ("WEFT_RUN_TIMEOUT", "1h"),
        ],
    )
    .json();
    assert_eq!(made["label"], "by option");
    let id = made["id"].as_str().unwrap();
    let _ = stage.run(["wait", id]).expect_code(0);
    let env = stage.run(["logs", id]).expect_code(0).stdout;
    let ours: Vec<&str> = env
        .lines()
        .filter(|line| line.starts_with("WEFT_"))
        .map(|line| line.split('=').next().unwrap())
        .collect();
    assert_eq!(ours.len(), 3, "{ours:?}");
    for name in ["WEFT_HOME", "WEFT_TASK_ID", "WEFT_SESSION"] {
        assert!(ours.contains(&name), "{ours:?}");
    }
    assert_eq!(
        run(&["run", "--", "true"], &[("WEFT_RUN_TIMEOUT", "soon")]).code,
        2
    );
}

#[test]
fn input_comes_as_argument_file_or_stdin() {
    let stage = Stage::new();
    let file = stage.dir().join("event.json");
    std::fs::write(&file, r#"{"topic":"t","data":2}"#).unwrap();
    let _ = stage
        .run(["call", "mesh.publish", r#"{"topic":"t","data":1}"#])
        .expect_code(0);
    let _ = stage
        .run(["call", "mesh.publish", &format!("@{}", file.display())])
        .expect_code(0);
    let _ = finish_with_input(
        &mut stage.weft(["call", "mesh.publish", "-"]),
        r#"{"topic":"t","data":3}"#,
    )
    .expect_code(0);
    let _ = finish_with_input(
        &mut stage.weft(["mesh", "publish", "t", "--data", "-"]),
        "4",
    )
    .expect_code(0);
    let data: Vec<Value> = stage
        .events(&["t"])
        .iter()
        .map(|event| event["data"].clone())
        .collect();
    assert_eq!(data, [1, 2, 3, 4]);
    let huge = finish_with_input(
        &mut stage.weft(["mesh", "publish", "t", "--data", "-"]),
        &" ".repeat(5 << 20),
    );
    assert_eq!(huge.code, 2, "{:?}", huge.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_error_to_talk_about() {
    let stage = Stage::new();
    let id = stage.json(["--json", "run", "--durable", "-c", "yes | head -c 3000000"])["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let _ = stage.run(["wait", &id]).expect_code(0);
    let weft = weft_tests::stage::weft_bin();
    let mut shell = std::process::Command::new("/bin/sh");
    stage.environment(&mut shell);
    shell
        .env("WEFT_HOME", stage.home())
        .args(["-c", &format!("{} logs {id} | head -n 1", weft.display())]);
    let output = finish(&mut shell).expect_code(0);
    assert_eq!(
        (output.stdout.as_str(), output.stderr.as_str()),
        ("y\n", "")
    );
}

#[test]
fn a_change_of_several_tasks_is_one_document() {
    let stage = Stage::new();
    let start = || {
        let out = stage.run(["run", "--durable", "--", "sleep", "1000"]);
        out.expect_code(0).stdout.trim().to_owned()
    };
    let (one, two) = (start(), start());
    for verb in [&["kill", "-s", "WINCH"][..], &["stop"]] {
        let ids = [one.as_str(), "t-none", &two];
        let out = stage.run(["--json"].iter().chain(verb).chain(&ids));
        assert_eq!(out.code, 1, "one of them is refused: {out:?}");
        let tasks = out.json()["tasks"].clone();
        let told: Vec<&str> = tasks
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task["id"].as_str().unwrap())
            .collect();
        assert_eq!(told, [&one, &two], "{verb:?}");
        assert!(out.stderr.contains("t-none"), "{out:?}");
    }
}
