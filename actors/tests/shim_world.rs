//! What the world does to a task: logs cut and removed, a full disk, pids used again, a node that answers,
//! is not there, or must be woken.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "shim/stage.rs"]
#[allow(dead_code, reason = "each test binary uses a part of the stage")]
mod stage;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use stage::{Home, Peer, Task, alive, eventually, seconds};
use weft_actors::task::folder::Probe;
use weft_actors::task::wire::{Answer, EndState, Io, Secret, StreamName};

/// A task that printed 18 bytes and prints on when told.
fn old_and_new(home: &Home) -> (Task, Peer) {
    let mut launch = home.line("echo old-1; echo old-2; echo old-3; read go; echo new-1");
    launch.io = Io::Pipes;
    let task = home.start(&launch);
    task.wait_for_output("old-3\n");
    let peer = task.connect();
    (task, peer)
}

#[test]
fn a_log_that_is_cut_removed_or_replaced_goes_on_at_its_offset() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 5] = [
        ("cut", |log| std::fs::write(log, "").unwrap()),
        ("removed", |log| std::fs::remove_file(log).unwrap()),
        ("renamed", |log| {
            std::fs::rename(log, log.with_extension("1")).unwrap();
        }),
        ("made read-only", |log| {
            std::fs::set_permissions(log, std::os::unix::fs::PermissionsExt::from_mode(0o400))
                .unwrap();
        }),
        ("replaced by a link", |log| {
            std::fs::remove_file(log).unwrap();
            std::os::unix::fs::symlink("/etc/hostname", log).unwrap();
        }),
    ];
    for (what, change) in changes {
        let home = Home::new();
        let (mut task, mut peer) = old_and_new(&home);
        change(&task.path.join("output"));
        peer.ask(r#""do":"write","data":"Cg==""#).unwrap();
        assert_eq!(peer.ended().state, EndState::Exited, "{what}");
        task.end();
        let on = task.read(StreamName::Output, 18);
        assert_eq!(
            (on.bytes.as_slice(), on.omitted, on.next),
            (&b"new-1\n"[..], 0, 24),
            "{what}"
        );
        let all = task.read(StreamName::Output, 0);
        assert!(!all.bytes.contains(&0), "{what}");
        assert!(
            all.omitted == 18 || all.bytes.starts_with(b"old-1"),
            "{what}"
        );
    }
}

/// A small file system of its own, gone when dropped.
struct Small {
    path: PathBuf,
    _root: tempfile::TempDir,
}

