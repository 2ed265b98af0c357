//! The store under others' locks and on a disk that fills up.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_tests::{Client, Output, Stage, eventually, processes, tasks};

/// Another process's connection to the store file.
fn outside(stage: &Stage) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(stage.home().join("weft.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection
}

/// Holds the store's write lock for so long.
fn hold(stage: &Stage, how_long: Duration) {
    let store = outside(stage);
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::sleep(how_long);
    store.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn heavy_many_writers_never_meet_a_locked_store() {
    const CLIENTS: usize = 32;
    const ROUNDS: usize = 50;
    let stage = Stage::new();
    let client = stage.client();
    let longest = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            hold(&stage, Duration::from_secs(3));
            hold(&stage, Duration::from_secs(3));
        });
        let backup = scope.spawn(|| {
            let copy = stage.dir().join("backup.db");
            outside(&stage)
                .execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
                .unwrap();
            rusqlite::Connection::open(copy).unwrap()
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = client.clone().session(&format!("s{number}"));
                scope.spawn(move || {
                    let mut longest = Duration::ZERO;
                    for round in 0..ROUNDS {
                        let begin = Instant::now();
                        let event = json!({"topic": format!("t{number}"), "id": format!("e-{number}-{round}"), "data": round});
                        client.call("mesh.publish", event).ok("mesh.publish");
                        client.call("inbox.read", json!({})).ok("inbox.read");
                        client.call("inbox.ack", json!({"seq": 0})).ok("inbox.ack");
                        let read = client.call("mesh.read", json!({"topics": [format!("t{number}")], "limit": 1000})).ok("mesh.read");
                        assert_eq!(read["events"].as_array().unwrap().len(), round + 1, "what was acknowledged is there");
                        longest = longest.max(begin.elapsed());
                    }
                    longest
                })
            })
            .collect();
        let longest = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .max()
            .unwrap();
        holder.join().unwrap();
        let copy = backup.join().unwrap();
        let check: String = copy
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(check, "ok");
        longest
    });
    // Late, not lost: a call waits for the holder and goes on.
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    let (mut after, mut sequences) = (json!(0), Vec::new());
    loop {
        let page = client
            .call("mesh.read", json!({"after": after, "limit": 1000}))
            .ok("mesh.read");
        let events = page["events"].as_array().unwrap();
        if events.is_empty() {
            break;
        }
        sequences.extend(
            events
                .iter()
                .map(|event| event["sequence"].as_u64().unwrap()),
        );
        after = page["next"].clone();
    }
    assert_eq!(sequences.len(), CLIENTS * ROUNDS);
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn heavy_a_holder_that_stays_is_named_and_nothing_is_half_done() {
    let stage = Stage::new();
    let client = stage.client();
    let grant = client
        .call("mesh.grant", json!({"topic": "t"}))
        .ok("a grant");
    let store = outside(&stage);
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    let calls: Vec<Box<dyn Fn() -> weft_tests::Answer + Send + Sync>> = vec![
        Box::new(|| client.call("mesh.publish", json!({"topic": "t", "id": "held"}))),
        Box::new(|| {
            client
                .clone()
                .bearer(grant["token"].as_str().unwrap())
                .post("/v1/topics/t/events", &json!({"id": "posted"}))
        }),
        Box::new(|| client.call("tasks.run", json!({"argv": ["true"], "lease": "durable"}))),
        Box::new(|| client.call("inbox.ack", json!({"seq": 0}))),
    ];
    std::thread::scope(|scope| {
        let asks: Vec<_> = calls.iter().map(|call| scope.spawn(call)).collect();
        for ask in asks {
            let answer = ask.join().unwrap();
            assert_eq!(
                (answer.status, answer.slug().as_str()),
                (503, "store-busy"),
                "{}",
                answer.text
            );
            assert!(answer.header("retry-after").is_some());
        }
        // Reads are not held up.
        let begin = Instant::now();
        client.call("mesh.read", json!({})).ok("a read");
        assert!(begin.elapsed() < Duration::from_secs(5));
    });
    store.execute_batch("ROLLBACK").unwrap();
    client
        .call("mesh.publish", json!({"topic": "t", "id": "after"}))
        .ok("after the holder");
    let ids: Vec<Value> = stage
        .events(&["t"])
        .iter()
        .map(|event| event["id"].clone())
        .collect();
    assert_eq!(ids, ["after"]);
    assert_eq!(
        client
            .call("tasks.list", json!({"all": true}))
            .ok("tasks.list")["tasks"],
        json!([])
    );
    assert!(tasks::shims(stage.home()).is_empty());
    let posted = client
        .clone()
        .bearer(grant["token"].as_str().unwrap())
        .post("/v1/topics/t/events", &json!({"id": "posted"}));
    assert_eq!(posted.body["usesLeft"], 0, "{}", posted.text);
}

