//! How tasks are ended: by stop, deadline, a lost holder, a dead shim; and whom no stop reaches.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "shim/stage.rs"]
#[allow(dead_code, reason = "each test binary uses a part of the stage")]
mod stage;

use std::process::Command;
use std::time::{Duration, Instant};

use stage::{Home, alive, eventually, seconds};
use weft_actors::task::folder::Probe;
use weft_actors::task::wire::{EndState, Lease, Line};

#[test]
fn stop_ends_what_left_the_process_group() {
    for (line, count) in [
        ("setsid sleep N & sleep N", 2),
        ("(setsid sh -c 'setsid sleep N &' &); sleep N", 2),
        (
            "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep N; sleep N' & sleep N; sleep N",
            2,
        ),
        ("bash -c 'set -m; setsid sleep N & sleep N'", 2),
    ] {
        let home = Home::new();
        let n = seconds();
        let mut task = home.start(&home.line(&line.replace('N', &n)));
        let words = format!("sleep {n}");
        eventually("the sleeps", || {
            (alive(&words).len() == count).then_some(())
        });
        let receipt = task.stop();
        assert!(alive(&words).is_empty(), "{line}");
        assert_eq!(receipt.state, EndState::Killed, "{line}");
        assert_eq!(
            (receipt.reason.as_deref(), receipt.survivors.len()),
            (Some("stopped"), 0)
        );
        task.end();
        assert!(task.folder.connect().is_err());
    }
}

#[test]
fn a_tree_that_obeys_ends_before_its_grace() {
    let home = Home::new();
    let mut launch = home.line("trap 'exit 3' TERM; sleep 60 & echo ready; wait");
    launch.grace_ms = 60_000;
    let mut task = home.start(&launch);
    task.wait_for_output("ready");
    let begin = Instant::now();
    let receipt = task.stop();
    assert_eq!((receipt.state, receipt.exit_code), (EndState::Killed, 3));
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "it waited out its grace"
    );
}

#[test]
fn a_tree_that_ignores_term_is_killed_after_its_grace() {
    let home = Home::new();
    let mut launch = home.line("trap '' TERM; echo ready; while :; do sleep 0.05; done");
    launch.grace_ms = 200;
    let mut task = home.start(&launch);
    task.wait_for_output("ready");
    let receipt = task.stop();
    assert_eq!(receipt.signal.as_deref(), Some("SIGKILL"));
    assert_eq!((receipt.state, receipt.exit_code), (EndState::Killed, 137));
}

#[test]
fn a_stopped_process_hears_of_its_end() {
    let home = Home::new();
    let mut launch = home.line("kill -STOP $$");
    launch.grace_ms = 10_000;
    let mut task = home.start(&launch);
    let stat = format!("/proc/{}/stat", task.pid());
    eventually("the stop", || {
        std::fs::read_to_string(&stat)
            .unwrap()
            .contains(") T ")
            .then_some(())
    });
    assert_eq!(task.stop().signal.as_deref(), Some("SIGTERM"));
}

