//! Text of others never acts on the terminal that shows it.

use serde_json::json;
use weft_tests::{Stage, tasks};

/// What a scanned host would send to a terminal: the clipboard, a cleared screen, a title, a page's script.
const PAYLOAD: &[u8] =
    b"\x1b]52;c;ZWNobyBoaQ==\x07\x1b[2J\x1b]0;gotcha\x07ok <script>alert(1)</script>\n";
const LINE: &str =
    r"printf '\033]52;c;ZWNobyBoaQ==\007\033[2J\033]0;gotcha\007ok <script>alert(1)</script>\n'";
const LABEL: &str = "\u{1b}]0;L\u{7}<img src=x onerror=alert(1)>\u{9b}2J\rX\n\u{202e}end";

#[track_caller]
fn assert_harmless(text: &str, what: &str) {
    let bad = text.chars().find(|letter| {
        let is_plain = matches!(letter, '\n' | '\t');
        (letter.is_control() && !is_plain)
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    });
    assert_eq!(bad, None, "{what}: {text:?}");
}

#[test]
fn control_codes_of_others_do_not_act_on_the_reader() {
    assert_eq!(PAYLOAD.len(), 64);
    let stage = Stage::new();
    let client = stage.client();
    let id = tasks::start(
        &client,
        json!({"line": LINE, "lease": "durable", "label": LABEL, "notify": {"topic": "ends"}}),
    );
    assert_eq!(tasks::unread_end(&client, &id)["exitCode"], 0);
    let second = tasks::start(
        &client,
        json!({"argv": ["sleep", "600", LABEL], "lease": "durable", "label": LABEL, "session": "other"}),
    );
    client
        .call(
            "mesh.publish",
            json!({"topic": "t", "text": LABEL, "data": {"x": LABEL}, "to": "\u{1b}[2J"}),
        )
        .ok("an event");

    // Exactly kept, exactly given where that is asked for.
    let exact = client
        .call("tasks.read", json!({"id": id, "encoding": "base64"}))
        .ok("base64");
    assert_eq!(
        base64::Engine::decode(
            &base64::prelude::BASE64_STANDARD,
            exact["data"].as_str().unwrap()
        )
        .unwrap(),
        PAYLOAD
    );
    let raw = stage.weft(["logs", "--raw", &id]).output().unwrap();
    assert_eq!(raw.stdout, PAYLOAD);

    for words in [
        &["ps", "--all"][..],
        &["ps"],
        &["get", &second],
        &["inbox"],
        &["external"],
        &["logs", &id],
        &["logs", "-f", "-t", &id],
        &["watch", &id, "ok"],
        &["mesh", "read"],
        &["mesh", "read", "ends"],
        &["mesh", "subscribe", "t", "--after", "0", "-n", "1"],
        &["mesh", "topics"],
        &["residents", "list"],
        &["get", &id],
        &["wait", &id],
    ] {
        let output = stage.run(words).expect_code(0);
        assert_harmless(&output.stdout, &format!("{words:?}"));
        assert_harmless(&output.stderr, &format!("{words:?}"));
        // Every document of --json is escaped by its form.
        let shown = stage.run([&["--json"], words].concat());
        assert_harmless(
            shown.stdout.replace(['\u{202e}', '\u{9b}'], "").trim(),
            &format!("--json {words:?}"),
        );
    }
    let logs = stage.run(["logs", &id]).stdout;
    assert!(logs.contains("ok <script>alert(1)</script>"), "{logs:?}");
    let text = stage.run(["ps", "--all"]).stdout;
    assert!(text.contains("<img src=x"), "{text:?}");
    // What is refused is quoted, and as harmless.
    for words in [
        &["get", LABEL][..],
        &["mesh", "publish", LABEL],
        &["run", "--", LABEL],
        &["residents", "get", LABEL],
        &["wait", LABEL],
        &["stop", LABEL],
    ] {
        let output = stage.run(words);
        assert!(output.code != 0, "{words:?}");
        assert_harmless(&output.stderr, &format!("{words:?}"));
    }
}

#[test]
fn a_terminal_sees_colours_and_no_more() {
    let stage = Stage::new();
    let line = r"printf '\033[31mred\033[0m \033]0;title\007\033[2J\033[5;5Hplain\n'";
    let id = stage.json(["--json", "run", "--durable", "-c", line])["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let _ = stage.run(["wait", &id]).expect_code(0);
    let weft = weft_tests::stage::weft_bin();
    // `script` gives the command a terminal.
    let on_terminal = |variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new("script");
        stage.environment(&mut command);
        command
            .env("WEFT_HOME", stage.home())
            .env("TERM", "xterm")
            .envs(variables.iter().copied());
        command.args([
            "-qec",
            &format!("{} logs {id}", weft.display()),
            "/dev/null",
        ]);
        command
            .output()
            .ok()
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(colour) = on_terminal(&[]) else {
        eprintln!("skipped: there is no program `script` here");
        return;
    };
    assert!(colour.contains("\u{1b}[31mred"), "{colour:?}");
    for bad in ["\u{1b}]", "\u{1b}[2J", "\u{1b}[5;5H", "\u{7}"] {
        assert!(!colour.contains(bad), "{bad:?}: {colour:?}");
    }
    let none = on_terminal(&[("NO_COLOR", "1")]).unwrap();
    assert!(!none.contains('\u{1b}'), "{none:?}");
    assert!(none.contains("red") && none.contains("plain"), "{none:?}");
    let pipe = stage.run(["logs", &id]).stdout;
    assert!(!pipe.contains('\u{1b}'), "{pipe:?}");
}
