//! A task is stopped as a whole tree, by identity and never by a bare number, and holds nothing that is its node's.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use weft_tests::stage::{finish, read_all, weft_bin};
use weft_tests::tasks::{ended, record, shim, start};
use weft_tests::{Client, Stage, eventually, processes};

/// A length of sleep that nobody else on this machine sleeps.
fn sleep() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "sleep 44{}.{}",
        COUNT.fetch_add(1, Ordering::Relaxed),
        std::process::id()
    )
}

fn wait_for_sleepers(sleep: &str, count: usize) -> Vec<u32> {
    eventually("the sleepers sleep", || {
        let found: Vec<u32> = processes::running(sleep)
            .into_iter()
            .filter(|pid| is_program(*pid, "sleep"))
            .collect();
        (found.len() == count).then_some(found)
    })
}

/// `weft stop`, and the record it answers.
#[track_caller]
fn stop(stage: &Stage, args: &[&str]) -> Value {
    stage.json([&["stop", "--json"], args].concat())["task"].clone()
}

fn is_program(pid: u32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

#[test]
fn stop_ends_what_left_the_process_group() {
    let stage = Stage::new();
    let lines = [
        "setsid SLEEP & SLEEP",
        "(setsid sh -c 'setsid SLEEP &' &); SLEEP",
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; SLEEP; SLEEP' & SLEEP; SLEEP",
        "bash -c 'set -m; setsid SLEEP & SLEEP'",
    ];
    let started: Vec<_> = lines
        .iter()
        .map(|line| {
            let sleep = sleep();
            let record = stage.json([
                "run",
                "--durable",
                "--json",
                "-c",
                &line.replace("SLEEP", &sleep),
            ]);
            (record["id"].as_str().unwrap().to_owned(), sleep)
        })
        .collect();
    for (id, sleep) in &started {
        wait_for_sleepers(sleep, 2);
        let stopped = stop(&stage, &[id]);
        assert_eq!(
            processes::running(sleep),
            [0_u32; 0],
            "{sleep} outlived its stop"
        );
        assert_eq!(
            (&stopped["state"], &stopped["survivors"]),
            (&json!("killed"), &json!([])),
            "{stopped}"
        );
        assert_eq!(
            stop(&stage, &[id]),
            stopped,
            "a second stop answers the same"
        );
    }
}

#[test]
fn a_deadline_ends_the_same_tree() {
    let stage = Stage::new();
    let sleep = sleep();
    let line = format!("setsid {sleep} & trap '' TERM; {sleep}; {sleep}");
    let started = stage.json([
        "run",
        "--durable",
        "--timeout",
        "700ms",
        "--json",
        "-c",
        &line,
    ]);
    let out = stage.run(["wait", started["id"].as_str().unwrap(), "--json"]);
    assert_eq!(
        (out.code, &out.json()["task"]["state"]),
        (124, &json!("timed_out")),
        "{out:?}"
    );
    assert!(processes::running(&sleep).is_empty());
}

#[test]
fn what_a_task_leaves_at_its_own_end_is_left_alone() {
    let stage = Stage::new();
    let sleep = sleep();
    let started = stage.json([
        "run",
        "--durable",
        "--json",
        "-c",
        &format!("setsid {sleep} & echo up"),
    ]);
    let id = started["id"].as_str().unwrap();
    let ended = stage.run(["wait", id, "--json"]).expect_code(0).json();
    assert_eq!(
        (&ended["task"]["state"], &ended["task"]["streamsHeldOpen"]),
        (&json!("exited"), &json!(true))
    );
    let left = wait_for_sleepers(&sleep, 1);
    // The task has ended: its id names nobody any more, and a stop reaches nobody.
    assert_eq!(stop(&stage, &[id])["state"], "exited");
    assert!(processes::is_alive(left[0]));
}

#[test]
fn who_ignores_the_first_signal_gets_the_last() {
    let stage = Stage::new();
    let sleep = sleep();
    for (grace, least) in [(None, 500), (Some("50ms"), 50)] {
        let started = stage.json([
            "run",
            "--durable",
            "--json",
            "-c",
            &format!("trap '' TERM; while :; do {sleep}; done"),
        ]);
        wait_for_sleepers(&sleep, 1);
        let begun = Instant::now();
        let id = started["id"].as_str().unwrap();
        let stopped = match grace {
            None => stop(&stage, &[id]),
            Some(grace) => stop(&stage, &["--grace", grace, id]),
        };
        assert!(
            begun.elapsed() >= Duration::from_millis(least),
            "killed within the grace"
        );
        assert_eq!(
            (&stopped["state"], &stopped["signal"], &stopped["exitCode"]),
            (&json!("killed"), &json!("SIGKILL"), &json!(137))
        );
        assert!(processes::running(&sleep).is_empty());
    }
}

#[test]
fn a_task_that_forks_without_end_is_stopped() {
    let stage = Stage::new();
    let hop = stage.dir().join("hop.sh");
    // Each generation starts the next in a session of its own and goes.
    std::fs::write(&hop, "setsid sh \"$0\" &\n").unwrap();
    let line = format!(
        "trap '' TERM; sh {hop} & sh {hop} & while :; do sleep 0.1 & done",
        hop = hop.display()
    );
    let started = stage.json(["run", "--durable", "--json", "-c", &line]);
    let id = started["id"].as_str().unwrap();
    eventually("it forks", || {
        (processes::with_variable("WEFT_TASK_ID", Path::new(id)).len() > 5).then_some(())
    });
    let stopped = stop(&stage, &["--grace", "20ms", id]);
    assert_eq!(
        (&stopped["state"], &stopped["survivors"]),
        (&json!("killed"), &json!([])),
        "{stopped}"
    );
    let left: Vec<_> = processes::with_variable("WEFT_TASK_ID", Path::new(id))
        .into_iter()
        .filter(|pid| processes::is_alive(*pid))
        .collect();
    assert_eq!(left, [0_u32; 0], "processes of it outlived the stop");
}

/// A task of `stage` below which another weft runs a task in a home of its own.
struct Nested {
    stage: Stage,
    home: PathBuf,
    sleep: String,
    outer: String,
    inner: String,
}

impl Nested {
    fn new() -> Self {
        let stage = Stage::new();
        let other = stage.dir().join("other");
        std::fs::create_dir(&other).unwrap();
        let (home, sleep) = (other.join(".weft"), sleep());
        let weft = weft_bin();
        let line = format!(
            "cd {} && {} --home {} run --durable --quiet -- {sleep}; sleep 100",
            other.display(),
            weft.display(),
            home.display()
        );
        let state = format!("WEFT_STATE_DIR={}", stage.state().display());
        let args = [
            "run",
            "--session",
            "A",
            "--background",
            "--env",
            &state,
            "--json",
            "-c",
            &line,
        ];
        let outer = stage.json(args)["id"].as_str().unwrap().to_owned();
        wait_for_sleepers(&sleep, 1);
        let inner = eventually("the inner run printed its id", || {
            let text = stage.run(["logs", &outer]).stdout;
            text.lines()
                .find(|line| line.starts_with("t-"))
                .map(|line| line.trim().to_owned())
        });
        Nested {
            stage,
            home,
            sleep,
            outer,
            inner,
        }
    }

    fn inner(&self, args: &[&str]) -> Value {
        let mut all = vec!["--home", self.home.to_str().unwrap(), "--json"];
        all.extend(args);
        self.stage.json(all)
    }

    fn stop_outer(&self) {
        let stopped = stop(&self.stage, &["--session", "A", &self.outer]);
        assert_eq!(
            (&stopped["state"], &stopped["survivors"]),
            (&json!("killed"), &json!([])),
            "{stopped}"
        );
    }

    /// The inner task is whole, and is stopped by its own weft alone.
    fn assert_inner_lives(&self) {
        assert_eq!(
            processes::running(&self.sleep).len(),
            1,
            "the inner task was ended"
        );
        assert_eq!(
            self.inner(&["get", &self.inner])["task"]["state"],
            "running"
        );
        assert_eq!(
            self.inner(&["stop", &self.inner])["task"]["state"],
            "killed"
        );
        assert!(processes::running(&self.sleep).is_empty());
    }
}

#[test]
fn stop_ends_where_another_weft_begins() {
    let nested = Nested::new();
    let node = nested.inner(&["node", "status"])["pid"].clone();
    nested.stop_outer();
    assert_eq!(
        nested.inner(&["node", "status"])["pid"],
        node,
        "the inner node was ended"
    );
    nested.assert_inner_lives();
}

#[test]
fn stop_spares_the_shims_of_another_weft_whose_node_was_started_anew() {
    let nested = Nested::new();
    let node = nested.inner(&["node", "status"])["pid"].as_u64().unwrap();
    processes::kill(node as u32);
    eventually("the inner node is gone", || {
        (!processes::is_alive(node as u32)).then_some(())
    });
    let _ = nested.inner(&["ps"]);
    assert_ne!(nested.inner(&["node", "status"])["pid"], node);
    nested.stop_outer();
    nested.assert_inner_lives();
}

/// `unshare` into a new pid namespace; none where this user may not.
fn in_pid_namespace() -> Option<Command> {
    for extra in [&[][..], &["--user", "--map-root-user"]] {
        let mut command = Command::new("unshare");
        command
            .args(extra)
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        let works = command
            .arg("true")
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if works {
            let mut command = Command::new("unshare");
            command
                .args(extra)
                .args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
            return Some(command);
        }
    }
    eprintln!("skipped: no pid namespaces here");
    None
}

/// Starts a task, kills the node, its shim and its process, and gives their numbers to strangers.
const RECYCLE: &str = r#"
set -e
field() { sed "s/.*\"$1\":\([0-9]*\).*/\1/" "$WEFT_HOME/tasks/$id/started"; }
recycle() { # number, sleep: starts the sleep under that number
  while kill -0 "$1" 2>/dev/null; do wait; sleep 0.01; done
  for try in 1 2 3 4 5 6 7 8 9; do
    echo $(($1 - 1)) > /proc/sys/kernel/ns_last_pid; sleep "$2" & stranger=$!
    [ "$stranger" != "$1" ] || return 0
    kill -9 "$stranger"
  done
  echo "cannot recycle $1" >&2; return 1
}
$WEFT node --idle never 2>/dev/null & node=$!
until $WEFT node status >/dev/null 2>&1; do sleep 0.02; done
id=$($WEFT run --durable --quiet --notify ends -- sleep 100)
main=$(field pid); shim=$(field shim)
kill -9 $node $shim $main
set +e
recycle $main 201 && a=$stranger; recycle $shim 202 && b=$stranger; recycle $node 203 && c=$stranger
echo "{\"numbers\":[$main,$shim,$node],\"strangers\":[$a,$b,$c]}"
$WEFT node --idle never 2>/dev/null &
until $WEFT node status >/dev/null 2>&1; do sleep 0.02; done
$WEFT stop $id --json; echo "{\"stop\":$?}"
$WEFT ps --all --json
$WEFT get $id --json
kill -0 $a && kill -0 $b && kill -0 $c && echo '{"strangers":"live"}'
"#;

#[test]
fn a_number_that_is_another_s_by_now_is_never_signalled() {
    let Some(mut command) = in_pid_namespace() else {
        return;
    };
    let stage = Stage::new();
    stage.environment(&mut command);
    let out = finish(
        command
            .env("WEFT_HOME", stage.home())
            .env("WEFT", weft_bin())
            .args(["bash", "-c", RECYCLE]),
    );
    let said: Vec<Value> = out
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{out:?}")))
        .collect();
    let [numbers, stopped, stop, list, got, strangers] = said.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(
        numbers["numbers"], numbers["strangers"],
        "the numbers were not given out anew"
    );
    assert_eq!(
        (&stopped["task"]["state"], &stopped["task"]["reason"]),
        (&json!("lost"), &json!("shim-gone"))
    );
    assert_eq!(stop["stop"], 0);
    assert_eq!(list["tasks"][0]["state"], "lost");
    assert_eq!(
        (&got["task"]["state"], &got["task"]["exitCode"]),
        (&json!("lost"), &Value::Null)
    );
    assert_eq!(strangers["strangers"], "live");
}

#[test]
fn as_process_1_the_node_reaps_every_orphan() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(mut command) = in_pid_namespace() else {
            return;
        };
        let stage = Stage::new();
        stage.environment(&mut command);
        command
            .env("WEFT_HOME", stage.home())
            .arg(weft_bin())
            .args(["node", "--idle", "never"]);
        let mut unshare = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("the node answers", || stage.answers().then_some(()));
        let node = processes::all()
            .into_iter()
            .find(|pid| processes::parent(*pid) == Some(unshare.id()))
            .unwrap();
        assert_eq!(stage.call("node.status", json!({}))["pid"], 1);
        let stage = &stage;
        let codes: Vec<i32> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..10)
                .map(|_| {
                    scope.spawn(|| {
                        [0; 5].map(|_| {
                            stage
                                .run(["run", "-c", "(setsid sh -c 'sleep 0.3' &); exit 7"])
                                .code
                        })
                    })
                })
                .collect();
            runs.into_iter()
                .flat_map(|run| run.join().unwrap())
                .collect()
        });
        assert_eq!(codes, [7; 50]);
        let orphans = || {
            processes::all()
                .into_iter()
                .filter(|pid| processes::parent(*pid) == Some(node))
                .collect::<Vec<_>>()
        };
        eventually("nothing is left below the node", || {
            orphans().is_empty().then_some(())
        });
        processes::signal(node, signal);
        let status = eventually("the node ends", || unshare.try_wait().unwrap());
        let log = read_all(unshare.stderr.take().unwrap());
        assert!(
            status.success() && log.contains("the node is ending"),
            "{status}: {log}"
        );
    }
}

