//! What `/proc` tells of processes: identity, family, and whether another weft begins there.
//!
//! A pid alone proves nothing, since numbers are used again. A process is its pid *and* its birth, and it is
//! signalled through a pidfd whose birth was looked at again after it was opened.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::limits::shim::STAT_BYTES_MAX;

/// The line `/proc/PID/stat`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The parent.
    pub parent: u32,
    /// `R`, `S`, `D`, `T`, `Z` and so on.
    pub state: u8,
    /// Its threads.
    pub threads: u32,
    /// Start time in clock ticks since boot.
    pub birth: u64,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        // The second field is the program's name in parentheses and may hold anything, so count from its end.
        let mut fields = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let threads = fields.nth(15)?.parse().ok()?;
        let birth = fields.nth(1)?.parse().ok()?;
        Some(Self {
            parent,
            state,
            threads,
            birth,
        })
    }

    /// Whether it has ended and only waits to be waited for. A first thread that ended before the others
    /// looks the same but for their number.
    pub const fn is_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

/// Whether no thread of a process can run on before somebody continues or kills it.
pub(crate) fn is_at_rest(pid: u32, stat: Stat) -> bool {
    let rests = |state: u8| matches!(state, b'T' | b't' | b'Z' | b'X' | b'x');
    if stat.threads <= 1 || !rests(stat.state) {
        return rests(stat.state);
    }
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads
        .filter_map(|thread| std::fs::read(thread.ok()?.path().join("stat")).ok())
        .filter_map(|line| Stat::parse(&String::from_utf8_lossy(&line)))
        .all(|thread| rests(thread.state))
}

/// The kernel's id of this boot.
pub fn boot_id() -> io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

/// The inode of this process's pid namespace.
pub fn pid_namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
}

/// What a process is doing; `None` where there is none of that number.
pub fn stat_of(pid: u32) -> Option<Stat> {
    // One read into a buffer that is large enough: whole trees are looked at in this way.
    let mut line = [0; STAT_BYTES_MAX];
    let mut file = std::fs::File::open(format!("/proc/{pid}/stat")).ok()?;
    let bytes = file.read(&mut line).ok()?;
    Stat::parse(&String::from_utf8_lossy(&line[..bytes]))
}

/// A process's start time in clock ticks since boot.
pub fn birth_of(pid: u32) -> Option<u64> {
    stat_of(pid).map(|stat| stat.birth)
}

/// The ancestors of a process, nearest first, without itself. Where one dies meanwhile the list ends early.
pub fn ancestors(pid: u32) -> Vec<u32> {
    let mut line = Vec::new();
    let mut at = pid;
    while let Some(Stat { parent, .. }) = stat_of(at) {
        // A list that came round to itself would mean that numbers were used again while it was made.
        if parent == 0 || line.contains(&parent) {
            break;
        }
        line.push(parent);
        at = parent;
    }
    line
}

/// The address ranges of this process that map a file, cannot be written, and hold no page of their own.
pub(crate) fn clean_file_mappings() -> Vec<(usize, usize)> {
    clean_mappings_in(&std::fs::read_to_string("/proc/self/smaps").unwrap_or_default())
}

fn clean_mappings_in(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some(first) = fields.next() else { continue };
        if let Some((start, end)) = first.split_once('-') {
            let is_readonly = fields
                .next()
                .is_some_and(|mode| matches!(mode, "r--p" | "r-xp"));
            let is_file = fields.nth(3).is_some_and(|path| path.starts_with('/'));
            let range = usize::from_str_radix(start, 16)
                .ok()
                .zip(usize::from_str_radix(end, 16).ok());
            candidate = range.filter(|_| is_readonly && is_file);
        } else if first == "Anonymous:" && fields.next() == Some("0") {
            // A mapping for which the kernel does not say this is left alone.
            found.extend(candidate.take());
        }
    }
    found
}

/// Every process that can be seen.
pub(crate) fn all_pids() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Finds children of processes.
pub(crate) enum Family {
    /// The kernel lists them.
    Listed,
    /// It does not (built without `PROC_CHILDREN`), so this is one look at all processes.
    Scanned(HashMap<u32, Vec<u32>>),
}