impl Small {
    fn mount() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(&path)
            .output();
        if mount.is_ok_and(|it| it.status.success()) {
            return Some(Self { path, _root: root });
        }
        println!("skipped: mounting a tmpfs is not permitted here");
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[test]
fn a_full_disk_neither_blocks_nor_ends_a_task() {
    let Some(disk) = Small::mount() else { return };
    for floor in [0, 1 << 20] {
        let home = Home::at(disk.path.join(format!("home-{floor}")));
        let mut launch = home.line("head -c 20000000 /dev/urandom; read go; echo end; exit 4");
        launch.io = Io::Pipes;
        launch.free_floor = floor;
        let mut task = home.start(&launch);
        let mut peer = task.connect();
        peer.ask(r#""do":"await","stream":"output","after":19999999"#)
            .unwrap();
        if floor > 0 {
            let free = rustix::fs::statvfs(&disk.path).unwrap();
            assert!(free.f_bavail * free.f_frsize >= floor - 65536);
        }
        // Another cannot start where nothing can be written, says so, and leaves nothing.
        if floor == 0 {
            let path = disk.path.join("fill");
            let mut filler = std::fs::File::create(&path).unwrap();
            while filler.write_all(&[0; 4096]).is_ok() {}
            let (answer, mut other) = home.try_start(&home.line("echo hi"));
            let Answer::Failed(failure) = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(failure.errno, Some(libc::ENOSPC), "{}", failure.message);
            eventually("its end", || other.shim.try_wait().unwrap());
            assert_eq!(other.path.read_dir().unwrap().count(), 0);
            drop(filler);
        }
        peer.ask(r#""do":"write","data":"Cg==""#).unwrap();
        let receipt = peer.ended();
        assert_eq!((receipt.state, receipt.exit_code), (EndState::Failed, 4));
        assert_eq!(receipt.output_bytes, 20_000_004);
        task.end();
        let chunk = task.read(StreamName::Output, 0);
        assert!(chunk.bytes.len() > 1 << 20);
        let rest = task.read(StreamName::Output, chunk.next);
        assert!(rest.omitted > 1 << 20);
        assert_eq!(rest.next, 20_000_004);
        drop(task);
        let _ = std::fs::remove_file(disk.path.join("fill"));
        // The space is back, and the next task runs without hand work.
        std::fs::remove_dir_all(&home.path).unwrap();
        let home = Home::at(home.path);
        assert_eq!(home.run("echo hi").1.output(), b"hi\n");
    }
}

#[test]
fn a_pid_that_is_used_again_is_not_signalled() {
    // In a pid namespace of its own, where the next number can be chosen.
    let inner = std::env::var_os("WEFT_TEST_IN_NAMESPACE").is_some();
    if !inner {
        let exe = std::env::current_exe().unwrap();
        let status = Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(exe)
            .args([
                "--exact",
                "a_pid_that_is_used_again_is_not_signalled",
                "--nocapture",
            ])
            .env("WEFT_TEST_IN_NAMESPACE", "1")
            .output();
        match status {
            Ok(it) if it.status.success() => {}
            Ok(it) if String::from_utf8_lossy(&it.stderr).contains("unshare") => {
                println!("skipped: no new pid namespace is permitted here");
            }
            other => panic!("{other:?}"),
        }
        return;
    }
    let home = Home::new();
    let mut task = home.start(&home.launch(&["sleep", "100"]));
    task.shim.kill().unwrap();
    task.shim.wait().unwrap();
    let pid = task.pid();
    eventually("the command's end", || {
        // As the namespace's first process this test inherits what the shim left.
        let _ = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
        (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
    let mut stranger = Command::new("sleep").arg("200").spawn().unwrap();
    assert_eq!(stranger.id(), pid);
    let Probe::Lost(Some(started)) = task.folder.probe().unwrap() else {
        panic!("not lost")
    };
    assert_eq!(started.pid, pid);
    let ended = weft_actors::sys::kill_lost_task("t-0", &started).unwrap();
    // The stranger is a child of the namespace's first process, as an orphan of the task would be: spared, and not vouched for.
    assert_eq!(ended, weft_actors::sys::Descendants::Unknown);
    assert!(
        stranger.try_wait().unwrap().is_none(),
        "a stranger was ended"
    );
    stranger.kill().unwrap();
}

fn announced(home: &Home, line: &str) -> Task {
    let mut launch = home.line(line);
    launch.token = Some(Secret::new("the-token".into()));
    launch.topic = Some("builds".into());
    home.start(&launch)
}

#[test]
fn an_end_is_posted_once_with_the_token_after_the_receipt() {
    let home = Home::new();
    let node = UnixListener::bind(home.path.join("node.sock")).unwrap();
    let mut task = announced(&home, "exit 3");
    let (mut stream, _) = node.accept().unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert_eq!(task.folder.receipt().unwrap().unwrap().exit_code, 3);
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.ends_with(b"\r\n\r\n{}") {
        let bytes = stream.read(&mut buffer).unwrap();
        assert!(bytes > 0, "{}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&buffer[..bytes]);
    }
    let request = String::from_utf8(request).unwrap();
    assert!(
        request.starts_with("POST /v1/topics/builds/events HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("\r\nAuthorization: Bearer the-token\r\n"),
        "{request}"
    );
    stream.write_all(b"HTTP/1.1 201 Created\r\n\r\n").unwrap();
    task.end();
    node.set_nonblocking(true).unwrap();
    assert!(node.accept().is_err(), "posted twice");
    let journal = std::fs::read_to_string(task.path.join("events.jsonl")).unwrap();
    assert!(
        journal.ends_with("\"event\":\"posted\",\"seq\":3}\n"),
        "{journal}"
    );
    for entry in task.path.read_dir().unwrap() {
        let text = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!text.windows(9).any(|it| it == b"the-token"));
    }
}

#[test]
fn a_node_that_does_not_answer_holds_up_nothing_but_the_shim() {
    let home = Home::new();
    // It listens, and never accepts.
    let _node = UnixListener::bind(home.path.join("node.sock")).unwrap();
    let mut task = announced(&home, "sleep 0.05");
    assert_eq!(task.connect().ended().exit_code, 0);
    // The end was told while the shim still waits for the node.
    assert!(task.folder.try_lock().unwrap().is_none());
    task.end();
}

#[test]
fn a_node_is_started_once_where_a_resident_waits() {
    let home = Home::new();
    let tool = home.path.join("weft");
    let count = home.path.join("count");
    // In place of a node: it says that it was started, with what, and fails.
    let script = format!(
        "#!/bin/sh\necho \"$@\" \"$KEY\" >> {}\nexit 1\n",
        count.display()
    );
    std::fs::write(&tool, script).unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let run = |home: &Home| {
        let mut launch = home.line("exit 0");
        launch.token = Some(Secret::new("the-token".into()));
        launch.topic = Some("builds".into());
        launch.weft.clone_from(&tool);
        launch.node_env = vec![("KEY".into(), "value".into())];
        home.start(&launch)
    };
    run(&home).end();
    assert!(!count.exists(), "nobody waits");
    std::fs::write(home.path.join("wake"), "").unwrap();
    let mut tasks: Vec<_> = (0..20).map(|_| run(&home)).collect();
    for task in &mut tasks {
        assert_eq!(task.end().state, EndState::Exited);
    }
    let right = format!("node --detached --home {} value\n", home.path.display());
    assert_eq!(std::fs::read_to_string(&count).unwrap(), right);
}

#[test]
fn a_large_pipe_is_given_back_after_a_quiet_second() {
    let home = Home::new();
    let n = seconds();
    let mut launch = home.line(&format!("head -c 50000000 /dev/zero; exec sleep {n}"));
    launch.io = Io::Batch;
    let mut task = home.start(&launch);
    let mut peer = task.connect();
    peer.ask(r#""do":"await","stream":"output","after":49999999"#)
        .unwrap();
    let sleeper = eventually("the sleep", || {
        alive(&format!("sleep {n}")).first().copied()
    });
    let size = || {
        let pipe = std::fs::File::options()
            .write(true)
            .open(format!("/proc/{sleeper}/fd/1"))
            .unwrap();
        rustix::pipe::fcntl_getpipe_size(pipe).unwrap()
    };
    eventually("a plain pipe", || (size() == 64 * 1024).then_some(()));
    task.stop();
}

#[test]
fn a_clock_that_is_set_makes_no_run_longer_and_no_end_earlier_than_its_start() {
    for seconds in ["3600", "-3600"] {
        let home = Home::new();
        let go = home.path.join("go");
        let line = format!(
            "while [ ! -e {} ]; do sleep 0.01; done; echo ok",
            go.display()
        );
        let mut launch = home.line(&line);
        launch.deadline_ms = Some(60_000);
        let (mut task, offset) = home.start_by_moved_clock(&launch);
        std::fs::write(&offset, seconds).unwrap();
        std::fs::write(&go, "").unwrap();
        let receipt = task.end();
        assert_eq!(receipt.state, EndState::Exited);
        let ran = receipt.finished_at.checked_sub(receipt.started_at);
        assert!(ran.is_some_and(|ran| ran < 30_000), "{seconds}: {ran:?}");
        let wrote = receipt.last_output_at.unwrap();
        // Printed before the end, it may be read a little after it.
        let wrote = wrote.checked_sub(receipt.started_at);
        assert!(wrote.is_some_and(|wrote| wrote < 30_000), "{wrote:?}");
    }
}