/// What a process has open: number and target.
fn descriptors(pid: u32) -> Vec<(u32, String)> {
    let mut found: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                target.to_string_lossy().into_owned(),
            ))
        })
        .collect();
    found.sort();
    found
}

fn numbers(pid: u32) -> Vec<u32> {
    descriptors(pid)
        .into_iter()
        .map(|(number, _)| number)
        .collect()
}

fn targets(pid: u32) -> BTreeSet<String> {
    descriptors(pid)
        .into_iter()
        .map(|(_, target)| target)
        .collect()
}

#[test]
fn a_task_holds_nothing_of_its_node() {
    let stage = Stage::new();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let listen = format!("127.0.0.1:{port}");
    let node = stage.node(&["--listen", &listen]);
    let client = stage.client();
    let (one, two, handler) = (sleep(), sleep(), sleep());
    let words: Vec<&str> = handler.split(' ').collect();
    client
        .call(
            "residents.create",
            json!({"name": "r", "topics": ["t"], "handler": {"exec": {"argv": words}}}),
        )
        .ok("a resident");
    client
        .call("mesh.publish", json!({"topic": "t"}))
        .ok("a publish");
    // Started at the same instant, so that the one's pipes are open while the other is born.
    let ids: Vec<String> = std::thread::scope(|scope| {
        let starts = [&one, &two].map(|sleep| {
            let client = client.clone();
            scope.spawn(move || start(&client, json!({"line": format!("exec {sleep}"), "lease": "durable", "streams": "split"})))
        });
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect()
    });
    let mains = [&one, &two, &handler].map(|sleep| wait_for_sleepers(sleep, 1)[0]);
    for main in mains {
        assert_eq!(numbers(main), [0, 1, 2], "{:?}", descriptors(main));
    }
    let shims = mains.map(|main| processes::parent(main).unwrap());
    assert_eq!(shim(&client, &ids[0]), Some(shims[0]));
    let ours: BTreeSet<String> = targets(node.pid())
        .into_iter()
        .filter(|target| !target.starts_with("/dev/") && !target.starts_with("anon_inode"))
        .collect();
    for shim in shims {
        let shared: Vec<_> = targets(shim).intersection(&ours).cloned().collect();
        assert_eq!(
            shared,
            [""; 0],
            "the shim holds what is the node's: {:?}",
            descriptors(shim)
        );
        assert!(
            targets(shim)
                .iter()
                .all(|target| !target.contains("weft.db") && !target.contains("node.")),
            "{:?}",
            descriptors(shim)
        );
    }
    let pipes = |pids: [u32; 2]| -> BTreeSet<String> {
        pids.into_iter()
            .flat_map(targets)
            .filter(|target| target.starts_with("pipe:"))
            .collect()
    };
    let shared: Vec<_> = pipes([mains[0], shims[0]])
        .intersection(&pipes([mains[1], shims[1]]))
        .cloned()
        .collect();
    assert_eq!(shared, [""; 0], "the tasks see each other's pipes");

    node.kill();
    let again = stage.node(&["--listen", &listen]);
    assert_eq!(again.url(), format!("http://{listen}"));
    for id in &ids {
        assert_eq!(record(&client, id)["state"], "running");
        client.call("tasks.stop", json!({"id": id})).ok("a stop");
        assert_eq!(ended(&Client::unix(stage.home()), id)["state"], "killed");
    }
}
