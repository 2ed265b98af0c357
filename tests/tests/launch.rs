//! Starting a command: words as given, failures that leave nothing, requests that are repeated, names that fit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use weft_tests::stage::{finish, weft_bin};
use weft_tests::tasks::{ended, inbox, start};
use weft_tests::{Answer, Client, Stage, eventually};

/// Words that a shell, a joined line or a second parser would change.
const WORDS: [&str; 13] = [
    "printf",
    "[%s]\n",
    "a b",
    "",
    "it's",
    "say \"hi\"",
    "x\ny",
    "-n",
    "--",
    "$HOME",
    "*",
    "back\\slash",
    "é",
];
const PRINTED: &str =
    "[a b]\n[]\n[it's]\n[say \"hi\"]\n[x\ny]\n[-n]\n[--]\n[$HOME]\n[*]\n[back\\slash]\n[é]\n";

/// All that a task printed, by reads.
fn output(client: &Client, id: &str) -> String {
    let (mut text, mut offset) = (String::new(), 0);
    loop {
        let read = client
            .call("tasks.read", json!({"id": id, "offset": offset}))
            .ok("a read");
        text.push_str(read["text"].as_str().unwrap());
        if read["eof"] == true {
            return text;
        }
        offset = read["next"].as_u64().unwrap();
    }
}

#[test]
fn words_arrive_as_given_by_every_door() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let out = stage.run(["run", "--"].into_iter().chain(WORDS));
    assert_eq!((out.code, out.stdout.as_str()), (0, PRINTED), "{out:?}");
    let id = start(&client, json!({"argv": WORDS, "lease": "session"}));
    let task = ended(&client, &id);
    assert_eq!(output(&client, &id), PRINTED);
    assert_eq!(task["argv"], json!(WORDS));
    // What the record shows can be pasted into a shell.
    let pasted = finish(Command::new("sh").args(["-c", task["command"].as_str().unwrap()]));
    assert_eq!(pasted.stdout, PRINTED, "{}", task["command"]);
    let argv = json!({"name": "r", "topics": ["t"], "handler": {"exec": {"argv": WORDS}}});
    client.call("residents.create", argv).ok("a resident");
    client
        .call("mesh.publish", json!({"topic": "t"}))
        .ok("a publish");
    let run = eventually("the handler ran", || {
        let log = client
            .call("residents.log", json!({"name": "r"}))
            .ok("a log");
        log["entries"][0]["taskId"].as_str().map(ToOwned::to_owned)
    });
    assert_eq!(output(&client, &run), PRINTED);
}

#[test]
fn an_argv_of_a_hundred_kilobytes_arrives_whole() {
    let stage = Stage::new();
    let word = "w".repeat(1024);
    let mut args = vec![
        "run",
        "--",
        "sh",
        "-c",
        "printf %s \"$@\" | wc -c; echo $#",
        "sh",
    ];
    args.extend(std::iter::repeat_n(word.as_str(), 100));
    let out = stage.run(args);
    assert_eq!(
        (out.code, out.stdout.as_str()),
        (0, "102400\n100\n"),
        "{}",
        out.stderr
    );
}

/// What is registered in a home: tasks, folders, inbox items.
fn registered(client: &Client, home: &Path) -> (usize, usize, usize) {
    let list = client.call("tasks.list", json!({"all": true})).ok("a list");
    let folders = std::fs::read_dir(home.join("tasks")).unwrap().count();
    (
        list["tasks"].as_array().unwrap().len(),
        folders,
        inbox(client, "cli").len(),
    )
}

