//! How tasks end: codes, signals, drained and held-open streams, what a command gets.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "shim/stage.rs"]
#[allow(dead_code, reason = "each test binary uses a part of the stage")]
mod stage;

use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use stage::{Home, eventually};
use weft_actors::task::wire::{Answer, EndState, Failure, Io, Launch, StreamName, Streams};

#[test]
fn every_way_to_end_has_its_code_signal_and_state() {
    let home = Home::new();
    for (line, code, signal, state) in [
        ("kill -9 $$", 137, Some("SIGKILL"), EndState::Failed),
        ("kill -TERM $$", 143, Some("SIGTERM"), EndState::Failed),
        ("kill -SEGV $$", 139, Some("SIGSEGV"), EndState::Failed),
        ("kill -HUP $$", 129, Some("SIGHUP"), EndState::Failed),
        ("exit 137", 137, None, EndState::Failed),
        ("exit 0", 0, None, EndState::Exited),
    ] {
        let (receipt, _task) = home.run(line);
        assert_eq!(
            (receipt.exit_code, receipt.signal.as_deref(), receipt.state),
            (code, signal, state),
            "{line}"
        );
        assert!(receipt.started_at <= receipt.finished_at);
    }
}

#[test]
fn a_quiet_descendant_that_holds_a_stream_does_not_hold_up_the_end() {
    let home = Home::new();
    for (line, streams) in [
        ("sleep 60 & echo $! > PID; echo started", Streams::Merged),
        (
            "setsid sleep 60 & echo $! > PID; echo started",
            Streams::Merged,
        ),
        (
            "sleep 60 >/dev/null & echo $! > PID; echo started",
            Streams::Split,
        ),
    ] {
        let noted = home.path.join("pid");
        let line = &line.replace("PID", noted.to_str().unwrap());
        let mut launch = home.line(line);
        launch.streams = streams;
        let mut task = home.start(&launch);
        let receipt = task.end();
        let pid: u32 = std::fs::read_to_string(&noted)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(
            Path::new(&format!("/proc/{pid}")).exists(),
            "{line}: the end waited for it"
        );
        stage::kill(pid);
        assert_eq!((receipt.state, receipt.exit_code), (EndState::Exited, 0));
        assert!(receipt.streams_held_open, "{line}");
        assert_eq!(receipt.output_bytes, 8);
        assert_eq!(task.read(streams.names()[0], 0).bytes, b"started\n");
    }
}

#[test]
fn a_chatty_descendant_does_not_hold_up_the_end_for_more_than_2_s() {
    let home = Home::new();
    let (receipt, task) = home.run("(while :; do echo tick; sleep 0.05; done) & echo up");
    assert!(receipt.streams_held_open);
    assert_eq!((receipt.state, receipt.exit_code), (EndState::Exited, 0));
    let output = task.output();
    assert!(output.windows(3).any(|word| word == b"up\n"));
    assert_eq!(output.len() as u64, receipt.output_bytes);
    // Twenty ticks a second at most, so that more of them would mean more than two seconds.
    let ticks = output.windows(5).filter(|word| word == b"tick\n").count();
    assert!(ticks <= 42, "{ticks} ticks were captured");
}

#[test]
fn an_end_without_descendants_is_told_at_once() {
    let home = Home::new();
    let (receipt, _task) = home.run("true");
    assert!(!receipt.streams_held_open);
    assert_eq!((receipt.output_bytes, receipt.last_output_at), (0, None));
}