impl Family {
    pub(crate) fn now() -> Self {
        if std::fs::exists("/proc/thread-self/children").unwrap_or(false) {
            return Self::Listed;
        }
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in all_pids() {
            if let Some(stat) = stat_of(pid) {
                children.entry(stat.parent).or_default().push(pid);
            }
        }
        Self::Scanned(children)
    }

    pub(crate) fn children_of(&self, pid: u32) -> Vec<u32> {
        match self {
            Self::Listed => listed_children(pid),
            Self::Scanned(children) => children.get(&pid).cloned().unwrap_or_default(),
        }
    }
}

/// A child belongs to the thread that made it.
fn listed_children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let mut children = Vec::new();
    for list in lists {
        children.extend(
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    children
}

/// Whether another weft begins at this process: it holds the lock of a node or of a shim.
pub(crate) fn is_weft(pid: u32) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let Ok(target) = std::fs::read_link(entry.path()) else {
            return false;
        };
        let target = target.to_string_lossy();
        let target = target.strip_suffix(" (deleted)").unwrap_or(&target);
        if !(target.ends_with("/node.lock") || target.ends_with("/shim.lock")) {
            return false;
        }
        let number = entry.file_name();
        let info = format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy());
        std::fs::read_to_string(info).is_ok_and(|text| {
            text.lines()
                .any(|line| line.starts_with("lock:") && line.contains("FLOCK"))
        })
    })
}

/// Opens a process that was seen with this birth; `None` if it is another one by now, or none.
pub(crate) fn open_process(pid: u32, birth: u64) -> Option<OwnedFd> {
    let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let pidfd = rustix::process::pidfd_open(raw, PidfdFlags::empty()).ok()?;
    // Invariant: looked at after opening. The number may have been used again before, never after.
    (birth_of(pid) == Some(birth)).then_some(pidfd)
}

/// The kernel's own number of a process, never used again in this boot; `None` before Linux 6.9, where a pidfd
/// has no inode of its own.
pub(crate) fn unique_of(pidfd: &OwnedFd) -> Option<u64> {
    const PIDFS: u64 = 0x5049_4446;
    let kind = rustix::fs::fstatfs(pidfd).ok()?.f_type;
    (kind as u64 == PIDFS).then_some(rustix::fs::fstat(pidfd).ok()?.st_ino)
}

/// Sends a signal to exactly this process. A process that has ended is fine.
pub(crate) fn signal_process(pidfd: &OwnedFd, signal: Signal) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_name_cannot_forge_its_stat_line() {
        let line = "12 (x) Z 1 (y) S 7 12 12 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            (stat.parent, stat.state, stat.threads, stat.birth),
            (7, b'S', 1, 4242)
        );
    }

    #[test]
    fn only_what_is_as_in_its_file_counts_as_clean() {
        let smaps = "\
            1000-2000 r-xp 00000000 fd:00 1 /bin/shim\nRss: 4 kB\nAnonymous:             0 kB\n\
            2000-3000 r--p 00001000 fd:00 1 /bin/shim\nRss: 4 kB\nAnonymous:             4 kB\n\
            3000-4000 rw-p 00002000 fd:00 1 /bin/shim\nAnonymous:             0 kB\n\
            4000-5000 r-xp 00000000 00:00 0 [vdso]\nAnonymous:             0 kB\n\
            5000-6000 r--p 00000000 fd:00 2 /lib/libc.so.6\n";
        assert_eq!(clean_mappings_in(smaps), [(0x1000, 0x2000)]);
    }

    #[test]
    fn this_process_is_its_parent_s_child() {
        let me = std::process::id();
        let parent = ancestors(me)[0];
        assert!(Family::now().children_of(parent).contains(&me));
        let pidfd = open_process(me, birth_of(me).unwrap()).unwrap();
        let again = open_process(me, birth_of(me).unwrap()).unwrap();
        assert_eq!(unique_of(&pidfd), unique_of(&again));
        assert!(open_process(me, birth_of(me).unwrap() + 1).is_none());
    }

    #[test]
    fn a_held_lock_marks_a_weft() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("node.lock");
        let file = std::fs::File::create(&path).unwrap();
        assert!(!is_weft(std::process::id()));
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert!(is_weft(std::process::id()));
        std::fs::remove_file(&path).unwrap();
        assert!(is_weft(std::process::id()));
    }
}
