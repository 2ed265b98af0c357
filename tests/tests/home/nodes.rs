//! The one node of a home: its start, its end, and the paths it lives at.

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use serde_json::json;
use weft_tests::{Client, Stage, eventually, processes, tasks};

use super::nodes;

#[test]
fn of_two_nodes_started_at_once_one_stays() {
    for _ in 0..3 {
        let stage = Stage::new();
        let children: Vec<_> = (0..3)
            .map(|_| {
                stage
                    .weft(["node", "--idle", "never"])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut ended = Vec::new();
        let mut children = children;
        eventually("two of three ended", || {
            children.retain_mut(|child| match child.try_wait().unwrap() {
                Some(status) => {
                    ended.push((
                        status.code(),
                        weft_tests::stage::read_all(child.stderr.take().unwrap()),
                    ));
                    false
                }
                None => true,
            });
            (ended.len() == 2).then_some(())
        });
        for (code, words) in &ended {
            assert_eq!(*code, Some(1), "{words}");
            assert!(
                words.contains("a node runs in") && words.contains("already"),
                "{words}"
            );
        }
        eventually("the third answers", || stage.answers().then_some(()));
        assert_eq!(nodes(&stage), [children[0].id()]);
    }
}

#[test]
fn many_clients_at_once_start_one_node() {
    let stage = Stage::new();
    let outputs: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..12)
            .map(|n| {
                let stage = &stage;
                scope.spawn(move || {
                    stage.run([
                        "--json",
                        "run",
                        "--durable",
                        "--label",
                        &n.to_string(),
                        "--",
                        "true",
                    ])
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for output in outputs {
        assert_eq!(output.code, 0, "{output:?}");
    }
    assert_eq!(nodes(&stage).len(), 1);
    let list = stage.call("tasks.list", json!({"all": true}));
    assert_eq!(list["tasks"].as_array().unwrap().len(), 12);
}

#[test]
fn a_node_that_was_started_for_a_client_is_silent_and_plain() {
    let stage = Stage::new();
    let mut command = stage.weft(["run", "--durable", "--", "true"]);
    command
        .env("CALLER_SECRET", "hush")
        .env("VIRTUAL_ENV", "/venv");
    let _ = weft_tests::stage::finish(&mut command).expect_code(0);
    let all = nodes(&stage);
    let [node] = all.as_slice() else {
        panic!("one node: {all:?}")
    };
    let environ =
        String::from_utf8(std::fs::read(format!("/proc/{node}/environ")).unwrap()).unwrap();
    assert!(
        !environ.contains("CALLER_SECRET") && !environ.contains("VIRTUAL_ENV"),
        "{environ}"
    );
    assert_eq!(
        std::fs::read_link(format!("/proc/{node}/cwd"))
            .unwrap()
            .to_str(),
        Some("/")
    );
    for number in 0..3 {
        assert_eq!(
            std::fs::read_link(format!("/proc/{node}/fd/{number}"))
                .unwrap()
                .to_str(),
            Some("/dev/null"),
            "{number}"
        );
    }
    // No port: local clients use the socket.
    let status = stage.call("node.status", json!({}));
    assert_eq!(status["http"], json!([]));
    assert_eq!(status["pid"], *node);
}

#[test]
fn what_lies_in_the_socket_s_place_is_no_hindrance() {
    let stage = Stage::new();
    let _ = stage.run(["capabilities"]).expect_code(0);
    let _ = stage.run(["node", "stop"]).expect_code(0);
    let socket = stage.home().join("node.sock");
    let _ = std::fs::remove_file(&socket);
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let _ = stage.run(["ps"]).expect_code(0);
    for pid in nodes(&stage) {
        processes::kill(pid);
    }
    eventually("it is dead", || (!stage.answers()).then_some(()));
    let _ = stage.run(["ps"]).expect_code(0);
    assert_eq!(nodes(&stage).len(), 1);
}

#[test]
fn homes_of_any_length_work_or_say_why_not() {
    std::thread::scope(|scope| {
        for wanted in [60, 90, 98, 107, 108, 120, 200] {
            scope.spawn(move || {
                let stage = at_length(wanted, "");
                let ran = stage.run(["run", "-c", "echo ok"]);
                assert_eq!(
                    (ran.code, ran.stdout.as_str()),
                    (0, "ok\n"),
                    "{wanted}: {ran:?}"
                );
                let made = stage.json(["--json", "run", "--background", "-c", "echo ok"]);
                let waited = stage.run(["wait", made["id"].as_str().unwrap()]);
                assert_eq!(waited.code, 0, "{wanted}: {waited:?}");
                let logs = stage.run(["logs", "--no-log-prefix", made["id"].as_str().unwrap()]);
                assert_eq!(logs.stdout, "ok\n", "{wanted}: {logs:?}");
                let long = stage.json([
                    "--json",
                    "run",
                    "--durable",
                    "--notify",
                    "ends",
                    "-c",
                    "sleep 600",
                ]);
                let stopped = stage.run(["stop", long["id"].as_str().unwrap()]);
                assert_eq!(stopped.code, 0, "{wanted}: {stopped:?}");
                eventually("the end is announced", || {
                    (stage.events(&["ends"]).len() == 1).then_some(())
                });
            });
        }
    });
}

#[test]
fn homes_whose_long_paths_begin_alike_are_two() {
    let one = at_length(150, "one");
    let two = Stage::new();
    // In the first one's folder, the same but for its last characters.
    let path = one.home().to_str().unwrap();
    let twin = format!("{}two", &path[..path.len() - 3]);
    let made = one.json(["--json", "run", "--durable", "-c", "sleep 600"]);
    let list = one
        .run(["--json", "--home", &twin, "ps", "--all"])
        .expect_code(0)
        .json();
    assert_eq!(list["tasks"], json!([]));
    let here = one.json(["--json", "ps", "--all"]);
    assert_eq!(here["tasks"][0]["id"], made["id"]);
    assert_eq!(
        one.run(["--home", &twin, "get", made["id"].as_str().unwrap()])
            .code,
        1
    );
    drop(two);
}

/// A stage whose home's path has this many bytes, and this end.
fn at_length(bytes: usize, end: &str) -> Stage {
    let base = Stage::new().dir().as_os_str().len() + 1;
    let mut left = bytes - base - end.len();
    let mut below = String::new();
    // No name may have more than 255 bytes.
    while left > 50 {
        below.push_str(&"d".repeat(40));
        below.push('/');
        left -= 41;
    }
    let stage = Stage::with_home(format!("{below}{}{end}", "h".repeat(left)));
    assert_eq!(stage.home().as_os_str().len(), bytes);
    stage
}

#[test]
fn a_node_with_nothing_to_do_ends_and_one_with_a_task_stays() {
    let stage = Stage::new();
    let quick = std::time::Instant::now();
    let node = stage.node(&["--idle", "1s"]);
    assert_eq!(node.wait().0, 0);
    assert!(quick.elapsed() >= std::time::Duration::from_secs(1));

    let node = stage.node(&["--idle", "1s"]);
    let client = Client::unix(stage.home());
    let id = tasks::durable(&client, "sleep 2.5; exit 7", "ends");
    let (code, log) = node.wait();
    assert_eq!(code, 0, "{log}");
    // It had stayed for the end and announced it: the store has the event while no node runs.
    let store = rusqlite::Connection::open(stage.home().join("weft.db")).unwrap();
    let count: u64 = store
        .query_row(
            "SELECT count(*) FROM events WHERE id = ?1",
            [format!("completion:{id}")],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(count, 1);
}

#[test]
fn a_node_that_listens_stays_for_a_grant_that_may_come() {
    let stage = Stage::new();
    let node = stage.node(&["--idle", "200ms", "--listen", "127.0.0.1:0"]);
    let client = Client::unix(stage.home());
    let grant = client
        .call("mesh.grant", json!({"topic": "t"}))
        .ok("a grant");
    let url = node.url().to_owned();
    // One that has nothing to stay for is gone after that grace; had this one been so as well, it would refuse the post.
    let idle = Stage::new();
    assert_eq!(idle.node(&["--idle", "1s"]).wait().0, 0);
    let posted = Client::tcp(&url)
        .bearer(grant["token"].as_str().unwrap())
        .post("/v1/topics/t/events", &json!({}));
    assert_eq!(posted.status, 200, "{}", posted.text);
    assert_eq!(node.wait().0, 0);
}

#[test]
fn a_signal_ends_the_node_in_order_and_no_task() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let stage = Stage::new();
        let node = stage.node(&[]);
        let client = Client::unix(stage.home());
        let id = tasks::start(
            &client,
            json!({"argv": ["sleep", "600"], "lease": "durable"}),
        );
        let pid = u32::try_from(tasks::record(&client, &id)["pid"].as_u64().unwrap()).unwrap();
        processes::signal(node.pid(), signal);
        let (code, log) = node.wait();
        assert_eq!(code, 0, "{log}");
        assert!(log.contains("the node is ending; tasks go on"), "{log}");
        assert!(processes::is_alive(pid));
        assert_eq!(nodes(&stage), Vec::<u32>::new());
        let task = tasks::record(&stage.client(), &id);
        assert_eq!(
            (&task["state"], &task["pid"]),
            (&json!("running"), &json!(pid))
        );
        let _ = stage.run(["stop", &id]).expect_code(0);
        assert!(!processes::is_alive(pid));
    }
}

#[test]
fn status_and_stop_say_what_is() {
    let stage = Stage::new();
    let _ = stage.run(["ps"]).expect_code(0);
    let status = stage.json(["--json", "node", "status"]);
    for field in [
        "pid",
        "node",
        "home",
        "socket",
        "http",
        "version",
        "mesh",
        "epoch",
        "durability",
        "startedAt",
    ] {
        assert!(!status[field].is_null(), "{field}: {status}");
    }
    assert_eq!(status["durability"], "fsync");
    let _ = stage.run(["node", "stop"]).expect_code(0);
    assert_eq!(nodes(&stage), Vec::<u32>::new());
    let none = stage.run(["node", "status"]).expect_code(1);
    assert!(none.stderr.contains("no node runs"), "{none:?}");
    let _ = stage.run(["node", "stop"]).expect_code(0);
    assert_eq!(
        nodes(&stage),
        Vec::<u32>::new(),
        "a question started a node"
    );
}

#[test]
fn settings_are_read_and_refused_by_name() {
    let stage = Stage::new();
    let _ = stage.run(["ps"]).expect_code(0);
    let _ = stage.run(["node", "stop"]).expect_code(0);
    let config = stage.home().join("config.toml");
    for (text, word) in [
        ("lisen = []\n", "lisen"),
        ("listen = [\"nowhere\"]\n", "listen"),
        ("idle = \"soon\"\n", "idle"),
        ("= 1\n", "config.toml"),
    ] {
        std::fs::write(&config, text).unwrap();
        let output = stage.run(["node", "--idle", "1s"]);
        assert_eq!(output.code, 1, "{text}: {output:?}");
        assert!(
            output.stderr.contains(word) && output.stderr.contains("config.toml"),
            "{text}: {output:?}"
        );
        let client = stage.run(["ps"]);
        assert!(
            client.code != 0 && client.stderr.contains(word),
            "{text}: {client:?}"
        );
    }
    std::fs::write(
        &config,
        "listen = [\"127.0.0.1:0\"]\n[environment]\nLANG = \"de_DE.UTF-8\"\n",
    )
    .unwrap();
    let node = stage.node(&[]);
    assert_eq!(Client::tcp(node.url()).get("/healthz").status, 200);
    let client = stage.client();
    let id = tasks::start(&client, json!({"line": "echo $LANG", "lease": "durable"}));
    tasks::ended(&client, &id);
    assert_eq!(
        client
            .call("tasks.read", json!({"id": id}))
            .ok("its output")["text"],
        "de_DE.UTF-8\n"
    );
}
