//! What `/proc` says, and signals.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// All processes.
pub fn all() -> Vec<u32> {
    std::fs::read_dir("/proc")
        .map(|entries| {
            entries
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

/// Processes with this variable of this value in the environment they were started with.
pub fn with_variable(name: &str, value: &Path) -> Vec<u32> {
    let wanted = [name.as_bytes(), b"=", value.as_os_str().as_bytes()].concat();
    all()
        .into_iter()
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.split(|byte| *byte == 0).any(|pair| pair == wanted))
        })
        .collect()
}

/// Processes whose working directory lies in `folder`.
pub fn with_cwd_below(folder: &Path) -> Vec<u32> {
    all()
        .into_iter()
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
        })
        .collect()
}

/// Living processes (not zombies) whose command line holds `words`.
pub fn running(words: &str) -> Vec<u32> {
    all()
        .into_iter()
        .filter(|pid| *pid != std::process::id() && state(*pid).is_some_and(|state| state != 'Z'))
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                String::from_utf8_lossy(&line)
                    .replace('\0', " ")
                    .trim_end()
                    .contains(words)
            })
        })
        .collect()
}

/// Whether a process was started with exactly these words.
pub fn with_words(pid: u32, words: &[&str]) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
        let wanted: Vec<u8> = words
            .iter()
            .flat_map(|word| [word.as_bytes(), b"\0"].concat())
            .collect();
        line == wanted
    })
}

/// Living processes of a user, by his number.
pub fn of_user(user: u32) -> Vec<u32> {
    use std::os::unix::fs::MetadataExt as _;
    all()
        .into_iter()
        .filter(|pid| is_alive(*pid))
        .filter(|pid| {
            std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|about| about.uid() == user)
        })
        .collect()
}

/// A process's state letter.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a process lives and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// A process's parent.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// SIGKILL; a process that is gone is fine.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Any signal; a process that is gone is fine.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