#[test]
fn a_command_too_long_for_the_system_runs_or_leaves_nothing() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    for length in [131_071, 131_072, 200_000] {
        let line = format!("echo ok #{}", "x".repeat(length - 9));
        assert_eq!(line.len(), length);
        let id = start(&client, json!({"line": line, "lease": "session"}));
        let task = ended(&client, &id);
        assert_eq!(
            (output(&client, &id).as_str(), &task["exitCode"]),
            ("ok\n", &json!(0)),
            "{length}"
        );
    }
    let before = registered(&client, stage.home());
    let long = |length: usize| "x".repeat(length);
    let too_much = [
        json!({"argv": ["true", long(131_072)]}),
        json!({"argv": ["true"], "env": {"LONG": long(200_000)}}),
    ];
    for mut input in too_much {
        for lease in ["foreground", "session", "durable"] {
            input["lease"] = json!(lease);
            let refused = client.call("tasks.run", input.clone());
            assert!(
                (400..500).contains(&refused.status),
                "{} {}",
                refused.status,
                refused.text
            );
            assert!(refused.text.len() < 2000, "the refusal repeats the input");
            let says = refused.body["detail"].as_str().unwrap();
            assert!(
                says.chars().any(|letter| letter.is_ascii_digit()),
                "no size or limit in: {says}"
            );
            assert_eq!(registered(&client, stage.home()), before);
        }
    }
    // More than the system takes, though no word alone is too long; and more than a request may hold.
    let word = long(1000);
    for (words, limit) in [(2500, "Argument list too long"), (4500, "4194304")] {
        let path = stage.dir().join("words");
        let mut argv = vec!["true"];
        argv.extend(vec![word.as_str(); words]);
        std::fs::write(&path, json!({"argv": argv}).to_string()).unwrap();
        let out = stage.run(["call", "tasks.run", &format!("@{}", path.display())]);
        assert!(out.code != 0 && out.stderr.contains(limit), "{out:?}");
    }
    assert_eq!(registered(&client, stage.home()), before);
    assert_eq!(stage.run(["run", "--", "echo", "next"]).stdout, "next\n");
    // As much as the system does take runs, and is listed.
    let words = ["run", "--durable", "--", "true"]
        .into_iter()
        .chain(std::iter::repeat_n(word.as_str(), 1800));
    let id = stage.run(words).expect_code(0).stdout;
    let listed = stage.run(["ps", "--all"]).expect_code(0).stdout;
    assert!(listed.contains(id.trim()) && listed.contains(&word));
}

#[test]
fn what_cannot_run_fails_with_its_reason_and_leaves_nothing() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let file = |name: &str, text: &str, mode: u32| {
        let path = stage.dir().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = file("plain", "echo no\n", 0o644);
    let orphan = file("orphan", "#!/no/such/interpreter\n", 0o755);
    let folder = stage.dir().to_str().unwrap().to_owned();
    let table = [
        ("/no/such/command", 127),
        ("no-such-command", 127),
        (&plain, 126),
        (&orphan, 127),
        (&folder, 126),
    ];
    for (command, code) in table {
        for how in [
            &["run"][..],
            &["run", "--background"],
            &["run", "--durable", "--notify", "t"],
        ] {
            let out = stage.run(how.iter().copied().chain(["--", command]));
            assert_eq!((out.code, out.stdout.as_str()), (code, ""), "{out:?}");
            assert!(out.stderr.contains(command), "{out:?}");
            assert_eq!(
                registered(&client, stage.home()),
                (0, 0, 0),
                "{how:?} {command}"
            );
        }
    }
    // The grants of the launches that failed are worth nothing.
    let grants = client.call("mesh.grants", json!({})).ok("the grants");
    assert!(
        grants["grants"]
            .as_array()
            .unwrap()
            .iter()
            .all(|grant| grant["revokedAt"].is_u64()),
        "{grants}"
    );
}

