//! Homes that are newer, damaged, foreign or gone: a clear word, and nothing overwritten.

use std::path::Path;

use serde_json::json;
use weft_tests::{Client, Stage, eventually, tasks};

use super::nodes;

/// A home with two events in its store and no node.
fn used_home() -> Stage {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    for n in 0..2 {
        client
            .call("mesh.publish", json!({"topic": "t", "data": n}))
            .ok("an event");
    }
    node.terminate();
    stage
}

/// A node does not start, says this word, and leaves the file as it is; a client says the same.
#[track_caller]
fn assert_refused(stage: &Stage, file: &Path, word: &str) {
    let before = std::fs::read(file).unwrap();
    for words in [
        &["node", "--idle", "1s"][..],
        &["ps"],
        &["mesh", "publish", "t"],
        &["run", "--durable", "--", "true"],
    ] {
        let output = stage.run(words);
        assert!(matches!(output.code, 1 | 125), "{words:?}: {output:?}");
        assert!(
            output.stderr.contains(word),
            "{words:?}, {word}: {output:?}"
        );
        assert!(!output.stderr.contains("panicked"), "{output:?}");
    }
    assert!(
        std::fs::read(file).unwrap() == before,
        "the file was changed"
    );
    assert_eq!(nodes(stage), Vec::<u32>::new());
}

#[test]
fn a_home_of_a_newer_format_is_left_alone() {
    let stage = used_home();
    let format = stage.home().join("format.json");
    for text in [r#"{"format":99,"home":"h-0","more":{}}"#, r#"{"format":2}"#] {
        std::fs::write(&format, text).unwrap();
        assert_refused(&stage, &format, "use a newer weft");
    }
    for (text, word) in [
        ("", "no JSON"),
        ("{}", "format"),
        (r#"{"format":1}"#, "home"),
        (r#"{"format":0,"home":"h-0"}"#, "format"),
        (r#"{"format":1,"home":"../../x"}"#, "home"),
    ] {
        std::fs::write(&format, text).unwrap();
        assert_refused(&stage, &format, word);
    }
}

#[test]
fn a_store_of_a_newer_format_is_left_alone() {
    let stage = used_home();
    let path = stage.home().join("weft.db");
    let store = rusqlite::Connection::open(&path).unwrap();
    store.pragma_update(None, "user_version", 99).unwrap();
    store
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(store);
    assert_refused(&stage, &path, "has format 99");
}

#[test]
fn a_damaged_store_is_named_and_kept() {
    let stage = used_home();
    let path = stage.home().join("weft.db");
    let good = std::fs::read(&path).unwrap();
    // With the log of the last commits still there the damage would be mended from it.
    for name in ["weft.db-wal", "weft.db-shm"] {
        let _ = std::fs::remove_file(stage.home().join(name));
    }
    let mut header = good.clone();
    header[..4096].fill(0x5a);
    let mut middle = good.clone();
    middle[4096..].fill(0x5a);
    let mut half = good.clone();
    half.truncate(good.len() / 2);
    for (what, bytes) in [
        ("header", header),
        ("pages", middle),
        ("half", half),
        ("text", b"this is no database at all\n".repeat(500)),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        assert_refused(&stage, &path, "is damaged");
        assert!(!what.is_empty());
    }
    // The good one back in its place works as it did.
    std::fs::write(&path, &good).unwrap();
    let _node = stage.node(&[]);
    assert_eq!(stage.events(&["t"]).len(), 2);
}

#[test]
fn a_database_of_something_else_is_left_alone() {
    let stage = used_home();
    let path = stage.home().join("weft.db");
    for name in ["weft.db", "weft.db-wal", "weft.db-shm"] {
        let _ = std::fs::remove_file(stage.home().join(name));
    }
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1);")
        .unwrap();
    drop(other);
    assert_refused(&stage, &path, "not a store of weft");
}

#[test]
fn damaged_keys_are_named_and_kept() {
    let stage = used_home();
    let homes = std::fs::read_dir(stage.state().join("homes")).unwrap();
    let folder = homes.flatten().next().unwrap().path().join("keys");
    let key = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path();
    std::fs::write(&key, "{}").unwrap();
    assert_refused(&stage, &key, key.file_name().unwrap().to_str().unwrap());
}

#[test]
fn a_home_that_goes_ends_its_node_with_a_word() {
    let remove = |home: &Path| std::fs::remove_dir_all(home).unwrap();
    let rename = |home: &Path| std::fs::rename(home, home.with_extension("old")).unwrap();
    let lose_lock = |home: &Path| std::fs::remove_file(home.join("node.lock")).unwrap();
    for change in [&remove as &dyn Fn(&Path), &rename, &lose_lock] {
        let stage = Stage::new();
        let node = stage.node(&[]);
        stage.call("mesh.publish", json!({"topic": "t"}));
        change(stage.home());
        let (code, log) = node.wait();
        assert!(log.contains("was removed or moved away"), "{code}: {log}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn a_home_that_goes_with_a_task_in_it_takes_no_other_home_along() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let id = tasks::start(
        &client,
        json!({"argv": ["sleep", "0.3"], "lease": "durable", "notify": {"topic": "t"}}),
    );
    assert_eq!(tasks::record(&client, &id)["running"], true);
    std::fs::remove_dir_all(stage.home()).unwrap();
    node.wait();
    eventually("its shim is gone", || {
        stage.processes().is_empty().then_some(())
    });
    // A new home at the same place begins empty.
    let list = stage.call("tasks.list", json!({"all": true}));
    assert_eq!(list["tasks"], json!([]));
    assert_eq!(stage.events(&["t"]).len(), 0);
}

#[test]
fn a_store_that_is_taken_away_under_its_node_takes_no_more_events() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    client
        .call("mesh.publish", json!({"topic": "t"}))
        .ok("an event");
    std::fs::rename(
        stage.home().join("weft.db"),
        stage.home().join("weft.db.old"),
    )
    .unwrap();
    // The look at the file is a little apart from the commits; from then on nothing is acknowledged.
    let answer = eventually("publishes are refused", || {
        Some(client.call("mesh.publish", json!({"topic": "t"})))
            .filter(|answer| answer.status != 200)
    });
    assert_eq!(
        (answer.status, answer.slug().as_str()),
        (500, "store-gone"),
        "{}",
        answer.text
    );
    assert_eq!(
        client.call("mesh.publish", json!({"topic": "t"})).slug(),
        "store-gone"
    );
}