#[test]
fn acknowledged_events_survive_kills_amid_commits() {
    let stage = Stage::new();
    let mut node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let stop = AtomicBool::new(false);
    let (told, _node): (Vec<String>, _) = std::thread::scope(|scope| {
        let publishers: Vec<_> = (0..8)
            .map(|number| {
                let (client, stop) = (client.clone(), &stop);
                scope.spawn(move || {
                    let mut told = Vec::new();
                    let mut n = 0;
                    while !stop.load(Ordering::SeqCst) {
                        let id = format!("e-{number}-{n}");
                        n += 1;
                        let event = json!({"topic": "t", "id": id, "text": "x".repeat(200)});
                        if client
                            .try_call("mesh.publish", event)
                            .is_ok_and(|answer| answer.status == 200)
                        {
                            told.push(id);
                        }
                    }
                    told
                })
            })
            .collect();
        for _ in 0..5 {
            let newest = || client.try_get("/readyz").ok()?.body["newest"].as_u64();
            let before = eventually("the node is ready", newest);
            eventually("some more are there", || {
                newest().filter(|newest| *newest >= before + 100)
            });
            node.kill();
            node = stage.node(&[]);
        }
        stop.store(true, Ordering::SeqCst);
        let told = publishers.into_iter().flat_map(|one| one.join().unwrap());
        (told.collect(), node)
    });
    let stored: Vec<String> = tasks::events(&client, "t")
        .iter()
        .map(|event| event["id"].as_str().unwrap().to_owned())
        .collect();
    let unique: std::collections::HashSet<&String> = stored.iter().collect();
    assert_eq!(unique.len(), stored.len());
    let lost: Vec<&String> = told.iter().filter(|id| !unique.contains(id)).collect();
    assert!(
        lost.is_empty() && !told.is_empty(),
        "acknowledged and lost: {lost:?}"
    );
}

/// A home on a small file system of its own, which goes before the stage does.
struct SmallDisk {
    stage: Stage,
    mount: PathBuf,
}

impl SmallDisk {
    /// Nothing where mounts are not permitted.
    fn new(size: &str) -> Option<Self> {
        let stage = Stage::with_home("small/home");
        let mount = stage.dir().join("small");
        let made = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=0700"),
                "weft-test",
            ])
            .arg(&mount)
            .output();
        match made {
            Ok(output) if output.status.success() => Some(SmallDisk { stage, mount }),
            other => {
                eprintln!("skipped: no small file system can be mounted here: {other:?}");
                None
            }
        }
    }

    /// Fills what is left.
    fn fill(&self) -> PathBuf {
        let path = self.mount.join("filler");
        let mut block = 1 << 20;
        let mut file = std::fs::File::create(&path).unwrap();
        while block > 0 {
            if std::io::Write::write_all(&mut file, &vec![0; block]).is_err() {
                block /= 2;
            }
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        for pid in self
            .stage
            .processes()
            .into_iter()
            .chain(processes::with_cwd_below(&self.mount))
        {
            processes::kill(pid);
        }
        let _ = Command::new("umount").arg("-l").arg(&self.mount).output();
    }
}

#[track_caller]
fn assert_no_space(output: &Output) {
    assert!(output.code != 0, "{output:?}");
    let words = output.stderr.to_lowercase();
    assert!(words.contains("no space"), "{output:?}");
}

