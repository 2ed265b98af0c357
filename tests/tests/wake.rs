//! A node that nobody started by hand: the shims of ended tasks wake one for the residents of a home, one and not more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use rustix::fs::inotify;
use serde_json::{Value, json};
use weft_tests::stage::finish;
use weft_tests::tasks::{completions, durable, events, shims};
use weft_tests::{Client, Stage, eventually, processes};

const TOPIC: &str = "jobs";

fn resident(client: &Client, ran: &std::path::Path) {
    let script = format!("cat > /dev/null; echo $WEFT_EVENT_ID >> {}", ran.display());
    let handler = json!({"exec": {"argv": ["sh", "-c", script]}});
    client
        .call(
            "residents.create",
            json!({"name": "r", "topics": [TOPIC], "handler": handler}),
        )
        .ok("a resident");
}

/// Watches how often a file's name is made anew in a folder.
struct Made {
    watch: std::os::fd::OwnedFd,
    name: &'static str,
}

impl Made {
    fn new(folder: &std::path::Path, name: &'static str) -> Self {
        let watch =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, folder, inotify::WatchFlags::CREATE).unwrap();
        Made { watch, name }
    }

    fn count(&self) -> usize {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.watch, &mut buffer);
        let mut count = 0;
        while let Ok(event) = reader.next() {
            count += usize::from(
                event
                    .file_name()
                    .is_some_and(|name| name.to_str() == Ok(self.name)),
            );
        }
        count
    }
}

#[test]
fn two_hundred_ends_at_once_wake_one_node() {
    const TASKS: usize = 200;
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let (ran, go) = (stage.dir().join("ran"), stage.dir().join("go"));
    resident(&client, &ran);
    rustix::fs::mkfifoat(rustix::fs::CWD, &go, rustix::fs::Mode::RWXU).unwrap();
    // Opening a fifo to read waits for its writer: all end in one instant.
    let ids: Vec<String> = (0..TASKS)
        .map(|_| durable(&client, &format!("exec < {}", go.display()), TOPIC))
        .collect();
    node.kill();
    // A node makes its socket once; so many are the nodes that came up.
    let sockets = Made::new(stage.home(), "node.sock");
    drop(std::fs::File::options().write(true).open(&go).unwrap());
    eventually("a node came up by itself", || stage.answers().then_some(()));
    let counts = eventually("every end is announced", || {
        let counts = completions(&events(&client, TOPIC));
        (counts.len() == TASKS).then_some(counts)
    });
    assert!(ids.iter().all(|id| counts[id] == 1), "{counts:?}");
    eventually("the shims are gone", || {
        let own = client.call("tasks.list", json!({"all": true})).ok("a list");
        own["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|task| task["session"] == "cli")
            .all(|task| task["running"] == false)
            .then_some(())
    });
    assert_eq!(sockets.count(), 1, "more than one node was started");
    // That is what it was woken for.
    eventually("the resident is at work", || ran.is_file().then_some(()));
    assert!(
        Client::unix(stage.home())
            .call("node.stop", json!({}))
            .status
            < 300
    );
}

#[test]
fn nobody_is_woken_where_no_resident_waits() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    resident(&client, &stage.dir().join("ran"));
    client
        .call("residents.pause", json!({"name": "r"}))
        .ok("a pause");
    let go = stage.dir().join("go");
    let id = durable(
        &client,
        &format!("while [ ! -e {} ]; do sleep 0.02; done", go.display()),
        TOPIC,
    );
    node.kill();
    let sockets = Made::new(stage.home(), "node.sock");
    std::fs::write(go, "").unwrap();
    let folder = stage.home().join("tasks").join(&id);
    eventually("the task is over and its shim gone", || {
        (folder.join("receipt.json").is_file() && shims(stage.home()).is_empty()).then_some(())
    });
    assert!(!stage.answers());
    assert_eq!(sockets.count(), 0);
    // The next node announces it, whoever starts it.
    let _node = stage.node(&[]);
    eventually("the end is announced", || {
        (completions(&events(&client, TOPIC)).get(&id) == Some(&1)).then_some(())
    });
}

/// What `node.start` says of starts that failed.
fn failures(stage: &Stage) -> Value {
    let text = std::fs::read(stage.home().join("node.start")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or(Value::Null)
}

#[test]
fn a_home_whose_node_cannot_start_is_not_tried_again_within_the_pause() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let ran = stage.dir().join("ran");
    resident(&client, &ran);
    let go = |number: usize| stage.dir().join(format!("go{number}"));
    let ids: Vec<String> = (0..4)
        .map(|number| {
            durable(
                &client,
                &format!(
                    "while [ ! -e {} ]; do sleep 0.02; done",
                    go(number).display()
                ),
                TOPIC,
            )
        })
        .collect();
    node.kill();
    // Settings that no node takes.
    let config = stage.home().join("config.toml");
    std::fs::write(&config, "no-such-setting = 1\n").unwrap();
    let receipt = |id: &str| stage.home().join("tasks").join(id).join("receipt.json");
    let is_over = |id: &str| {
        receipt(id).is_file()
            && processes::with_cwd_below(&stage.home().join("tasks").join(id)).is_empty()
    };
    std::fs::write(go(0), "").unwrap();
    eventually("the first shim tried, and is gone", || {
        is_over(&ids[0]).then_some(())
    });
    let first = failures(&stage);
    assert_eq!(first["failures"], 1, "{first}");
    for number in [1, 2] {
        std::fs::write(go(number), "").unwrap();
    }
    eventually("the next two are gone", || {
        (is_over(&ids[1]) && is_over(&ids[2])).then_some(())
    });
    // They ended within the second of the pause, or this machine was too slow to tell.
    let ended_at = ids[1..3].iter().map(|id| serde_json::from_slice::<Value>(&std::fs::read(receipt(id)).unwrap()).unwrap()["finishedAt"].as_u64().unwrap()).max().unwrap();
    if ended_at + 300 < first["at"].as_u64().unwrap() + 1_000 {
        assert_eq!(failures(&stage), first, "tried again within the pause");
    }
    let said = finish(&mut stage.weft(["ps"]));
    assert_eq!(said.code, 125, "{said:?}");
    assert!(said.stderr.contains("no-such-setting"), "{said:?}");

    // Once the pause is over and the reason gone, the next end wakes a node, which announces all.
    std::fs::remove_file(config).unwrap();
    let since = std::time::SystemTime::UNIX_EPOCH
        + Duration::from_millis(failures(&stage)["at"].as_u64().unwrap());
    eventually("the pause is over", || {
        since
            .elapsed()
            .is_ok_and(|since| since > Duration::from_millis(2_100))
            .then_some(())
    });
    std::fs::write(go(3), "").unwrap();
    eventually("a node came up by itself", || stage.answers().then_some(()));
    eventually("every end is announced", || {
        let counts = completions(&events(&client, TOPIC));
        ids.iter()
            .all(|id| counts.get(id) == Some(&1))
            .then_some(())
    });
    eventually("success is remembered", || {
        (failures(&stage)["failures"] == 0).then_some(())
    });
}