#[test]
fn a_tree_that_forks_until_it_is_stopped_is_stopped() {
    let home = Home::new();
    let name = format!("bomb{}", std::process::id());
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join(&name);
    // Each turn goes on as a new process outside of the group and lingers, so that there is never an end to it
    // and some hundreds live at most.
    std::fs::write(
        &script,
        "#!/bin/sh\ntrap '' TERM\nsleep 0.005\nsetsid \"$0\" &\nsleep 1\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = script.to_str().unwrap();
    let mut launch = home.line(&format!(
        "trap '' TERM; ulimit -u 2000; {path} & {path} & sleep 60"
    ));
    launch.grace_ms = 100;
    let mut task = home.start(&launch);
    let words = format!("/bin/sh {path}");
    eventually("some forks", || (alive(&words).len() > 30).then_some(()));
    let receipt = task.stop();
    assert!(receipt.survivors.is_empty());
    assert!(alive(&words).is_empty());
}

#[test]
fn a_deadline_is_kept_by_the_shim() {
    let home = Home::new();
    let n = seconds();
    let mut launch = home.line(&format!("setsid sleep {n} & sleep {n}"));
    launch.deadline_ms = Some(300);
    launch.deadline_reason = Some("monitor-expired".into());
    let mut task = home.start(&launch);
    let receipt = task.end();
    assert_eq!(
        (receipt.state, receipt.exit_code),
        (EndState::TimedOut, 143)
    );
    assert_eq!(receipt.reason.as_deref(), Some("monitor-expired"));
    assert!(receipt.finished_at - receipt.started_at >= 290);
    assert!(alive(&format!("sleep {n}")).is_empty());
}

#[test]
fn a_foreground_task_ends_with_its_last_holder() {
    let home = Home::new();
    let mut launch = home.launch(&["sleep", "60"]);
    launch.lease = Lease::Foreground;
    let mut task = home.start(&launch);
    let mut first = task.connect();
    let mut second = task.connect();
    first.ask(r#""do":"hold""#).unwrap();
    second.ask(r#""do":"hold""#).unwrap();
    drop(first);
    let status = second.ask(r#""do":"status""#).unwrap();
    assert_eq!(status["phase"], "running");
    drop(second);
    let receipt = task.end();
    assert_eq!(receipt.reason.as_deref(), Some("caller-gone"));
    assert_eq!(receipt.state, EndState::Killed);
}

#[test]
fn a_lease_that_moved_outlives_the_holder() {
    let home = Home::new();
    let mut launch = home.launch(&["sleep", "60"]);
    launch.lease = Lease::Foreground;
    let mut task = home.start(&launch);
    let mut holder = task.connect();
    holder.ask(r#""do":"hold""#).unwrap();
    holder.ask(r#""do":"lease","to":"session""#).unwrap();
    drop(holder);
    let mut other = task.connect();
    eventually("the holder's end", || {
        (other.ask(r#""do":"status""#).unwrap()["holders"] == 0).then_some(())
    });
    assert_eq!(other.ask(r#""do":"status""#).unwrap()["lease"], "session");
    assert!(other.ask(r#""do":"lease","to":"foreground""#).is_err());
    let journal = std::fs::read_to_string(task.path.join("events.jsonl")).unwrap();
    assert!(journal.contains(r#""event":"lease""#), "{journal}");
    task.stop();
}

#[test]
fn the_shim_s_death_is_its_command_s() {
    let home = Home::new();
    let n = seconds();
    let mut task = home.start(&home.launch(&["sleep", &n]));
    task.shim.kill().unwrap();
    task.shim.wait().unwrap();
    eventually("the command's end", || {
        alive(&format!("sleep {n}")).is_empty().then_some(())
    });
    let Probe::Lost(Some(started)) = task.folder.probe().unwrap() else {
        panic!("not lost")
    };
    assert_eq!(started.pid, task.pid());
    // And nothing starts in a lost task's folder.
    let mut again = home.launch(&["true"]);
    again.id = "t-0".into();
    assert!(matches!(
        home.try_start(&again).0,
        weft_actors::task::wire::Answer::Busy(true)
    ));
}

#[test]
fn what_a_lost_task_left_is_ended_by_proof() {
    let home = Home::new();
    let n = seconds();
    let mut launch = home.line(&format!("setsid sleep {n} & sleep {n}"));
    launch.id = format!("t-lost-{}", std::process::id());
    launch
        .env
        .push(("WEFT_TASK_ID".into(), launch.id.clone().into()));
    launch.env.remove(1);
    let mut task = home.start(&launch);
    let words = format!("sleep {n}");
    eventually("the sleeps", || (alive(&words).len() == 2).then_some(()));
    task.shim.kill().unwrap();
    task.shim.wait().unwrap();
    let Probe::Lost(Some(started)) = task.folder.probe().unwrap() else {
        panic!("not lost")
    };
    let ended = weft_actors::sys::kill_lost_task(&launch.id, &started).unwrap();
    assert_eq!(ended, weft_actors::sys::Descendants::Ended);
    eventually("their end", || alive(&words).is_empty().then_some(()));
}

#[test]
fn another_weft_and_all_below_it_are_not_touched() {
    let home = Home::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let (own, below) = (seconds(), seconds());
    let lock = elsewhere.path().join("node.lock");
    // A node as far as a shim can tell: it holds the lock, and has a task below that ignores nothing.
    let line = format!(
        "(setsid sh -c 'exec 9>{}; flock -n 9; sleep {below} 9>&- & wait' &); sleep {own}",
        lock.display()
    );
    let mut task = home.start(&home.line(&line));
    let (own, below) = (format!("sleep {own}"), format!("sleep {below}"));
    eventually("both", || {
        (alive(&own).len() + alive(&below).len() == 2).then_some(())
    });
    let receipt = task.stop();
    assert_eq!(
        (receipt.state, receipt.survivors.len()),
        (EndState::Killed, 0)
    );
    task.end();
    assert!(alive(&own).is_empty());
    let stranger = alive(&below);
    assert_eq!(stranger.len(), 1);
    Command::new("kill")
        .arg(stranger[0].to_string())
        .status()
        .unwrap();
}

#[test]
fn a_task_s_own_end_leaves_its_descendants_alone() {
    let home = Home::new();
    let n = seconds();
    let (receipt, _task) = home.run(&format!("setsid sleep {n} >/dev/null 2>&1 & exit 0"));
    assert_eq!(
        (receipt.state, receipt.streams_held_open),
        (EndState::Exited, false)
    );
    let left = alive(&format!("sleep {n}"));
    assert_eq!(left.len(), 1);
    Command::new("kill")
        .arg(left[0].to_string())
        .status()
        .unwrap();
}

#[test]
fn a_signal_by_request_makes_the_end_a_killing() {
    let home = Home::new();
    let mut task = home.start(&home.launch(&["sleep", "60"]));
    let mut peer = task.connect();
    assert!(peer.ask(r#""do":"signal","signal":"NONSENSE""#).is_err());
    peer.ask(r#""do":"signal","signal":"INT""#).unwrap();
    let receipt = peer.ended();
    assert_eq!((receipt.state, receipt.exit_code), (EndState::Killed, 130));
    assert_eq!(receipt.reason.as_deref(), Some("signalled"));
    task.end();
}

#[test]
fn whoever_ends_a_shim_by_hand_means_its_task() {
    let home = Home::new();
    let n = seconds();
    let mut task = home.start(&home.line(&format!("setsid sleep {n} & sleep {n}")));
    eventually("the sleeps", || {
        (alive(&format!("sleep {n}")).len() == 2).then_some(())
    });
    Command::new("kill")
        .arg(task.shim.id().to_string())
        .status()
        .unwrap();
    let receipt = task.end();
    assert_eq!(receipt.reason.as_deref(), Some("shim-terminated"));
    assert!(alive(&format!("sleep {n}")).is_empty());
}

#[test]
fn a_process_of_another_user_is_a_survivor() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can start another user's process");
        return;
    }
    let Ok(setpriv) = which("setpriv") else {
        println!("skipped: setpriv is not there");
        return;
    };
    let home = Home::new();
    let (n, own) = (seconds(), seconds());
    // Below a shim without rights, something becomes root for good, as sudo does.
    let helper = tempfile::tempdir_in("/tmp").unwrap();
    let tool = helper.path().join("become");
    std::fs::copy(setpriv, &tool).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(helper.path(), mode(0o755)).unwrap();
    std::fs::set_permissions(&tool, mode(0o4755)).unwrap();
    let shared = home.path.clone();
    for path in [shared.parent().unwrap(), &shared, &shared.join("tasks")] {
        std::fs::set_permissions(path, mode(0o777)).unwrap();
    }
    let line = format!("{} --reuid=0 sleep {n} & sleep {own}", tool.display());
    let mut task = home.start_as_nobody(&home.line(&line));
    let foreign = format!("sleep {n}");
    eventually("the other user's", || {
        (alive(&foreign).len() == 1).then_some(())
    });
    let receipt = task.stop();
    assert_eq!(receipt.survivors, alive(&foreign));
    assert!(alive(&format!("sleep {own}")).is_empty());
    assert_eq!(receipt.state, EndState::Killed);
    Command::new("kill")
        .arg(receipt.survivors[0].to_string())
        .status()
        .unwrap();
}

fn which(name: &str) -> Result<std::path::PathBuf, ()> {
    let path = std::env::var_os("PATH").ok_or(())?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|it| it.exists())
        .ok_or(())
}

#[test]
fn questions_are_answered_once_and_everybody_hears_the_end() {
    let home = Home::new();
    let mut launch = home.line("read a; echo 12345; read b; echo 6");
    launch.io = weft_actors::task::wire::Io::Pipes;
    let task = home.start(&launch);
    let mut peer = task.connect();
    let mut other = task.connect();
    let first = peer.send(r#""do":"await","stream":"output","after":0"#);
    other.ask(r#""do":"write","data":"Cg==""#).unwrap();
    let Line::Ok { n, ok } = peer.line() else {
        panic!()
    };
    assert_eq!(
        (n, &ok["size"], &ok["ended"]),
        (first, &6.into(), &false.into())
    );
    assert!(
        peer.ask(r#""do":"await","stream":"stderr","after":0"#)
            .is_err()
    );
    assert!(peer.ask(r#""do":"dance""#).is_err());
    let late = peer.send(r#""do":"await","stream":"output","after":100"#);
    other.ask(r#""do":"write","data":"Cg==""#).unwrap();
    let Line::Ok { n, ok } = peer.line() else {
        panic!()
    };
    assert_eq!((n, &ok["ended"]), (late, &true.into()));
    let receipt = peer.ended();
    assert_eq!(receipt, other.ended());
    assert_eq!(task.folder.receipt().unwrap(), Some(receipt));
}
