//! What stands on a task's terminal.

use serde_json::{Value, json};
use weft_tests::Stage;
use weft_tests::tasks::{ended, start};

use super::{on_terminal, screen_of, wait_for_row};

#[test]
fn a_full_screen_drawing_is_told_as_it_stands() {
    let stage = Stage::new();
    let client = stage.client();
    let line = r"printf 'shell line\n'; printf '\033]2;my title\007\033[?1049h\033[2J\033[5;10Hin the middle\033[?25l'; read key; printf '\033[?1049l\033[?25h'; read end";
    let id = on_terminal(&client, line);
    let screen = wait_for_row(&client, &id, "         in the middle");
    assert_eq!(screen["size"], json!([120, 40]));
    assert_eq!(screen["rows"].as_array().unwrap().len(), 40);
    assert_eq!(screen["rows"][4], "         in the middle");
    assert_eq!(
        screen["cursor"],
        json!({"row": 4, "col": 22, "visible": false})
    );
    assert_eq!(
        (&screen["title"], &screen["alternate"]),
        (&json!("my title"), &json!(true))
    );
    let shown = stage.run(["screen", &id]).expect_code(0).stdout;
    assert_eq!(shown, "\n\n\n\n         in the middle\n");

    client
        .call("tasks.write", json!({"id": id, "text": "\n"}))
        .ok("tasks.write");
    let screen = wait_for_row(&client, &id, "shell line");
    assert_eq!(screen["alternate"], false);
    client
        .call("tasks.write", json!({"id": id, "text": "\n"}))
        .ok("tasks.write");
    ended(&client, &id);
    assert_eq!(
        screen_of(&client, &id)["rows"][0],
        "shell line",
        "the screen outlives the task"
    );
}

#[test]
fn the_screen_survives_the_death_of_the_node() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = stage.client();
    let id = on_terminal(
        &client,
        r"printf '\033[2J\033[3;3Hbefore'; read key; printf '\033[4;3Hafter'; read end",
    );
    wait_for_row(&client, &id, "  before");
    client
        .call("tasks.resize", json!({"id": id, "size": [60, 20]}))
        .ok("tasks.resize");
    let before = screen_of(&client, &id);
    assert_eq!(before["size"], json!([60, 20]));
    node.kill();
    let client = stage.client();
    assert_eq!(screen_of(&client, &id), before);
    client
        .call("tasks.write", json!({"id": id, "text": "\n"}))
        .ok("tasks.write");
    let after = wait_for_row(&client, &id, "  after");
    assert_eq!(after["rows"][2], "  before");
}

#[test]
fn a_task_without_a_terminal_has_no_screen() {
    let stage = Stage::new();
    let client = stage.client();
    let id = start(&client, json!({"line": "true", "lease": "durable"}));
    let refused = client.call("tasks.screen", json!({"id": id}));
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(
        refused.body["detail"]
            .as_str()
            .unwrap()
            .contains("no terminal"),
        "{refused:?}"
    );
}

#[test]
fn output_that_means_harm_is_only_a_screen() {
    let stage = Stage::new();
    let client = stage.client();
    // An escape sequence that never ends, numbers that are too large, and noise.
    let line = r"printf '\033]2;'; head -c 3000000 /dev/zero | tr '\0' x; printf '\033[99999999999;9999999999H\033[65535@\033[65535L\033[3000000b'; head -c 200000 /dev/urandom; printf '\033c\033[2J\033[Hdone'";
    let id = on_terminal(&client, line);
    ended(&client, &id);
    let screen: Value = screen_of(&client, &id);
    assert_eq!(screen["rows"][0], "done", "{screen}");
    client.call("node.status", json!({})).ok("node.status");
}
