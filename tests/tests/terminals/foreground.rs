//! `weft run` here, with pipes or a terminal.

use weft_tests::Stage;

use super::person::{Person, assert_modes_restored};

#[test]
fn what_stands_on_our_input_goes_to_a_task_with_pipes() {
    let stage = Stage::new();
    let ran = stage
        .run_with_input(
            [
                "run",
                "--io",
                "pipes",
                "--",
                "sh",
                "-c",
                "wc -c; echo err >&2; exit 4",
            ],
            &"x".repeat(300_000),
        )
        .expect_code(4);
    assert_eq!(ran.stdout.trim(), "300000");
    assert!(
        ran.stderr.contains("err\n") && !ran.stderr.contains("not read"),
        "{ran:?}"
    );
    // One that does not read is not waited for.
    let ran = stage
        .run_with_input(
            ["run", "--io", "pipes", "-c", "exec <&-; echo done"],
            &"x".repeat(3_000_000),
        )
        .expect_code(0);
    assert_eq!(ran.stdout, "done\n");
}

#[test]
fn without_a_terminal_of_ours_the_task_still_has_one() {
    let stage = Stage::new();
    let ran = stage
        .run_with_input(
            [
                "run",
                "--pty",
                "-c",
                "stty -echo; stty size; read a; echo \"<$a>\"",
            ],
            "word\n",
        )
        .expect_code(0);
    // The terminal may have echoed the word before the command asked it not to.
    for line in ["40 120\r\n", "<word>\r\n"] {
        assert!(ran.stdout.contains(line), "{ran:?}");
    }
}

#[test]
fn a_terminal_is_passed_through() {
    let stage = Stage::new();
    let line = "stty -a > modes.before; \"$WEFT\" run --pty -c 'stty size; trap \"echo interrupted\" INT; trap \"stty size\" WINCH; echo ready; read a; echo \"<$a>\"; until read b; do :; done; exit 5'; echo \"code=$?\"; stty -a > modes.after; read end";
    let mut person = Person::runs(&stage, line, (66, 21));
    person.sees("21 66");
    person.sees("ready");
    person.types(b"typed\r");
    person.sees("<typed>");
    person.types(b"\x03");
    person.sees("interrupted");
    person.resizes((70, 22));
    person.sees("22 70");
    person.types(b"over\r");
    person.sees("code=5");
    assert_modes_restored(&stage);
}
