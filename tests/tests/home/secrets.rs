//! What a home and its processes never show.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use weft_tests::stage::{finish, weft_bin};
use weft_tests::{Client, Stage, eventually, processes, tasks};

/// How every grant begins: the base64url of its header up to the key's id.
const GRANT: &[u8] = b"eyJhbGciOiJFZERTQSIs";
const SECRET: &str = "hush-4711-hush";

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// All files and folders below a folder, itself included.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            all.extend(all_below(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

#[test]
fn no_token_and_no_variable_shows_while_a_task_runs() {
    let stage = Stage::new();
    let node = stage.node(&["--listen", "127.0.0.1:0"]);
    let client = Client::unix(stage.home());
    let token = stage.token(&["admin"]);
    let mut run = stage.weft([
        "--json",
        "run",
        "--durable",
        "--notify",
        "ends",
        "-e",
        &format!("GIVEN={SECRET}"),
        "--",
        "sleep",
        "600",
    ]);
    let made = finish(run.env("INHERITED", SECRET)).expect_code(0).json();
    let id = made["id"].as_str().unwrap();
    let bad = Client::tcp(node.url())
        .bearer(&format!("{token}x"))
        .get("/v1/tasks");
    assert_eq!(bad.status, 401);
    let pid = u32::try_from(made["pid"].as_u64().unwrap()).unwrap();
    let shim = tasks::shim(&client, id).unwrap();

    for process in stage.processes().into_iter().chain([shim]) {
        let cmdline = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        assert!(
            !holds(&cmdline, GRANT) && !holds(&cmdline, SECRET.as_bytes()),
            "{process}: {}",
            String::from_utf8_lossy(&cmdline)
        );
        let environ = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        assert!(
            !holds(&environ, GRANT),
            "a token in the environment of {process}"
        );
        // The task alone has what it was given.
        assert_eq!(
            holds(&environ, SECRET.as_bytes()),
            process == pid,
            "{process}: {}",
            String::from_utf8_lossy(&environ)
        );
    }
    for file in all_below(stage.dir()).iter().filter(|path| path.is_file()) {
        let bytes = std::fs::read(file).unwrap_or_default();
        assert!(!holds(&bytes, GRANT), "a token in {}", file.display());
        assert!(
            !holds(&bytes, SECRET.as_bytes()),
            "a variable's value in {}",
            file.display()
        );
    }
    let spec =
        std::fs::read_to_string(stage.home().join("tasks").join(id).join("spec.json")).unwrap();
    assert!(
        spec.contains("GIVEN") && spec.contains("INHERITED"),
        "{spec}"
    );
    for words in [&["get", id][..], &["ps", "--all"], &["mesh", "grants"]] {
        let shown = stage.run(["--json"].iter().chain(words)).stdout;
        assert!(
            !holds(shown.as_bytes(), GRANT) && !shown.contains(SECRET),
            "{words:?}: {shown}"
        );
    }
    let _ = stage.run(["stop", id]).expect_code(0);
    let event = eventually("the end is announced", || stage.events(&["ends"]).pop());
    assert!(!event.to_string().contains("eyJ"), "{event}");
    let log = node.terminate().1;
    assert!(
        !holds(log.as_bytes(), GRANT) && !log.contains(SECRET),
        "{log}"
    );
    assert!(!processes::is_alive(pid));
}

#[test]
fn keys_lie_outside_of_the_project_and_nothing_is_open_to_others() {
    let stage = Stage::new();
    let project = stage.dir().join("project");
    std::fs::create_dir(&project).unwrap();
    // A careless umask must not matter.
    let run = |line: &str| {
        let mut shell = std::process::Command::new("/bin/sh");
        stage.environment(&mut shell);
        let weft = weft_bin();
        finish(
            shell
                .args(["-c", &format!("umask 0; exec {} {line}", weft.display())])
                .current_dir(&project),
        )
        .expect_code(0)
    };
    run("run --durable --notify ends -c 'echo out; sleep 600'");
    run("mesh publish t --text hello");
    run("residents create r --topic t -- true");
    run("run -- true");
    let home = project.join(".weft");
    eventually("the resident ran", || {
        let log = Client::unix(&home)
            .call("residents.log", json!({"name": "r"}))
            .ok("its log");
        let _ = Client::unix(&home).call("mesh.publish", json!({"topic": "t"}));
        (!log["entries"].as_array()?.is_empty()).then_some(())
    });
    for path in all_below(&home)
        .into_iter()
        .chain(all_below(&stage.state()))
    {
        let Ok(about) = path.symlink_metadata() else {
            continue;
        };
        if path.ends_with(".gitignore") || path == stage.state() {
            continue;
        }
        let mode = about.permissions().mode() & 0o7777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:04o}", path.display());
    }
    let keys: Vec<PathBuf> = all_below(stage.dir())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| it == "ed25519"))
        .collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(keys[0].starts_with(stage.state()), "{keys:?}");
    let key: serde_json::Value = serde_json::from_slice(&std::fs::read(&keys[0]).unwrap()).unwrap();
    let secret = key["d"].as_str().unwrap();
    for file in all_below(&home).iter().filter(|path| path.is_file()) {
        assert!(
            !holds(&std::fs::read(file).unwrap_or_default(), secret.as_bytes()),
            "the key in {}",
            file.display()
        );
    }
}

#[test]
fn a_state_folder_that_others_may_read_is_refused() {
    let stage = Stage::new();
    let _ = stage.run(["ps"]).expect_code(0);
    let _ = stage.run(["node", "stop"]).expect_code(0);
    let homes = stage.state().join("homes");
    std::fs::set_permissions(&homes, Permissions::from_mode(0o755)).unwrap();
    let output = stage.run(["ps"]).expect_code(1);
    assert!(output.stderr.contains("0755"), "{output:?}");
    std::fs::set_permissions(&homes, Permissions::from_mode(0o700)).unwrap();
    let keys = std::fs::read_dir(&homes)
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path()
        .join("keys");
    let key = std::fs::read_dir(&keys)
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path();
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let output = stage.run(["node", "--idle", "1s"]);
    assert!(
        output.code != 0 && output.stderr.contains("ed25519"),
        "{output:?}"
    );
}
