//! People on a task's terminal.

use rustix::process::Signal;
use serde_json::json;
use weft_tests::tasks::{ended, record};
use weft_tests::{Stage, eventually, processes};

use super::person::{Person, assert_modes_restored};
use super::{on_terminal, output, screen_of, wait_for, wait_for_row};

/// The size that the task's terminal has now.
fn size(client: &weft_tests::Client, id: &str) -> serde_json::Value {
    screen_of(client, id)["size"].clone()
}

#[test]
fn a_person_joins_types_and_detaches_and_the_task_runs_on() {
    let stage = Stage::new();
    let client = stage.client();
    let id = on_terminal(
        &client,
        r#"printf '\033[2J\033[2;4Hdrawn before\r\n'; while read -r line; do echo "got <$line>"; done"#,
    );
    wait_for_row(&client, &id, "   drawn before");
    let mut person = Person::attaches(&stage, &id, (90, 28));
    person.sees("   drawn before");
    eventually("the task has the person's size", || {
        (size(&client, &id) == json!([90, 28])).then_some(())
    });
    person.types(b"hello\r");
    person.sees("got <hello>");
    person.resizes((70, 25));
    eventually("the size follows", || {
        (size(&client, &id) == json!([70, 25])).then_some(())
    });
    person.types(b"typed \x1dnot this");
    person.sees("code=0");
    person.sees("detached from");
    assert_modes_restored(&stage);
    assert_eq!(record(&client, &id)["state"], "running");
    assert!(!output(&client, &id, "output").contains("not this"));
    // Again, by other keys, with what was on its screen.
    let mut person = Person::attaches(
        &stage,
        &format!("--detach-keys ctrl-p,ctrl-q {id}"),
        (90, 28),
    );
    person.sees("got <hello>");
    person.types(b"\x1d\x10x\r");
    wait_for(&client, &id, "output", "x>");
    person.types(b"\x10\x11");
    person.sees("code=0");
}

#[test]
fn the_code_of_a_task_that_ends_is_the_person_s() {
    let stage = Stage::new();
    let client = stage.client();
    let id = on_terminal(&client, "echo ready; read line; echo last words; exit 7");
    let mut person = Person::attaches(&stage, &id, (80, 24));
    person.sees("ready");
    person.types(b"go\r");
    person.sees("last words");
    person.sees("code=7");
    assert_modes_restored(&stage);
    ended(&client, &id);
    // And of one that has ended before.
    let person = Person::attaches(&stage, &id, (80, 24));
    person.sees("has ended");
    person.sees("code=7");
}

#[test]
fn several_see_the_same_and_a_reader_changes_nothing() {
    let stage = Stage::new();
    let client = stage.client();
    let id = on_terminal(&client, "while read -r line; do echo \"got <$line>\"; done");
    let mut one = Person::attaches(&stage, &id, (80, 24));
    eventually("the first one's size", || {
        (size(&client, &id) == json!([80, 24])).then_some(())
    });
    let mut two = Person::attaches(&stage, &id, (100, 30));
    eventually("the size of who came last", || {
        (size(&client, &id) == json!([100, 30])).then_some(())
    });
    let mut reader = Person::attaches(&stage, &format!("--read-only {id}"), (60, 20));
    two.types(b"from two\r");
    for person in [&one, &two, &reader] {
        person.sees("got <from two>");
    }
    reader.types(b"from the reader\r");
    one.types(b"from one\r");
    for person in [&one, &two, &reader] {
        person.sees("got <from one>");
    }
    eventually("the size of who typed last", || {
        (size(&client, &id) == json!([80, 24])).then_some(())
    });
    reader.types(b"\x1d");
    reader.sees("code=0");
    assert!(!output(&client, &id, "output").contains("from the reader"));
    two.types(b"\x1d");
    two.sees("code=0");
    one.types(b"still here\r");
    one.sees("got <still here>");
}

