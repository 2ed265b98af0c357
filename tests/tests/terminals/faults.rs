//! What dies, stalls or floods in the middle of it.

use serde_json::json;
use weft_tests::tasks::record;
use weft_tests::{Stage, eventually};

use super::person::{Person, assert_modes_restored};
use super::{on_terminal, output, wait_for};

#[test]
fn a_node_s_death_disturbs_no_attachment_and_none_is_needed_for_one() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let id = on_terminal(
        &client,
        "echo ready; while read -r line; do echo \"got <$line>\"; done",
    );
    let mut person = Person::attaches(&stage, &id, (80, 24));
    person.sees("ready");
    node.kill();
    person.types(b"with the node dead\r");
    person.sees("got <with the node dead>");
    let mut by_id = Person::attaches(&stage, &id[..8], (80, 24));
    by_id.sees("got <with the node dead>");
    let socket = stage.home().join("tasks").join(&id).join("shim.sock");
    let mut by_socket =
        Person::attaches(&stage, &format!("--socket {}", socket.display()), (80, 24));
    by_socket.sees("got <with the node dead>");
    by_socket.types(b"by its socket\r");
    by_id.sees("got <by its socket>");
    for person in [&mut person, &mut by_id, &mut by_socket] {
        person.types(b"\x1d");
        person.sees("code=0");
        assert_modes_restored(&stage);
        std::fs::remove_file(stage.dir().join("modes.after")).unwrap();
    }
    assert!(!stage.answers(), "nobody started a node for it");
    assert_eq!(record(&stage.client(), &id)["state"], "running");
}

/// A node is killed again and again while a client writes numbered lines and repeats what was not answered: each arrives
/// exactly once, in order.
#[test]
fn a_write_that_meets_the_node_s_death_is_done_once_or_not_at_all() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let id = weft_tests::tasks::start(
        &stage.client(),
        json!({"argv": ["cat"], "lease": "durable", "io": "pipes"}),
    );
    let mut running = Some(node);
    for n in 0..60 {
        let killer = (n % 6 == 5).then(|| running.take().unwrap());
        let input =
            json!({"id": id, "text": format!("line {n}\n"), "requestId": format!("request-{n}")});
        let killing = killer.map(|node| {
            std::thread::spawn(move || {
                if n % 12 == 5 {
                    std::thread::yield_now();
                }
                node.kill()
            })
        });
        let is_killed = killing.is_some();
        eventually("the line is written", || {
            let answer = weft_tests::Client::unix(stage.home())
                .try_call("tasks.write", input.clone())
                .ok();
            if answer.as_ref().is_some_and(|answer| answer.status == 200) {
                return Some(());
            }
            if !stage.answers() && running.is_none() {
                running = Some(stage.node(&[]));
            }
            None
        });
        if let Some(killing) = killing {
            killing.join().unwrap();
        }
        if is_killed && running.is_none() {
            running = Some(stage.node(&[]));
        }
    }
    let client = stage.client();
    client
        .call("tasks.closeInput", json!({"id": id}))
        .ok("tasks.closeInput");
    weft_tests::tasks::ended(&client, &id);
    let expected: Vec<String> = (0..60).map(|n| format!("line {n}")).collect();
    let arrived = output(&client, &id, "stdout");
    assert_eq!(arrived.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_flood_on_a_terminal_that_takes_nothing_holds_up_nobody_else() {
    let stage = Stage::new();
    let client = stage.client();
    let id = on_terminal(
        &client,
        "stty -echo; echo ready; read go; yes flooded; true",
    );
    wait_for(&client, &id, "output", "ready");
    let stalled = Person::attaches(&stage, &id, (80, 24));
    stalled.sees("ready");
    let mut second = Person::attaches(&stage, &id, (80, 24));
    second.sees("ready");
    stalled.stalled(|| {
        second.types(b"go\r");
        second.sees("flooded");
        let grown = |from: u64| {
            eventually("the task writes on", || {
                let bytes = record(&client, &id)["outputBytes"].as_u64().unwrap();
                (bytes > from).then_some(bytes)
            })
        };
        // Far more than any pipe or terminal on the way could hold.
        let bytes = grown(4 << 20);
        grown(bytes + (4 << 20));
        second.types(b"\x03");
        second.sees("code=");
    });
    // The stalled one is shown the end as well, without having been sent all of it.
    stalled.sees("code=");
    let record = weft_tests::tasks::ended(&client, &id);
    assert_eq!(record["running"], false, "{record}");
}

#[test]
fn a_stalled_terminal_can_still_be_left() {
    let stage = Stage::new();
    let client = stage.client();
    let id = on_terminal(&client, "yes flooded");
    let mut person = Person::attaches(&stage, &id, (80, 24));
    person.sees("flooded");
    let weft = person.weft();
    person.types(b"\x1d");
    person.sees("code=0");
    eventually("it is gone", || {
        (!std::path::Path::new(&format!("/proc/{weft}/fd/0")).exists()).then_some(())
    });
    client
        .call("tasks.stop", json!({"id": id}))
        .ok("tasks.stop");
}
