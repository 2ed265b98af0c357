//! A home that was merely found runs nothing until its user says that it is his.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use weft_tests::{Client, Stage, eventually};

use super::{is_root, nodes, weft_in};

const WORDS: &str = "this .weft was not made here by you; look at it, then `weft home trust";

/// A project with a home in it that has a resident with an event to handle, and no node.
fn project(stage: &Stage, name: &str) -> PathBuf {
    let project = stage.dir().join(name);
    std::fs::create_dir(&project).unwrap();
    let _ = weft_in(stage, &project, &["capabilities"]).expect_code(0);
    let home = project.join(".weft");
    let client = Client::unix(&home);
    let resident = json!({"name": "r", "topics": ["t"], "handler": {"exec": {"argv": ["/bin/sh", "-c", "touch \"$WEFT_HOME/../pwned\""]}}});
    client.call("residents.create", resident).ok("a resident");
    client
        .call("residents.pause", json!({"name": "r"}))
        .ok("its pause");
    client
        .call("mesh.publish", json!({"topic": "t"}))
        .ok("an event");
    let _ = weft_in(stage, &project, &["node", "stop"]).expect_code(0);
    // As the one who packs the archive would: enabled, with work to do.
    let store = rusqlite::Connection::open(home.join("weft.db")).unwrap();
    store
        .execute("UPDATE residents SET enabled = 1", [])
        .unwrap();
    project
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Every verb that would use the home is refused and starts nothing.
#[track_caller]
fn assert_refused(stage: &Stage, project: &Path, words: &str) {
    let below = project.join("deep/er");
    std::fs::create_dir_all(&below).unwrap();
    let verbs: [&[&str]; 6] = [
        &["ps"],
        &["capabilities"],
        &["run", "--durable", "--", "touch", "pwned"],
        &["run", "--", "touch", "pwned"],
        &["node", "--idle", "1s"],
        &["mesh", "publish", "t"],
    ];
    for verb in verbs {
        for folder in [project, &below] {
            let output = weft_in(stage, folder, verb);
            // What should have run did not: that is a failure of weft's own, as `run` tells it.
            let code = if verb[0] == "run" { 125 } else { 1 };
            assert_eq!(output.code, code, "{verb:?}: {output:?}");
            assert!(output.stderr.contains(words), "{verb:?}: {output:?}");
            assert_eq!(output.stdout, "", "{verb:?}");
        }
    }
    let refused = weft_in(stage, project, &["--json", "ps"]);
    let problem: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(problem["type"], "urn:weft:problem:home");
    assert_eq!(nodes(stage), Vec::<u32>::new());
    assert!(!project.join("pwned").exists() && !below.join("pwned").exists());
}

#[test]
fn an_unpacked_home_runs_nothing_until_it_is_trusted() {
    let stage = Stage::new();
    let original = project(&stage, "original");
    let unpacked = stage.dir().join("unpacked");
    copy(&original, &unpacked);
    assert_refused(&stage, &unpacked, WORDS);
    // The command that it names makes it usable, with an id and keys of its own.
    let path = unpacked.join(".weft");
    let id = |home: &Path| -> Value {
        serde_json::from_slice::<Value>(&std::fs::read(home.join("format.json")).unwrap()).unwrap()
            ["home"]
            .clone()
    };
    assert_eq!(id(&path), id(&original.join(".weft")));
    let trusted = weft_in(
        &stage,
        stage.dir(),
        &["--json", "home", "trust", path.to_str().unwrap()],
    )
    .expect_code(0)
    .json();
    assert_eq!(trusted["alreadyTrusted"], false);
    assert_ne!(id(&path), id(&original.join(".weft")));
    let again = weft_in(
        &stage,
        stage.dir(),
        &["--json", "home", "trust", unpacked.to_str().unwrap()],
    )
    .expect_code(0)
    .json();
    assert_eq!(
        (&again["alreadyTrusted"], &again["id"]),
        (&json!(true), &trusted["id"])
    );
    let grant = weft_in(&stage, &original, &["mesh", "grant", "t"])
        .expect_code(0)
        .stdout;
    let answer = {
        let _ = weft_in(&stage, &unpacked, &["capabilities"]).expect_code(0);
        Client::unix(&path)
            .bearer(grant.trim())
            .post("/v1/topics/t/events", &json!({}))
    };
    assert_eq!(answer.status, 401, "{}", answer.text);
    // From now on what it holds is at work.
    eventually("the resident ran", || {
        unpacked.join("pwned").exists().then_some(())
    });
}

#[test]
fn an_archive_of_a_home_that_was_never_here_is_refused() {
    let (elsewhere, stage) = (Stage::new(), Stage::new());
    let original = project(&elsewhere, "original");
    let unpacked = stage.dir().join("unpacked");
    copy(&original, &unpacked);
    assert_refused(&stage, &unpacked, WORDS);
    // A person who names it has decided.
    let named = unpacked.join(".weft");
    let _ = stage
        .run(["--home", named.to_str().unwrap(), "ps"])
        .expect_code(0);
}

#[test]
fn a_home_behind_a_link_is_refused() {
    let stage = Stage::new();
    let original = project(&stage, "original");
    let linked = stage.dir().join("linked");
    std::fs::create_dir(&linked).unwrap();
    symlink(original.join(".weft"), linked.join(".weft")).unwrap();
    assert_refused(&stage, &linked, WORDS);
    let trust = weft_in(&stage, &linked, &["home", "trust", "."]);
    assert_eq!(trust.code, 1, "{trust:?}");
    assert!(trust.stderr.contains("symbolic link"), "{trust:?}");
}

#[test]
fn a_home_that_others_may_enter_is_refused() {
    let stage = Stage::new();
    let open = project(&stage, "open");
    let home = open.join(".weft");
    for mode in [0o755, 0o750, 0o701, 0o777] {
        std::fs::set_permissions(&home, Permissions::from_mode(mode)).unwrap();
        assert_refused(&stage, &open, WORDS);
        let named = stage
            .run(["--home", home.to_str().unwrap(), "ps"])
            .expect_code(1);
        assert!(
            named.stderr.contains(&format!("has mode {mode:04o}")),
            "{named:?}"
        );
    }
    let _ = weft_in(&stage, &open, &["home", "trust", "."]).expect_code(0);
    assert_eq!(home.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let _ = weft_in(&stage, &open, &["ps"]).expect_code(0);
}

#[test]
fn a_home_of_another_user_is_refused() {
    if !is_root() {
        eprintln!("skipped: only root can give a folder to another user");
        return;
    }
    let stage = Stage::new();
    let foreign = project(&stage, "foreign");
    let status = Command::new("chown")
        .args(["-R", "65534:65534"])
        .arg(foreign.join(".weft"))
        .status()
        .unwrap();
    assert!(status.success());
    assert_refused(&stage, &foreign, WORDS);
    let path = foreign.join(".weft");
    for words in [
        &["--home", path.to_str().unwrap(), "ps"][..],
        &["home", "trust", path.to_str().unwrap()],
    ] {
        let output = stage.run(words);
        assert_eq!(output.code, 1, "{output:?}");
        assert!(
            output.stderr.contains("belongs to another user"),
            "{output:?}"
        );
    }
    assert_eq!(nodes(&stage), Vec::<u32>::new());
}

#[test]
fn a_home_that_was_moved_goes_on_and_a_copy_in_its_place_does_not() {
    let stage = Stage::new();
    let old = project(&stage, "old");
    let new = stage.dir().join("new");
    std::fs::create_dir(&new).unwrap();
    std::fs::rename(old.join(".weft"), new.join(".weft")).unwrap();
    // The folder is the same one, so that a renamed project goes on.
    let _ = weft_in(&stage, &new, &["ps"]).expect_code(0);
    let _ = weft_in(&stage, &new, &["node", "stop"]).expect_code(0);
    copy(&new.join(".weft"), &old.join(".weft"));
    let output = weft_in(&stage, &old, &["ps"]).expect_code(1);
    assert!(output.stderr.contains(WORDS), "{output:?}");
    let _ = weft_in(&stage, &new, &["ps"]).expect_code(0);
}

#[test]
fn which_home_is_used_follows_the_rules() {
    let stage = Stage::new();
    let outer = stage.dir().join("outer");
    let inner = outer.join("a/b");
    std::fs::create_dir_all(&inner).unwrap();
    let status = |folder: &Path, words: &[&str]| {
        weft_in(
            &stage,
            folder,
            &[words, &["--json", "call", "node.status"]].concat(),
        )
        .expect_code(0)
        .json()["home"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let outer_home = outer.join(".weft");
    assert_eq!(status(&outer, &[]), outer_home.to_str().unwrap());
    assert_eq!(
        status(&inner, &[]),
        outer_home.to_str().unwrap(),
        "the nearest above"
    );
    assert_eq!(
        std::fs::read_to_string(outer_home.join(".gitignore")).unwrap(),
        "*\n"
    );
    assert_eq!(
        outer_home.metadata().unwrap().permissions().mode() & 0o7777,
        0o700
    );
    let named = stage.dir().join("x/named");
    assert_eq!(
        status(&inner, &["--home", named.to_str().unwrap()]),
        named.to_str().unwrap()
    );
    assert!(!named.join(".gitignore").exists());
    // The search does not go above the user's own folder.
    let mut command = stage.weft(["--json", "call", "node.status"]);
    command
        .env_remove("WEFT_HOME")
        .env("HOME", outer.join("a"))
        .current_dir(&inner);
    let found = weft_tests::stage::finish(&mut command)
        .expect_code(0)
        .json();
    assert_eq!(found["home"], inner.join(".weft").to_str().unwrap());
    // A folder that is no home is left as it is.
    let other = stage.dir().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("mine"), "").unwrap();
    let output = stage
        .run(["--home", other.to_str().unwrap(), "ps"])
        .expect_code(1);
    assert!(
        output.stderr.contains("exists and is no home"),
        "{output:?}"
    );
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    let file = stage.dir().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(stage.run(["--home", file.to_str().unwrap(), "ps"]).code, 1);
    assert_eq!(
        stage.run(["home", "trust", other.to_str().unwrap()]).code,
        1
    );
    assert_eq!(stage.run(["home", "trust", "/nonexistent/home"]).code, 1);
}

#[test]
fn tasks_are_kept_in_no_folder_that_a_link_names() {
    let stage = Stage::new();
    let elsewhere = stage.dir().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let _ = stage.run(["run", "-c", "true"]).expect_code(0);
    let _ = stage.run(["node", "stop"]).expect_code(0);
    let tasks = stage.home().join("tasks");
    std::fs::remove_dir_all(&tasks).unwrap();
    symlink(&elsewhere, &tasks).unwrap();
    let refused = stage.run(["run", "-c", "true"]).expect_code(125);
    assert!(refused.stderr.contains("symbolic link"), "{refused:?}");
    assert_eq!(elsewhere.read_dir().unwrap().count(), 0);
}
