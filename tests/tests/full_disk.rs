//! A disk that fills up, by bytes and by files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use weft_tests::{Client, Output, Stage, eventually, processes, tasks};

/// A home on a small file system of its own, which goes before the stage does.
struct SmallDisk {
    stage: Stage,
    mount: PathBuf,
}

impl SmallDisk {
    /// `options` of tmpfs, as `size=8m`; nothing where mounts are not permitted.
    fn new(options: &str) -> Option<Self> {
        let stage = Stage::with_home("small/home");
        let mount = stage.dir().join("small");
        let made = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("{options},mode=0700"),
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
    assert_eq!(output.code, 125, "weft's own failure: {output:?}");
    let words = output.stderr.to_lowercase();
    assert!(words.contains("no space"), "{output:?}");
}

#[test]
fn heavy_a_full_disk_is_named_and_everything_works_when_it_is_not() {
    let Some(disk) = SmallDisk::new("size=8m") else {
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
    let check: String = rusqlite::Connection::open(stage.home().join("weft.db"))
        .unwrap()
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
    let Some(disk) = SmallDisk::new("size=8m") else {
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
    // Whoever waits for the end hears of it, though nobody can be told for good.
    let task = tasks::ended(&client, &id);
    assert_eq!(
        (&task["state"], &task["exitCode"]),
        (&json!("failed"), &json!(5))
    );
    assert_eq!(stage.run(["wait", &id]).code, 5);
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

#[test]
fn a_disk_without_files_left_is_no_failure_of_the_command() {
    // Room for a node's files and those of a few tasks; which file is the first that cannot be made differs.
    for inodes in [16, 18, 20, 22, 24] {
        let Some(disk) = SmallDisk::new(&format!("nr_inodes={inodes}")) else {
            return;
        };
        let stage = &disk.stage;
        let refused = (0..4)
            .flat_map(|_| {
                [
                    stage.run(["run", "-c", "exit 0"]),
                    stage.run(["run", "--durable", "-c", "exit 0"]),
                ]
            })
            .filter(|output| output.code != 0);
        let mut count = 0;
        for output in refused {
            assert_no_space(&output);
            count += 1;
        }
        assert!(count > 0, "{inodes} inodes were enough");
        let _ = stage.run(["node", "stop"]);
    }
}
