//! Ends what a lost task left behind, as far as it can be proved to be the task's.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::proc;
use crate::limits::shim::{LOST_ROUNDS_MAX, STOP_CAP_MS};
use crate::task::wire::Started;

/// What became of a lost task's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descendants {
    /// Whatever could be proved to be the task's has ended, and nothing lives that might be its.
    Ended,
    /// Some may live: they are out of sight, would not end, or cannot be told from others.
    Unknown,
}

impl Descendants {
    /// The name as it stands in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Unknown => "unknown",
        }
    }
}

/// Sends SIGKILL to the main process of a lost task, known by pid and birth, and to every process of the same
/// boot and pid namespace that was born after it and has the task's `WEFT_TASK_ID` in its environment. Waits
/// for their end, at most some seconds: not for an async thread.
///
/// To be called only when the task is proved lost. Another weft, and its own tasks, are not touched: they do
/// not carry this task's id, and a holder of a `node.lock` or `shim.lock` is passed over.
pub fn kill_lost_task(task_id: &str, started: &Started) -> io::Result<Descendants> {
    if proc::boot_id()? != started.boot_id {
        // Nothing outlives the boot that it ran in.
        return Ok(Descendants::Ended);
    }
    let namespace = proc::pid_namespace()?;
    if namespace != started.pid_ns {
        return Ok(Descendants::Unknown);
    }
    let ended = end_proved(task_id, started, namespace);
    if ended == Descendants::Ended && may_have_left_orphans(started) {
        return Ok(Descendants::Unknown);
    }
    Ok(ended)
}

/// Ends what can be proved to be the task's.
fn end_proved(task_id: &str, started: &Started, namespace: u64) -> Descendants {
    for _ in 0..LOST_ROUNDS_MAX {
        let remains = find(task_id, started, namespace);
        if remains.is_empty() {
            return Descendants::Ended;
        }
        // All are signalled before one is waited for: a parent that lives might start more.
        let sent: Vec<_> = remains
            .iter()
            .map(|pidfd| proc::signal_process(pidfd, Signal::KILL))
            .collect();
        if sent.iter().any(Result::is_err) || !remains.iter().all(wait_for_end) {
            return Descendants::Unknown;
        }
    }
    Descendants::Unknown
}

fn find(task_id: &str, started: &Started, namespace: u64) -> Vec<OwnedFd> {
    let is_task_s = |pid: u32| task_of(pid).is_some_and(|task| task == task_id.as_bytes());
    let mut remains = Vec::new();
    for pid in proc::all_pids() {
        let Some(stat) = proc::stat_of(pid) else {
            continue;
        };
        let is_main = pid == started.pid && stat.birth == started.birth;
        if stat.is_ended() || stat.birth < started.birth || pid == std::process::id() {
            continue;
        }
        if !is_main
            && (!is_task_s(pid) || namespace_of(pid) != Some(namespace) || proc::is_weft(pid))
        {
            continue;
        }
        // Invariant: opened, and only then proved once more, so that the proof is of what is signalled.
        if let Some(pidfd) = proc::open_process(pid, stat.birth)
            && ((is_main && is_same(&pidfd, started)) || is_task_s(pid))
        {
            remains.push(pidfd);
        }
    }
    remains
}

/// Whether an orphan lives that may be the task's though nothing proves it: born after it, of the same user, without any task's id
/// in its environment, as after `env -i`. What lost its parent is a child of the first process, or of a service manager.
fn may_have_left_orphans(started: &Started) -> bool {
    let own_user = user_of(std::process::id());
    proc::all_pids().into_iter().any(|pid| {
        let Some(stat) = proc::stat_of(pid) else {
            return false;
        };
        pid != std::process::id()
            && !stat.is_ended()
            && stat.birth >= started.birth
            && (stat.parent == 1 || is_service_manager(stat.parent))
            && user_of(pid) == own_user
            && task_of(pid).is_none()
            && !proc::is_weft(pid)
    })
}

fn is_service_manager(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "systemd")
}

/// The task that a process's environment names.
fn task_of(pid: u32) -> Option<Vec<u8>> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| entry.strip_prefix(b"WEFT_TASK_ID=").map(<[u8]>::to_vec))
}

fn user_of(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(format!("/proc/{pid}"))
        .ok()
        .map(|about| about.uid())
}

/// Where the kernel gives no number of its own, birth has to be proof enough.
fn is_same(pidfd: &OwnedFd, started: &Started) -> bool {
    started.unique.is_none() || proc::unique_of(pidfd) == started.unique
}

fn namespace_of(pid: u32) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(format!("/proc/{pid}/ns/pid"))
        .ok()
        .map(|it| it.ino())
}

fn wait_for_end(pidfd: &OwnedFd) -> bool {
    let patience = Timespec {
        tv_sec: (STOP_CAP_MS / 1000) as i64,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&patience)), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn started(child: &Child) -> Started {
        Started {
            pid: child.id(),
            birth: proc::birth_of(child.id()).unwrap(),
            unique: None,
            folder: None,
            boot_id: proc::boot_id().unwrap(),
            pid_ns: proc::pid_namespace().unwrap(),
            started_at: 0,
            shim: 0,
        }
    }

    fn sleeper(task_id: &str) -> Child {
        Command::new("sleep")
            .arg("60")
            .env("WEFT_TASK_ID", task_id)
            .spawn()
            .unwrap()
    }

    #[test]
    fn main_and_what_carries_the_id_end_and_a_stranger_lives() {
        let id = format!("t-lost-{}", std::process::id());
        let (mut main, mut other, mut stranger) = (sleeper(&id), sleeper(&id), sleeper("t-else"));
        let started = started(&main);
        assert_eq!(
            end_proved(&id, &started, started.pid_ns),
            Descendants::Ended
        );
        assert!(!main.wait().unwrap().success());
        assert!(!other.wait().unwrap().success());
        assert!(stranger.try_wait().unwrap().is_none());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_recycled_pid_is_not_signalled() {
        let mut stranger = sleeper("t-else");
        let mut record = started(&stranger);
        record.birth -= 1;
        assert_eq!(
            end_proved("t-recycled", &record, record.pid_ns),
            Descendants::Ended
        );
        assert!(stranger.try_wait().unwrap().is_none());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