#[test]
fn heavy_a_full_disk_is_named_and_everything_works_when_it_is_not() {
    let Some(disk) = SmallDisk::new("8m") else {
        return;
    };
    let stage = &disk.stage;
    let mut node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let mut told: Vec<Value> = (0..5)
        .map(|n| {
            client
                .call("mesh.publish", json!({"topic": "t", "data": n}))
                .ok("an event")["id"]
                .clone()
        })
        .collect();
    let other = tasks::start(
        &client,
        json!({"argv": ["sleep", "600"], "lease": "durable"}),
    );

    let other_pid = u32::try_from(tasks::record(&client, &other)["pid"].as_u64().unwrap()).unwrap();

    // More output than the disk holds neither blocks nor ends the task, and what was dropped is counted.
    let id = tasks::start(
        &client,
        json!({"line": "head -c 20000000 /dev/zero | tr '\\0' x; exit 4", "lease": "durable", "session": "loud"}),
    );
    let task = tasks::unread_end(&client, &id);
    assert_eq!(
        (&task["state"], &task["exitCode"], &task["outputBytes"]),
        (&json!("failed"), &json!(4), &json!(20_000_000))
    );
    let (mut at, mut kept, mut omitted) = (0, 0, 0);
    loop {
        let page = client
            .call("tasks.read", json!({"id": id, "offset": at}))
            .ok("tasks.read");
        assert!(
            !page["text"].as_str().unwrap().contains('\0'),
            "a hole was read as bytes"
        );
        kept += page["bytes"].as_u64().unwrap();
        omitted += page["omittedBytes"].as_u64().unwrap();
        at = page["next"].as_u64().unwrap();
        if page["eof"] == true {
            break;
        }
    }
    assert_eq!(kept + omitted, 20_000_000);
    assert!(omitted > 10_000_000, "{omitted}");

    let filler = disk.fill();
    let refused = eventually("publishes are refused", || {
        let answer = client.call(
            "mesh.publish",
            json!({"topic": "t", "id": "full", "data": "x"}),
        );
        if answer.status == 200 {
            told.push(answer.body["id"].clone());
        }
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(
        (refused.status, refused.slug().as_str()),
        (507, "no-space"),
        "{}",
        refused.text
    );
    let batch: Vec<Value> = (0..20)
        .map(|n| json!({"topic": "t", "id": format!("batch-{n}"), "text": "x".repeat(10_000)}))
        .collect();
    assert_eq!(
        client
            .call("mesh.publishBatch", json!({"events": batch}))
            .slug(),
        "no-space"
    );
    assert_no_space(&stage.run(["mesh", "publish", "t", "--id", "by-command"]));
    assert_no_space(&stage.run(["run", "-c", "echo hi"]));
    assert_no_space(&stage.run(["run", "--durable", "-c", "echo hi"]));
    let _ = stage.run(["get", &other]).expect_code(0);
    assert_eq!(stage.events(&["t"]).len(), told.len());
    let stopped = stage.run(["--json", "stop", &other]);
    assert!(!stopped.stderr.contains("panicked"), "{stopped:?}");
    assert!(
        stopped.code == 0 || stopped.stderr.to_lowercase().contains("no space"),
        "{stopped:?}"
    );
    eventually("the other task's tree is gone", || {
        (!processes::is_alive(other_pid)).then_some(())
    });

    node.kill();
    // A node may refuse to start on a full disk, if it says why; it must not begin afresh.
    let full = stage.run(["ps", "--all"]);
    if full.code != 0 {
        assert_no_space(&full);
    }
    std::fs::remove_file(filler).unwrap();
    // The loud task's output took all but the floor, as it may; whoever frees space takes that.
    std::fs::remove_file(task["logPath"].as_str().unwrap()).unwrap();
    let _ = stage.run(["node", "stop"]);
    node = stage.node(&[]);
    let _ = client
        .call("mesh.publish", json!({"topic": "t", "id": "after"}))
        .ok("a publish with space");
    told.push(json!("after"));
    let ran = stage.run(["run", "-c", "echo hi"]).expect_code(0);
    assert_eq!(ran.stdout, "hi\n");
    let ids: Vec<Value> = stage
        .events(&["t"])
        .iter()
        .map(|event| event["id"].clone())
        .collect();
    assert_eq!(
        ids, told,
        "what was refused shows up, or what was acknowledged is missing"
    );
    eventually("the stopped task is known as such", || {
        (tasks::record(&client, &other)["state"] == "killed").then_some(())
    });
    node.terminate();
    let check: String = outside(stage)
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    assert!(is_on(&disk.mount, stage.home()));
}

/// Whether a path lies on the file system mounted at `mount`: that the test tried what it says.
fn is_on(mount: &Path, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().unwrap().dev() == mount.metadata().unwrap().dev()
        && mount.metadata().unwrap().dev() != mount.parent().unwrap().metadata().unwrap().dev()
}

#[test]
fn an_end_on_a_full_disk_is_announced_when_there_is_space() {
    let Some(disk) = SmallDisk::new("8m") else {
        return;
    };
    let stage = &disk.stage;
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let gate = stage.dir().join("gate");
    let id = tasks::durable(
        &client,
        &format!(
            "until [ -e {} ]; do sleep 0.02; done; exit 5",
            gate.display()
        ),
        "ends",
    );
    let filler = disk.fill();
    std::fs::write(&gate, "").unwrap();
    eventually("the task's process is gone", || {
        processes::running(gate.to_str().unwrap())
            .is_empty()
            .then_some(())
    });
    std::fs::remove_file(filler).unwrap();
    let event = eventually("the end is announced", || stage.events(&["ends"]).pop());
    assert_eq!(
        (&event["id"], &event["data"]["exitCode"]),
        (&json!(format!("completion:{id}")), &json!(5))
    );
    let task = tasks::unread_end(&client, &id);
    assert_eq!(
        (&task["state"], &task["exitCode"]),
        (&json!("failed"), &json!(5))
    );
    assert_eq!(tasks::inbox(&client, "cli").len(), 1);
}
