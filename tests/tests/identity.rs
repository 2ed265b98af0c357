//! Numbers and descriptors: a recycled pid is never signalled, process 1 reaps, and a task holds nothing that is its node's.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use weft_tests::stage::{finish, read_all, weft_bin};
use weft_tests::tasks::{ended, record, shim, sleepers, start, unique_sleep};
use weft_tests::{Client, Stage, eventually, processes};

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
  while kill -0 "$1" 2>/dev/null; do sleep 0.01; done
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
    let (one, two, handler) = (unique_sleep(), unique_sleep(), unique_sleep());
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
    let mains = [&one, &two, &handler].map(|sleep| sleepers(sleep, 1)[0]);
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
