use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use super::*;

/// A home and a program that stands for `weft`.
struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new(script: &str) -> Self {
        let stage = Stage {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(stage.home().root).unwrap();
        let program = stage.dir.path().join("weft");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        stage
    }

    fn home(&self) -> Home {
        Home {
            root: self.dir.path().join("home"),
            state: self.dir.path().join("state"),
            id: "h-1".to_owned(),
        }
    }

    fn starter(&self) -> Starter {
        Starter {
            program: self.dir.path().join("weft"),
            state_dir: Some(self.dir.path().join("state")),
            listen: None,
        }
    }

    fn written(&self) -> String {
        fs::read_to_string(self.home().root.join("written")).unwrap()
    }
}

#[test]
fn a_started_node_gets_its_home_a_plain_environment_and_nothing_else() {
    let stage = Stage::new(
        "echo \"$@\" > \"$2/written\"; pwd >> \"$2/written\"; env | cut -d= -f1 | sort | tr '\\n' ' ' >> \"$2/written\"; echo '{}'",
    );
    stage.starter().start(&stage.home()).unwrap();
    let written = stage.written();
    let mut lines = written.lines();
    assert_eq!(
        lines.next().unwrap(),
        format!("--home {} node --detached", stage.home().root.display())
    );
    assert_eq!(lines.next().unwrap(), "/");
    let shell_s_own = ["PWD", "OLDPWD", "SHLVL", "_"];
    for name in lines
        .next()
        .unwrap()
        .split_whitespace()
        .filter(|name| !shell_s_own.contains(name))
    {
        assert!(
            [
                "HOME",
                "USER",
                "SHELL",
                "PATH",
                "LANG",
                "TMPDIR",
                "XDG_STATE_HOME",
                "WEFT_STATE_DIR"
            ]
            .contains(&name),
            "{name}"
        );
    }
    assert!(written.contains("WEFT_STATE_DIR"), "{written}");
}

#[test]
fn a_node_that_cannot_start_says_why() {
    let stage = Stage::new("echo 'weft: weft.db is corrupt' >&2; exit 1");
    assert_eq!(
        stage.starter().start(&stage.home()),
        Err("weft.db is corrupt".to_owned())
    );
    let silent = Stage::new("exit 3");
    let reason = silent.starter().start(&silent.home()).unwrap_err();
    assert!(reason.contains("without a word"), "{reason}");
    let absent = Starter {
        program: "/nonexistent/weft".into(),
        state_dir: None,
        listen: None,
    };
    assert!(
        absent
            .start(&stage.home())
            .unwrap_err()
            .contains("/nonexistent/weft")
    );
}

#[test]
fn no_node_is_started_where_one_answers() {
    let stage = Stage::new("echo started > \"$2/written\"; echo '{}'");
    let _node = UnixListener::bind(stage.home().socket()).unwrap();
    stage.starter().start(&stage.home()).unwrap();
    assert!(!stage.home().root.join("written").exists());
}

#[test]
fn of_many_that_start_at_once_one_does_and_the_others_find_it() {
    // The program stands for a node: it hands its socket over by letting the test's listener be found in its place.
    let stage = Stage::new(
        "echo started >> \"$2/written\"; mv \"$2/ready.sock\" \"$2/node.sock\"; echo '{}'",
    );
    let _node = UnixListener::bind(stage.home().root.join("ready.sock")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| stage.starter().start(&stage.home()).unwrap());
        }
    });
    assert_eq!(stage.written(), "started\n");
}

#[test]
fn a_home_that_is_gone_starts_nothing() {
    let stage = Stage::new("echo '{}'");
    fs::remove_dir_all(stage.home().root).unwrap();
    assert!(stage.starter().start(&stage.home()).is_err());
    assert!(!stage.home().root.exists());
}