#[test]
fn words_arrive_as_given() {
    let home = Home::new();
    let words = [
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
    let mut launch = home.launch(&words);
    launch
        .argv
        .push(std::ffi::OsString::from_vec(vec![0xff, 0xfe]));
    launch.argv.push("y".repeat(100_000).into());
    let mut task = home.start(&launch);
    assert_eq!(task.end().exit_code, 0);
    let mut right =
        b"[a b]\n[]\n[it's]\n[say \"hi\"]\n[x\ny]\n[-n]\n[--]\n[$HOME]\n[*]\n[back\\slash]\n"
            .to_vec();
    right.extend("[é]\n".as_bytes());
    right.extend([b'[', 0xff, 0xfe, b']', b'\n']);
    right.extend(format!("[{}]\n", "y".repeat(100_000)).as_bytes());
    assert_eq!(task.output(), right);
}

fn refused(home: &Home, launch: &Launch) -> Failure {
    let (answer, mut task) = home.try_start(launch);
    let Answer::Failed(failure) = answer else {
        panic!("{answer:?}")
    };
    eventually("the shim's end", || task.shim.try_wait().unwrap());
    let left: Vec<_> = task
        .path
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    failure
}

#[test]
fn a_command_too_long_for_the_kernel_fails_clearly_and_leaves_nothing() {
    let home = Home::new();
    let comment = |bytes: usize| format!("echo ok #{}", "x".repeat(bytes - "echo ok #".len()));
    let (receipt, task) = home.run(&comment(131_071));
    assert_eq!(
        (receipt.exit_code, task.output().as_slice()),
        (0, &b"ok\n"[..])
    );
    for bytes in [131_072, 200_000] {
        let failure = refused(&home, &home.line(&comment(bytes)));
        assert_eq!(failure.errno, Some(libc::E2BIG));
        assert!(
            failure
                .message
                .contains(&format!("word 2 of argv has {bytes} bytes")),
            "{}",
            failure.message
        );
    }
    let mut many = home.launch(&["true"]);
    many.argv.extend((0..3000).map(|_| "w".repeat(1000).into()));
    let answer = home.try_start(&many);
    assert!(matches!(
        answer.0,
        Answer::Started(_)
            | Answer::Failed(Failure {
                errno: Some(libc::E2BIG),
                ..
            })
    ));
    let mut large = home.launch(&["true"]);
    large.env.push(("LARGE".into(), "v".repeat(200_000).into()));
    let failure = refused(&home, &large);
    assert!(
        failure.message.contains("LARGE has 200006 bytes"),
        "{}",
        failure.message
    );
    assert!(!failure.message.contains("vvvv"));
}

#[test]
fn a_command_that_cannot_run_is_refused_with_the_reason() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "words").unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    for (argv, errno, words) in [
        (
            vec!["no-such-command"],
            Some(libc::ENOENT),
            "not found in PATH",
        ),
        (vec!["/no/such/command"], Some(libc::ENOENT), "No such file"),
        (
            vec![plain.to_str().unwrap()],
            Some(libc::EACCES),
            "Permission denied",
        ),
        (
            vec![script.to_str().unwrap()],
            Some(libc::ENOENT),
            "interpreter",
        ),
        (
            vec![dir.path().to_str().unwrap()],
            Some(libc::EACCES),
            "Permission denied",
        ),
        (vec![], None, "argv"),
        (vec!["a\0b"], None, "NUL"),
    ] {
        let failure = refused(&home, &home.launch(&argv));
        assert_eq!(failure.errno, errno, "{argv:?}: {}", failure.message);
        assert!(
            failure.message.contains(words),
            "{argv:?}: {}",
            failure.message
        );
    }
    let mut elsewhere = home.launch(&["true"]);
    elsewhere.cwd = "/no/such/folder".into();
    let failure = refused(&home, &elsewhere);
    assert!(
        failure
            .message
            .contains("working directory /no/such/folder"),
        "{}",
        failure.message
    );
}

#[test]
fn a_script_without_an_interpreter_line_runs_as_for_a_shell() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "echo $0 $1\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = script.to_str().unwrap();
    let mut task = home.start(&home.launch(&[path, "word"]));
    assert_eq!(task.end().exit_code, 0);
    assert_eq!(task.output(), format!("{path} word\n").as_bytes());
}

#[test]
fn a_working_directory_that_vanishes_does_not_disturb_the_task() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let mut launch = home.line("read word; echo got $word");
    launch.cwd = dir.path().to_owned();
    launch.io = Io::Pipes;
    let mut task = home.start(&launch);
    dir.close().unwrap();
    let mut peer = task.connect();
    peer.ask(r#""do":"write","data":"aGkK""#).unwrap();
    assert_eq!(peer.ended().exit_code, 0);
    task.end();
    // The shell may complain of its folder before.
    assert!(task.output().ends_with(b"got hi\n"));
}

