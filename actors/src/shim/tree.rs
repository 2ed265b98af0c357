//! The process tree below this shim: who is in it, and how it is signalled.
//!
//! As child subreaper the shim stays the ancestor of whatever its command started, also of what left the
//! process group or was forked twice. The tree ends where another weft begins.

use std::collections::{HashMap, HashSet, VecDeque};

use rustix::process::Signal;

use super::machine::Round;
use crate::limits::shim::SIGNAL_ROUNDS_MAX;
use crate::sys::proc::{self, Family, Stat};

/// A process of the tree, as it was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    pub(crate) stat: Stat,
}

/// Every living descendant of this process, parents before their children, without other wefts and all
/// that is below them.
pub(crate) fn members() -> Vec<Member> {
    let family = Family::now();
    let mut seen = HashSet::new();
    let mut queue = VecDeque::from(family.children_of(std::process::id()));
    let mut members = Vec::new();
    while let Some(pid) = queue.pop_front() {
        let Some(stat) = proc::stat_of(pid) else {
            continue;
        };
        // A process may move to this shim while the tree is walked, and be met twice.
        if !seen.insert(pid) || proc::is_weft(pid) {
            continue;
        }
        queue.extend(family.children_of(pid));
        if !stat.is_ended() {
            members.push(Member { pid, stat });
        }
    }
    members
}

/// Whether anybody but other wefts is alive below this process. Cheap where the answer is yes.
pub(crate) fn is_empty() -> bool {
    let children = Family::now().children_of(std::process::id());
    !children
        .into_iter()
        .any(|pid| proc::stat_of(pid).is_some_and(|stat| !stat.is_ended()) && !proc::is_weft(pid))
}

/// Sends a signal once to every process of the tree, also to who was born while others were signalled, and
/// gives those that may not be signalled.
pub(crate) fn signal_all(signal: Signal) -> Vec<u32> {
    let mut denied = Vec::new();
    let mut met = HashSet::new();
    for _ in 0..SIGNAL_ROUNDS_MAX {
        let mut newcomers = members();
        newcomers.retain(|member| met.insert((member.pid, member.stat.birth)));
        if newcomers.is_empty() {
            break;
        }
        signal_each(&newcomers, signal, &mut denied);
    }
    denied
}

fn signal_each(members: &[Member], signal: Signal, denied: &mut Vec<u32>) {
    for &Member { pid, stat } in members {
        let Some(pidfd) = proc::open_process(pid, stat.birth) else {
            continue;
        };
        if proc::signal_process(&pidfd, signal).is_err() {
            denied.push(pid);
        } else if signal == Signal::TERM && stat.state == b'T' {
            // What somebody had stopped would hear of its end only when continued.
            let _ = proc::signal_process(&pidfd, Signal::CONT);
        }
    }
}

/// The rounds of SIGSTOP of one stop.
#[derive(Debug, Default)]
pub(crate) struct Freezer {
    /// Who was met, by pid and birth, and whether it could be signalled.
    frozen: HashMap<(u32, u64), bool>,
}

impl Freezer {
    /// Stops whoever is new. The tree is whole when nobody was, and all rest: a process that rests starts
    /// no other.
    pub(crate) fn round(&mut self) -> Round {
        let mut round = Round {
            has_newcomers: false,
            is_unsettled: false,
        };
        for Member { pid, stat } in members() {
            if let Some(allowed) = self.frozen.get(&(pid, stat.birth)) {
                round.is_unsettled |= *allowed && !proc::is_at_rest(pid, stat);
                continue;
            }
            let Some(pidfd) = proc::open_process(pid, stat.birth) else {
                continue;
            };
            // Who may not be signalled is not waited for.
            let allowed = proc::signal_process(&pidfd, Signal::STOP).is_ok();
            self.frozen.insert((pid, stat.birth), allowed);
            round.has_newcomers |= allowed;
        }
        round
    }
}
