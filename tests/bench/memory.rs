//! What weft costs while it waits: shims, the idle node, 500 sleeping jobs.

use std::process::{Command, Stdio};

use serde_json::json;
use weft_tests::stage::weft_bin;
use weft_tests::{Client, Stage, eventually, processes};

use crate::report::Report;

const SLEEPERS: usize = 500;

/// An account of no rights. The bound on the sum of a user's pipes, for one, does not hold for root.
const ORDINARY: u32 = 65_532;

pub(crate) fn run(report: &mut Report) {
    // A thread has its own credentials: what this one gives up, the other sections keep.
    std::thread::scope(|scope| {
        scope.spawn(|| measure(report));
    });
}

/// Becomes an ordinary user where this is root and that user can run `weft`.
fn give_up_root() -> bool {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let drop_to = || {
        let (uid, gid) = (Uid::from_raw(ORDINARY), Gid::from_raw(ORDINARY));
        set_thread_groups(&[])
            .and_then(|()| set_thread_res_gid(gid, gid, gid))
            .and_then(|()| set_thread_res_uid(uid, uid, uid))
    };
    let can = std::thread::spawn(move || {
        drop_to().is_ok()
            && Command::new(weft_bin())
                .arg("version")
                .stdout(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
    });
    can.join().is_ok_and(|can| can) && drop_to().is_ok()
}

fn measure(report: &mut Report) {
    if rustix::process::geteuid().is_root() && !give_up_root() {
        println!("  as root: an ordinary user cannot run the program where it lies");
    }
    let stage = Stage::new();
    let node = stage.node(&[]);
    report.figure(
        "idle node, RSS",
        rss_kib(node.pid()) / 1024.0,
        "MiB",
        None,
        "<= 12",
    );
    let small = weft_bin().with_file_name("weft-shim").is_file();
    let client = Client::unix(stage.home());
    let one = client
        .call(
            "tasks.run",
            json!({"argv": ["sleep", "1000"], "lease": "durable"}),
        )
        .ok("tasks.run");
    let pid = one["pid"]
        .as_u64()
        .and_then(|pid| u32::try_from(pid).ok())
        .expect("a pid");
    let shim = processes::parent(pid).expect("its shim");
    // A shim gives its start-up memory back after a moment of quiet.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (name, target) = if small {
        ("one weft-shim, PSS", "<= 256")
    } else {
        ("one weft shim, PSS", "<= 512")
    };
    report.figure(name, pss_kib(shim), "KiB", None, target);
    for _ in 1..SLEEPERS {
        client.call("tasks.run", json!({"argv": ["sleep", "1000"], "lease": "durable", "notify": {"topic": "slept"}})).ok("tasks.run");
    }
    let listed = client
        .call("tasks.list", json!({"states": ["running"]}))
        .ok("tasks.list");
    let listed = listed["tasks"].as_array().map_or(0, Vec::len);
    report.figure(
        "sleeping jobs at once, all listed",
        listed as f64,
        "tasks",
        None,
        "500",
    );
    report.figure(
        "node with them, RSS",
        rss_kib(node.pid()) / 1024.0,
        "MiB",
        None,
        "",
    );
    report.figure(
        "all shims of them, PSS each",
        pss_kib(shim),
        "KiB",
        None,
        "",
    );
    let (read, _write) = rustix::pipe::pipe().expect("a pipe");
    let size = rustix::pipe::fcntl_getpipe_size(&read).expect("a size");
    report.figure("a plain pipe then", size as f64 / 1024.0, "KiB", None, "64");
    for pid in processes::running("sleep 1000") {
        if stage.processes().contains(&pid) {
            processes::kill(pid);
        }
    }
    let events = eventually("all have ended", || {
        let page = client
            .call("mesh.read", json!({"topics": ["slept"], "limit": 1000}))
            .ok("mesh.read");
        let count = page["events"].as_array().map_or(0, Vec::len);
        (count >= SLEEPERS - 1).then_some(count)
    });
    report.figure(
        "completion events of the 499 with notify",
        events as f64,
        "events",
        None,
        "499",
    );
}

fn rss_kib(pid: u32) -> f64 {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

pub(crate) fn pss_kib(pid: u32) -> f64 {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

fn field(path: &str, name: &str) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(f64::NAN)
}