#[test]
fn input_is_given_bytes_nothing_or_a_pipe() {
    let home = Home::new();
    let mut given = home.line("wc -c");
    given.stdin = Some("x".repeat(300_000).into());
    let mut task = home.start(&given);
    task.end();
    assert_eq!(task.output().trim_ascii(), b"300000");
    let (_, task) = home.run("readlink /proc/self/fd/0");
    assert_eq!(task.output(), b"/dev/null\n");
    let mut piped = home.line("cat");
    piped.io = Io::Pipes;
    let task = home.start(&piped);
    let mut peer = task.connect();
    peer.ask(r#""do":"write","data":"YWJj""#).unwrap();
    peer.ask(r#""do":"closeInput""#).unwrap();
    assert_eq!(peer.ended().exit_code, 0);
    assert_eq!(task.output(), b"abc");
    let mut deaf = home.launch(&["sleep", "60"]);
    deaf.io = Io::Pipes;
    let mut task = home.start(&deaf);
    let mut peer = task.connect();
    peer.ask(r#""do":"closeInput""#).unwrap();
    assert!(peer.ask(r#""do":"write","data":"YWJj""#).is_err());
    task.stop();
}

#[test]
fn a_command_has_three_descriptors_a_plain_mask_and_default_signals() {
    let home = Home::new();
    let (_, task) = home.run(
        "ls /proc/self/fd | tr '\\n' ' '; umask; grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\n\\t'; \
         [ $(ps -o pgid= $$) = $$ ] && echo leader",
    );
    let text = String::from_utf8(task.output()).unwrap();
    // The fourth is what ls lists with.
    assert!(text.starts_with("0 1 2 3 0022"), "{text}");
    assert!(
        text.contains("SigBlk:0000000000000000SigIgn:0000000000000000leader"),
        "{text}"
    );
}

#[test]
fn a_shim_keeps_no_descriptor_of_its_starter() {
    let home = Home::new();
    // Two descriptors that an exec does not close, as a careless library would leave them.
    let file = std::fs::File::open("/dev/zero").unwrap();
    let leaked = rustix::io::fcntl_dupfd_cloexec(&file, 300).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let mut task = home.start(&home.launch(&["sleep", "60"]));
    let targets = |pid: u32| -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .flatten();
        entries
            .filter_map(|it| std::fs::read_link(it.path()).ok())
            .map(|it| it.to_string_lossy().into_owned())
            .collect()
    };
    assert_eq!(targets(task.pid()).len(), 3);
    let shim = targets(task.shim.id());
    assert!(!shim.iter().any(|target| target == "/dev/zero"), "{shim:?}");
    let sockets = shim
        .iter()
        .filter(|target| target.starts_with("socket:"))
        .count();
    assert_eq!(sockets, 1, "{shim:?}");
    task.stop();
}

#[test]
fn a_long_path_to_the_home_stands_in_nobody_s_way() {
    let root = tempfile::tempdir().unwrap();
    for length in [60, 90, 98, 107, 120, 200] {
        let mut path = root.path().join(length.to_string());
        while path.as_os_str().len() + 50 < length {
            path.push("d".repeat(40));
        }
        let rest = length.saturating_sub(path.as_os_str().len() + 1).max(1);
        path.push("h".repeat(rest));
        let home = Home::at(path);
        let mut launch = home.line("read word; echo $word");
        launch.io = Io::Pipes;
        let task = home.start(&launch);
        let mut peer = task.connect();
        peer.ask(r#""do":"write","data":"b2sK""#).unwrap();
        assert_eq!(peer.ended().exit_code, 0, "{length}");
        assert_eq!(task.output(), b"ok\n");
    }
}

#[test]
fn orphans_of_a_task_become_no_zombies() {
    let home = Home::new();
    let line =
        "i=0; while [ $i -lt 50 ]; do (setsid sh -c 'sleep 0.1' &); i=$((i+1)); done; sleep 60";
    let mut task = home.start(&home.line(line));
    let shim = task.shim.id();
    let children = || {
        let list = std::fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).unwrap();
        list.split_whitespace().count()
    };
    eventually("the last sleep", || {
        let line =
            std::fs::read_to_string(format!("/proc/{}/task/{}/children", task.pid(), task.pid()));
        let sleeps = stage::alive("sleep 60");
        (!sleeps.is_empty() && !line.unwrap().is_empty() && children() == 1).then_some(())
    });
    task.stop();
}

#[test]
fn two_shims_on_one_folder_run_one_command() {
    let home = Home::new();
    let launch = home.line("echo once; sleep 60");
    let mut first = home.start(&launch);
    first.wait_for_output("once");
    assert!(matches!(home.try_start(&launch).0, Answer::Busy(true)));
    first.stop();
    first.end();
    // Nor after its end.
    assert!(matches!(home.try_start(&launch).0, Answer::Busy(true)));
    assert_eq!(first.output(), b"once\n");
}

#[test]
fn bytes_that_are_no_text_and_lines_without_end_arrive_whole() {
    let home = Home::new();
    let (receipt, task) = home.run("printf '\\377\\376\\303('; printf 'no newline'");
    assert_eq!(receipt.exit_code, 0);
    assert_eq!(task.output(), b"\xff\xfe\xc3(no newline");
    let (receipt, task) = home.run("head -c 10000000 /dev/zero | tr '\\0' x; echo; echo TAIL");
    assert_eq!(receipt.output_bytes, 10_000_006);
    let chunk = task.read(StreamName::Output, 10_000_001);
    assert_eq!(chunk.bytes, b"TAIL\n");
}

#[test]
fn merged_streams_keep_their_order_and_split_ones_their_places() {
    let home = Home::new();
    let line = "for i in 1 2 3; do echo out$i; echo err$i >&2; done";
    let (_, task) = home.run(line);
    assert_eq!(task.output(), b"out1\nerr1\nout2\nerr2\nout3\nerr3\n");
    let mut launch = home.line(line);
    launch.streams = Streams::Split;
    let mut task = home.start(&launch);
    let receipt = task.end();
    assert_eq!(
        task.read(StreamName::Stdout, 0).bytes,
        b"out1\nout2\nout3\n"
    );
    assert_eq!(
        task.read(StreamName::Stderr, 0).bytes,
        b"err1\nerr2\nerr3\n"
    );
    assert_eq!(
        (receipt.streams[&StreamName::Stderr], receipt.output_bytes),
        (15, 30)
    );
}

#[test]
fn an_old_window_is_let_go_and_disclosed() {
    let home = Home::new();
    let mut launch = home.line("seq 1 400000");
    launch.keep_bytes = 64 * 1024;
    let mut task = home.start(&launch);
    let receipt = task.end();
    let chunk = task.read(StreamName::Output, 0);
    assert_eq!(
        chunk.omitted + chunk.bytes.len() as u64,
        receipt.output_bytes
    );
    assert!(chunk.omitted > 1_000_000);
    assert!(chunk.bytes.ends_with(b"399999\n400000\n"));
    assert!(!chunk.bytes.contains(&0));
}
