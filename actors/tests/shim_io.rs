//! Input and terminals of a real shim: order, ends, bounds, sizes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

#[path = "shim/stage.rs"]
#[allow(dead_code, reason = "each test binary uses its part of the stage")]
mod stage;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use stage::{Home, Peer, alive, seconds};
use weft_actors::task::wire::{EndState, Io, Launch, StreamName, Streams};

fn on_terminal(home: &Home, line: &str) -> Launch {
    Launch {
        io: Io::Pty,
        size: Some((91, 33)),
        ..home.line(line)
    }
}

fn with_pipes(home: &Home, line: &str) -> Launch {
    Launch {
        io: Io::Pipes,
        streams: Streams::Split,
        ..home.line(line)
    }
}

fn write(peer: &mut Peer, bytes: &[u8]) -> Result<Value, String> {
    let data = BASE64_STANDARD.encode(bytes);
    peer.ask(&format!(r#""do":"write","data":"{data}""#))
}

fn events(task: &stage::Task) -> Vec<Value> {
    let text = std::fs::read_to_string(task.path.join("events.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_terminal_controls_the_command_and_has_its_size() {
    let home = Home::new();
    let line = "tty >/dev/null && stty size; ps -o tpgid= -p $$ | tr -d ' '; echo $$; printf done > /dev/tty";
    let mut task = home.start(&on_terminal(&home, line));
    let receipt = task.end();
    assert_eq!(receipt.state, EndState::Exited);
    let text = String::from_utf8(task.output()).unwrap();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!((lines[0], lines[3]), ("33 91", "done"), "{text:?}");
    assert_eq!(
        lines[1], lines[2],
        "the command leads the group of its terminal"
    );
}

#[test]
fn the_last_bytes_of_a_terminal_are_kept_and_its_end_is_no_error() {
    let home = Home::new();
    for count in [5003, 300_000].into_iter().chain([5003; 20]) {
        let line = format!("head -c {count} /dev/zero | tr '\\0' b");
        let mut task = home.start(&on_terminal(&home, &line));
        let receipt = task.end();
        assert_eq!((receipt.state, receipt.exit_code), (EndState::Exited, 0));
        assert_eq!(receipt.output_bytes, count);
        assert!(task.output().iter().all(|byte| *byte == b'b'));
    }
}

#[test]
fn what_is_written_is_echoed_in_order_and_the_end_key_ends_the_input() {
    let home = Home::new();
    let line = format!("cat; echo over; exec sleep {}", seconds());
    let mut task = home.start(&on_terminal(&home, &line));
    let mut peer = task.connect();
    for n in 0..50 {
        let line = format!("line {n}\n");
        let answer = write(&mut peer, line.as_bytes()).unwrap();
        assert_eq!(answer, json!({"written": line.len(), "closed": false}));
    }
    // An unfinished line is handed over with the first key, and the second is the end.
    write(&mut peer, b"unfinished").unwrap();
    let closed = peer.ask(r#""do":"closeInput""#).unwrap();
    assert_eq!(closed["closed"], true);
    assert_eq!(peer.ask(r#""do":"closeInput""#).unwrap()["closed"], true);
    task.wait_for_output("over");
    let refused = write(&mut peer, b"x").unwrap_err();
    assert_eq!(refused, "the task's input is closed");
    assert_eq!(task.stop().state, EndState::Killed);
    let text = String::from_utf8(task.output()).unwrap();
    let mut from = 0;
    for n in 0..50 {
        let found = text[from..].find(&format!("line {n}\r\n"));
        from += found.unwrap_or_else(|| panic!("line {n} is missing or late: {text:?}"));
    }
    assert_eq!(
        text.matches("line 7\r\n").count(),
        2,
        "echo and cat: {text:?}"
    );
    assert_eq!(text.matches("unfinished").count(), 2, "{text:?}");
    let input: Vec<Value> = events(&task)
        .into_iter()
        .filter(|event| event["event"].as_str().unwrap().starts_with("input"))
        .collect();
    let bytes: u64 = input
        .iter()
        .filter_map(|event| event["data"]["bytes"].as_u64())
        .sum();
    let written = (0..50)
        .map(|n| format!("line {n}\n").len() as u64)
        .sum::<u64>()
        + 10;
    assert_eq!(bytes, written, "{input:?}");
    assert!(!format!("{input:?}").contains("unfinished"));
}

#[test]
fn a_line_that_the_kernel_would_cut_is_refused_and_one_that_fits_arrives_whole() {
    let home = Home::new();
    let mut task = home.start(&on_terminal(
        &home,
        "stty -echo; echo ready; head -n 1 | wc -c",
    ));
    task.wait_for_output("ready");
    let mut peer = task.connect();
    let refused = write(&mut peer, &[b'x'; 4096]).unwrap_err();
    assert!(
        refused.contains("line mode") && refused.contains("4095"),
        "{refused}"
    );
    write(&mut peer, &[b'x'; 4095]).unwrap();
    let refused = write(&mut peer, b"y").unwrap_err();
    assert!(refused.contains("4095"), "{refused}");
    write(&mut peer, b"\n").unwrap();
    assert_eq!(task.end().state, EndState::Exited);
    assert_eq!(task.output(), b"ready\r\n4096\r\n");
}

#[test]
fn a_terminal_in_raw_mode_takes_long_lines_and_has_no_key_for_the_end() {
    let home = Home::new();
    let line = "stty raw -echo; echo ready; head -c 70000 | cksum";
    let mut task = home.start(&on_terminal(&home, line));
    task.wait_for_output("ready");
    let mut peer = task.connect();
    let refused = peer.ask(r#""do":"closeInput""#).unwrap_err();
    assert!(refused.contains("not in line mode"), "{refused}");
    write(&mut peer, &vec![b'z'; 60_000]).unwrap();
    write(&mut peer, &vec![b'z'; 10_000]).unwrap();
    assert_eq!(task.end().state, EndState::Exited);
    let (expected, same) = home.run("head -c 70000 /dev/zero | tr '\\0' z | cksum");
    assert_eq!(expected.state, EndState::Exited);
    let text = String::from_utf8(task.output()).unwrap();
    assert_eq!(
        text.replace("\r\n", "\n"),
        format!("ready\n{}", String::from_utf8(same.output()).unwrap())
    );
}

#[test]
fn input_is_bounded_and_a_stop_passes_what_waits() {
    let home = Home::new();
    let sleep = seconds();
    let mut task = home.start(&with_pipes(&home, &format!("exec sleep {sleep}")));
    let mut peer = task.connect();
    let mut taken = 0;
    let refused = loop {
        match write(&mut peer, &vec![b'x'; 64 * 1024]) {
            Ok(_) => taken += 64 * 1024,
            Err(refused) => break refused,
        }
    };
    assert!(refused.contains("write again later"), "{refused}");
    assert!(
        (1 << 20..(1 << 20) + 200 * 1024).contains(&taken),
        "{taken}"
    );
    let receipt = task.stop();
    assert_eq!(receipt.state, EndState::Killed);
    assert_eq!(alive(&format!("sleep {sleep}")), Vec::<u32>::new());
}

#[test]
fn whoever_waits_for_room_is_told_when_the_command_reads() {
    let home = Home::new();
    let go = home.path.join("go");
    let line = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; wc -c",
        go.display()
    );
    let mut task = home.start(&with_pipes(&home, &line));
    let mut peer = task.connect();
    let mut taken = 0;
    while write(&mut peer, &vec![b'x'; 64 * 1024]).is_ok() {
        taken += 64 * 1024;
    }
    let asked = peer.send(r#""do":"room","bytes":65536"#);
    // Others are answered meanwhile, and the wait is not.
    task.connect().ask(r#""do":"status""#).unwrap();
    std::fs::write(go, "").unwrap();
    loop {
        match peer.line() {
            weft_actors::task::wire::Line::Ok { n, .. } if n == asked => break,
            _ => {}
        }
    }
    write(&mut peer, &vec![b'y'; 65536]).unwrap();
    peer.ask(r#""do":"closeInput""#).unwrap();
    assert_eq!(task.end().state, EndState::Exited);
    let text = String::from_utf8(task.read(StreamName::Stdout, 0).bytes).unwrap();
    assert_eq!(text.trim().parse::<usize>().unwrap(), taken + 65536);
}

#[test]
fn a_request_that_comes_twice_is_done_once() {
    let home = Home::new();
    let mut task = home.start(&with_pipes(
        &home,
        "trap 'echo usr1' USR1; while read line; do echo \"got $line\"; done",
    ));
    let mut peer = task.connect();
    let data = BASE64_STANDARD.encode(b"once\n");
    let request = format!(r#""do":"write","data":"{data}","mark":{{"id":"a","body":"1"}}"#);
    let first = peer.ask(&request).unwrap();
    let mut other = task.connect();
    assert_eq!(other.ask(&request).unwrap(), first);
    let another = format!(r#""do":"write","data":"{data}","mark":{{"id":"a","body":"2"}}"#);
    assert!(other.ask(&another).unwrap_err().contains("another request"));
    peer.ask(r#""do":"closeInput""#).unwrap();
    assert_eq!(task.end().state, EndState::Exited);
    assert_eq!(task.read(StreamName::Stdout, 0).bytes, b"got once\n");
}

#[test]
fn a_size_reaches_the_command_and_stands_in_the_events_with_its_place() {
    let home = Home::new();
    let line = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.01; done";
    let mut task = home.start(&on_terminal(&home, line));
    task.wait_for_output("ready");
    let mut peer = task.connect();
    for bad in [r#""cols":0,"rows":10"#, r#""cols":10,"rows":501"#] {
        let refused = peer.ask(&format!(r#""do":"resize",{bad}"#)).unwrap_err();
        assert!(
            refused.starts_with("size: takes 1 to 1000 columns"),
            "{refused}"
        );
    }
    // The size that it has already is no change.
    peer.ask(r#""do":"resize","cols":91,"rows":33"#).unwrap();
    peer.ask(r#""do":"resize","cols":100,"rows":50"#).unwrap();
    assert_eq!(task.end().state, EndState::Exited);
    assert_eq!(task.output(), b"ready\r\n50 100\r\n");
    let sizes: Vec<Value> = events(&task)
        .into_iter()
        .filter(|event| !event["data"]["size"].is_null())
        .map(|event| {
            json!([
                event["event"],
                event["data"]["size"],
                event["data"]["offset"]
            ])
        })
        .collect();
    assert_eq!(
        sizes,
        [
            json!(["started", [91, 33], null]),
            json!(["resize", [100, 50], 7])
        ]
    );
}

#[test]
fn a_pipe_task_has_no_terminal_and_a_batch_task_no_input() {
    let home = Home::new();
    let mut batch = home.start(&home.line("sleep 60"));
    let mut peer = batch.connect();
    let refused = write(&mut peer, b"x").unwrap_err();
    assert!(refused.contains("batch"), "{refused}");
    let refused = peer
        .ask(r#""do":"resize","cols":80,"rows":24"#)
        .unwrap_err();
    assert!(refused.contains("no terminal"), "{refused}");
    batch.stop();
}

#[test]
fn what_a_shell_leaves_on_its_terminal_does_not_hold_up_the_end() {
    let home = Home::new();
    let sleep = seconds();
    let line = format!("trap '' HUP; setsid sh -c 'trap \"\" HUP; sleep {sleep}; :' & echo up");
    let mut task = home.start(&on_terminal(&home, &line));
    let receipt = task.end();
    assert_eq!((receipt.state, receipt.exit_code), (EndState::Exited, 0));
    assert!(task.output().starts_with(b"up\r\n"));
    for pid in alive(&format!("sleep {sleep}")) {
        stage::kill(pid);
    }
}