#[test]
fn the_terminal_is_as_it_was_whatever_ends_the_attachment() {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::INT, 130),
        (Signal::QUIT, 131),
    ] {
        let stage = Stage::new();
        let client = stage.client();
        let id = on_terminal(
            &client,
            r"printf '\033[?1049h\033[?25l\033[2J\033[Hediting'; while :; do sleep 1; done",
        );
        wait_for_row(&client, &id, "editing");
        let person = Person::attaches(&stage, &id, (80, 24));
        person.sees("editing");
        assert!(person.is_alternate());
        processes::signal(person.weft(), signal);
        person.sees(&format!("code={code}"));
        assert!(!person.is_alternate());
        assert_modes_restored(&stage);
        assert_eq!(record(&client, &id)["state"], "running");
    }
}

#[test]
fn a_window_that_is_closed_takes_its_attachment_with_it_and_not_the_task() {
    let stage = Stage::new();
    let client = stage.client();
    // The test's own terminal types an end of file when it is closed, which a window does not.
    let id = on_terminal(
        &client,
        "stty eof '^-'; echo ready; while read -r line; do echo \"got <$line>\"; done",
    );
    let person = Person::attaches(&stage, &id, (80, 24));
    person.sees("ready");
    let weft = person.weft();
    person.closes();
    eventually("the attachment is gone", || {
        (!std::path::Path::new(&format!("/proc/{weft}/fd/0")).exists()).then_some(())
    });
    assert_eq!(record(&client, &id)["state"], "running");
}

#[test]
fn a_stop_by_the_shell_gives_the_terminal_back_and_a_continue_takes_it_again() {
    let stage = Stage::new();
    let client = stage.client();
    let id = on_terminal(
        &client,
        "echo ready; while read -r line; do echo \"got <$line>\"; done",
    );
    let mut person = Person::attaches(&stage, &id, (80, 24));
    person.sees("ready");
    let weft = person.weft();
    processes::signal(weft, Signal::TSTP);
    eventually("it is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{weft}/stat")).ok()?;
        stat.contains(") T ").then_some(())
    });
    processes::signal(weft, Signal::CONT);
    person.types(b"again\r");
    person.sees("got <again>");
    person.types(b"\x1d");
    person.sees("code=0");
    assert_modes_restored(&stage);
}

#[test]
fn a_log_that_was_cut_or_removed_blinds_no_attachment() {
    type Harm = fn(&str) -> std::io::Result<()>;
    let harms: [Harm; 2] = [
        |log| std::fs::write(log, ""),
        |log| std::fs::remove_file(log),
    ];
    for harm in harms {
        let stage = Stage::new();
        let client = stage.client();
        let id = on_terminal(
            &client,
            "echo ready; while read -r line; do echo \"got <$line>\"; done",
        );
        wait_for(&client, &id, "output", "ready");
        harm(record(&client, &id)["logPath"].as_str().unwrap()).unwrap();
        let mut person = Person::attaches(&stage, &id, (80, 24));
        eventually("the task has the person's size", || {
            (size(&client, &id) == json!([80, 24])).then_some(())
        });
        person.types(b"one\r");
        person.sees("got <one>");
        person.types(b"\x1d");
        person.sees("code=0");
    }
}

#[test]
fn what_cannot_be_attached_says_why() {
    let stage = Stage::new();
    let client = stage.client();
    let id = weft_tests::tasks::start(&client, json!({"line": "sleep 600", "lease": "durable"}));
    let refused = stage.run(["attach", &id]).expect_code(1);
    assert!(refused.stderr.contains("no terminal"), "{refused:?}");
    let refused = stage.run(["attach", "t-none"]).expect_code(1);
    assert!(
        refused.stderr.contains("there is no task t-none"),
        "{refused:?}"
    );
    let refused = stage
        .run(["attach", "--detach-keys", "esc", &id])
        .expect_code(2);
    assert!(refused.stderr.contains("names no keys"), "{refused:?}");
    let refused = stage
        .run(["attach", "--socket", "/tmp/other.sock"])
        .expect_code(2);
    assert!(refused.stderr.contains("shim.sock"), "{refused:?}");
}
