//! The end of a task: files settled, receipt, everybody told, one post.

use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use serde_json::json;

use super::clock::record_ms;
use super::journal::Journal;
use super::post::{Posted, post};
use super::wake;
use crate::limits::shim::SURVIVORS_NAMED_MAX;
use crate::task::folder::{Folder, RECEIPT, Room};
use crate::task::wire::{Launch, Receipt};

/// Writes the receipt, once and for ever. `false` where even the room that was taken for it fails; the task
/// is then lost, and nothing is made up.
pub(crate) fn write_receipt(folder: &Folder, room: &Room, receipt: &mut Receipt) -> bool {
    receipt.survivors.truncate(SURVIVORS_NAMED_MAX);
    let Ok(text) = serde_json::to_vec(receipt) else {
        return false;
    };
    // Invariant: an existing receipt never changes. Only this shim, which holds the lock, writes one.
    !folder.has(RECEIPT) && room.settle(folder, &text, true).is_ok()
}

/// Tells the node, or starts one where a resident waits.
pub(crate) fn announce(folder: &Folder, launch: &Launch, journal: &mut Journal) {
    let (Some(token), Some(topic)) = (&launch.token, &launch.topic) else {
        return;
    };
    let Some(home) = open_home(folder) else {
        return;
    };
    let posted = post(&home, topic, token);
    let result = match posted {
        Posted::Answered(status) => json!({"status": status}),
        Posted::NoNode => json!({"failed": "no node"}),
        Posted::NoAnswer => json!({"failed": "no answer"}),
    };
    journal.note_end(record_ms(), "posted", &result);
    if posted == Posted::NoNode && wake::is_wanted(&home) && is_still_at(&home, launch) {
        // A failure is recorded there; the receipt waits for whatever node comes.
        let _ = wake::start_node(&home, node_command(launch));
    }
}

/// The home as it is now, also if it was moved since the start.
fn open_home(folder: &Folder) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    rustix::fs::openat(folder.dir(), "../..", flags, Mode::empty()).ok()
}

/// A home that was moved is not made anew at its old path by the node that it would be named to.
fn is_still_at(home: &OwnedFd, launch: &Launch) -> bool {
    match (rustix::fs::fstat(home), rustix::fs::stat(&launch.home)) {
        (Ok(now), Ok(then)) => (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino),
        _ => false,
    }
}

fn node_command(launch: &Launch) -> Command {
    // A node makes its files as it sees fit; only the shim's own are private by mask.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let mut node = Command::new(&launch.weft);
    // Detached means: whoever starts it holds `node.start`. Without the word the node would wait for that lock, and this
    // shim for the node.
    node.args(["node", "--detached", "--home"])
        .arg(&launch.home);
    node.env_clear()
        .envs(launch.node_env.iter().map(|(name, value)| (name, value)));
    node
}
