//! Starting a node, once, for a home in which a resident waits.
//!
//! Many shims may end at the same moment: one takes the lock on `node.start`, the others leave it at that. A
//! node that cannot start is not tried again before a pause, which doubles with every failure.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::AtFlags;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde::{Deserialize, Serialize};

use super::clock::wall_ms;
use super::post::connect;
use crate::limits::shim::{NODE_LOOK_MS, NODE_PAUSE_MS, NODE_PAUSE_MS_MAX, NODE_START_MS};
use crate::sys;

/// The lock, and the record of failures in it.
const START_LOCK: &str = "node.start";
/// Exists while an enabled resident does.
const WAKE: &str = "wake";

/// The content of `node.start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// Starts that failed one after another.
    failures: u32,
    /// Epoch milliseconds of the last one.
    at: u64,
}

impl Record {
    /// Whether a start may be tried. A clock that was set back does not lengthen the pause beyond its end.
    fn allows(self, now: u64) -> bool {
        if self.failures == 0 {
            return true;
        }
        let pause = NODE_PAUSE_MS
            .checked_shl(self.failures - 1)
            .map_or(NODE_PAUSE_MS_MAX, |pause| {
                pause.clamp(NODE_PAUSE_MS, NODE_PAUSE_MS_MAX)
            });
        now < self.at || now - self.at >= pause
    }

    fn after(self, is_up: bool, now: u64) -> Self {
        if is_up {
            return Self::default();
        }
        // More doublings than these change nothing and would overflow the shift.
        let failures = self.failures.saturating_add(1).min(32);
        Self { failures, at: now }
    }
}

/// Whether somebody in this home waits for a node.
pub(crate) fn is_wanted(home: &OwnedFd) -> bool {
    rustix::fs::statat(home, WAKE, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Starts a node unless somebody else is at it, one answers already, or the pause is not over.
pub(crate) fn start_node(home: &OwnedFd, mut node: Command) -> io::Result<()> {
    let Some(lock) = sys::try_lock(home, Path::new(START_LOCK))? else {
        return Ok(());
    };
    let record = read_record(&lock);
    if answers(home) || !record.allows(wall_ms()) {
        return Ok(());
    }
    let is_up = spawn_and_wait(home, &mut node);
    let text = serde_json::to_vec(&record.after(is_up, wall_ms()))?;
    lock.write_all_at(&text, 0)?;
    lock.set_len(text.len() as u64)
}

fn read_record(mut lock: &File) -> Record {
    let mut text = Vec::new();
    // A record that cannot be read is none: one start too many does no harm.
    let _ = lock.by_ref().take(256).read_to_end(&mut text);
    serde_json::from_slice(&text).unwrap_or_default()
}

fn answers(home: &OwnedFd) -> bool {
    connect(home, Duration::from_millis(NODE_LOOK_MS)).is_ok()
}

fn spawn_and_wait(home: &OwnedFd, node: &mut Command) -> bool {
    let watch = watch_names(home);
    let child = node
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let Ok(mut child) = child else { return false };
    let end = Instant::now() + Duration::from_millis(NODE_START_MS);
    while Instant::now() < end {
        if answers(home) {
            return true;
        }
        if !matches!(child.try_wait(), Ok(None)) {
            return false;
        }
        wait_for_names(watch.as_ref());
    }
    false
}

fn watch_names(home: &OwnedFd) -> Option<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(home));
    inotify::add_watch(&watch, path, WatchFlags::CREATE | WatchFlags::ATTRIB).ok()?;
    Some(watch)
}

/// Waits for a new name in the home, or a little: between a socket's name and its readiness nothing is told.
fn wait_for_names(watch: Option<&OwnedFd>) {
    let patience = Timespec {
        tv_sec: 0,
        tv_nsec: (NODE_LOOK_MS * 1_000_000) as i64,
    };
    let mut fds: Vec<_> = watch
        .into_iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let _ = rustix::event::poll(&mut fds, Some(&patience));
    if let Some(watch) = watch {
        let mut names = [0; 4096];
        while rustix::io::read(watch, &mut names).is_ok_and(|bytes| bytes > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_to_its_end_and_success_forgets() {
        let mut record = Record::default();
        assert!(record.allows(0));
        for pause in [1_000, 2_000, 4_000, 8_000] {
            record = record.after(false, 100);
            assert!(!record.allows(100 + pause - 1));
            assert!(record.allows(100 + pause));
        }
        for _ in 0..100 {
            record = record.after(false, 100);
        }
        assert!(!record.allows(100 + NODE_PAUSE_MS_MAX - 1));
        assert!(record.allows(100 + NODE_PAUSE_MS_MAX));
        assert_eq!(record.after(true, 100), Record::default());
    }

    #[test]
    fn a_node_that_cannot_start_is_tried_once_within_the_pause() {
        let root = tempfile::tempdir().unwrap();
        let home: OwnedFd = File::open(root.path()).unwrap().into();
        let count = root.path().join("count");
        for _ in 0..5 {
            let mut node = Command::new("/bin/sh");
            node.arg("-c")
                .arg(format!("echo x >> {}; exit 1", count.display()));
            start_node(&home, node).unwrap();
        }
        assert_eq!(std::fs::read_to_string(count).unwrap(), "x\n");
    }
}