#[test]
fn a_working_directory_that_is_gone_is_named() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let gone = stage.dir().join("gone");
    let out = stage.run(["run", "--cwd", gone.to_str().unwrap(), "--", "true"]);
    assert!(out.code != 0 && out.stderr.contains("gone"), "{out:?}");
    assert_eq!(registered(&client, stage.home()), (0, 0, 0));
    // The caller's own.
    std::fs::create_dir(&gone).unwrap();
    let line = format!(
        "rmdir {} && exec {} run -- true",
        gone.display(),
        weft_bin().display()
    );
    let mut command = Command::new("sh");
    stage.environment(&mut command);
    let out = finish(
        command
            .args(["-c", &line])
            .current_dir(&gone)
            .env("WEFT_HOME", stage.home()),
    );
    assert!(
        out.code != 0 && out.code != 101 && !out.stderr.is_empty(),
        "{out:?}"
    );
    assert_eq!(registered(&client, stage.home()), (0, 0, 0));
    // One that goes while the task runs is the task's own matter.
    std::fs::create_dir(&gone).unwrap();
    let out = stage.run([
        "run",
        "--cwd",
        gone.to_str().unwrap(),
        "-c",
        &format!("rmdir {}; echo on", gone.display()),
    ]);
    assert_eq!((out.code, out.stdout.as_str()), (0, "on\n"), "{out:?}");
}

#[test]
fn any_bytes_are_passed_through_and_kept() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let raw = |line: &str| {
        stage
            .weft(["run", "-c", line])
            .stdin(Stdio::null())
            .output()
            .unwrap()
            .stdout
    };
    assert_eq!(raw("printf 'no newline'"), b"no newline");
    assert_eq!(raw(":"), b"");
    assert_eq!(raw(r"printf 'a\377b\0c\n'"), b"a\xffb\0c\n");
    let big = raw("head -c 10000000 /dev/zero | tr '\\0' x; echo");
    assert_eq!(big.len(), 10_000_001);
    assert!(big[..10_000_000].iter().all(|byte| *byte == b'x') && big.ends_with(b"\n"));

    let id = start(
        &client,
        json!({"line": "printf 'a\\377b\\n'", "lease": "session"}),
    );
    ended(&client, &id);
    assert_eq!(output(&client, &id), "a\u{fffd}b\n");
    let exact = client
        .call("tasks.read", json!({"id": id, "encoding": "base64"}))
        .ok("an exact read");
    assert_eq!(exact["data"], "Yf9iCg==");
    let id = start(&client, json!({"line": ":", "lease": "session"}));
    let task = ended(&client, &id);
    assert_eq!(
        (&task["outputBytes"], &task["lastOutputAt"]),
        (&json!(0), &Value::Null)
    );
    let read = client.call("tasks.read", json!({"id": id})).ok("a read");
    assert_eq!(
        (&read["text"], &read["eof"], &read["next"]),
        (&json!(""), &json!(true), &json!(0))
    );
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let table = [
        (json!({}), "argv"),
        (json!({"argv": []}), "argv"),
        (json!({"argv": [""]}), "argv"),
        (json!({"argv": ["a\0b"]}), "argv"),
        (json!({"argv": ["true"], "line": "true"}), "line"),
        (json!({"line": "true", "cwd": "relative"}), "cwd"),
        (json!({"line": "true", "nice": 3}), "nice"),
        (json!({"line": "true", "timeoutMs": 0}), "timeoutMs"),
        (json!({"line": "true", "label": ""}), "label"),
        (json!({"line": "true", "env": {"A=B": "x"}}), "env"),
        (json!({"line": "true", "session": "a.b"}), "session"),
        (json!({"line": "true", "notify": {"topic": "t"}}), "notify"),
        (
            json!({"line": "true", "lease": "durable", "notify": {"topic": "weft.x"}}),
            "weft.",
        ),
        (
            json!({"line": "true", "lease": "durable", "notify": {"topic": "a..b"}}),
            "topic",
        ),
        (
            json!({"line": "true", "lease": "durable", "notify": {"topic": "t", "kind": "a b"}}),
            "kind",
        ),
    ];
    for (input, name) in table {
        let refused: Answer = client.call("tasks.run", input.clone());
        assert!((400..500).contains(&refused.status), "{input}: {refused:?}");
        assert!(
            refused.body["detail"].as_str().unwrap().contains(name),
            "{input}: {}",
            refused.text
        );
    }
    assert_eq!(registered(&client, stage.home()), (0, 0, 0));
}
