//! A system that gives few processes and threads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use weft_tests::{eventually, processes, stage::weft_bin};

/// A user of this test's own: what others of the same number run would count as well.
fn a_user(nth: u32) -> u32 {
    100_000 + std::process::id() % 100_000 * 20 + nth
}

/// `weft run -c 'echo hi'` as this user, who may have so many processes.
fn run(dir: &Path, user: u32, nproc: &str) -> Output {
    let id = user.to_string();
    let home = dir.join("home");
    Command::new("setpriv")
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .args(["env", "-i", "PATH=/usr/bin:/bin"])
        .arg(format!("HOME={}", dir.display()))
        .arg(format!("WEFT_TEST_STAGE={}", dir.display()))
        .args(["prlimit", &format!("--nproc={nproc}")])
        .arg(dir.join("weft"))
        .args(["--home", home.to_str().unwrap(), "run", "-c", "echo hi"])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_node_that_gets_no_threads_ends_and_leaves_the_home_free() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for nproc in 2..=12 {
        let user = a_user(nproc);
        let folder = tempfile::Builder::new()
            .prefix("weft-test-")
            .tempdir()
            .unwrap();
        let dir = folder.path();
        for name in ["weft", "weft-shim"] {
            std::fs::copy(weft_bin().with_file_name(name), dir.join(name)).unwrap();
        }
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(dir, Some(user), Some(user)).unwrap();
        let scarce = run(dir, user, &nproc.to_string());
        let code = scarce.status.code();
        let errors = String::from_utf8_lossy(&scarce.stderr);
        assert!(matches!(code, Some(0 | 125)), "{nproc}: {scarce:?}");
        assert!(code == Some(0) || !errors.is_empty(), "{nproc}: {scarce:?}");
        assert!(!errors.contains("panicked"), "{nproc}: {errors}");
        let plenty = run(dir, user, "1000");
        // A node that came up with what there was is the home's node, and says what it lacks.
        let lacks = String::from_utf8_lossy(&plenty.stderr).contains("starting ");
        assert!(plenty.stdout == b"hi\n" || lacks, "{nproc}: {plenty:?}");
        for pid in processes::of_user(user) {
            processes::kill(pid);
        }
        eventually("nothing is left", || {
            processes::of_user(user).is_empty().then_some(())
        });
    }
}
