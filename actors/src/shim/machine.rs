//! What a shim decides: deadline, lease, the steps of a stop, the end. No clock, no process, no file.
//!
//! The world tells what happened (`on_*`, each with the time in milliseconds of a clock that counts suspend)
//! and does what comes back. [`Machine::next_wake`] says when [`Machine::on_time`] wants to be called.

use crate::limits::shim::{
    DRAIN_CAP_MS, DRAIN_QUIET_MS, FREEZE_CAP_MS, FREEZE_PAUSE_MS, HOLDER_WAIT_MS, KILL_PAUSE_MS,
    REASON_CHARS_MAX, STOP_CAP_MS,
};
use crate::task::wire::{EndState, Lease};

/// What is to be done in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Send SIGTERM to every process of the tree.
    Terminate,
    /// Send SIGSTOP to whoever is new in the tree, then tell [`Machine::on_frozen`].
    Freeze,
    /// Send SIGKILL to every process of the tree.
    Kill,
    /// The stop gives up on processes that will not end: note them as survivors.
    GiveUp,
    /// Wait for the main process, whose pid was kept from being used again until now.
    ReapMain,
    /// The task is over: write the receipt.
    Finish,
}

/// How the main process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MainEnd {
    /// With a code.
    Code(i32),
    /// By a signal's number.
    Signal(i32),
}

/// What the receipt says of the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) state: EndState,
    pub(crate) exit_code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) reason: Option<String>,
}

/// What a round of SIGSTOP met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Somebody was there who had not been signalled before.
    pub(crate) has_newcomers: bool,
    /// Somebody who was signalled still runs.
    pub(crate) is_unsettled: bool,
}

/// Times and rules of one task.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) lease: Lease,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) deadline_reason: String,
    pub(crate) grace_ms: u64,
}

#[derive(Debug)]
struct Cause {
    state: EndState,
    reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Invariant: the main process is not waited for in these three, so that its number stays its own.
    Grace {
        until: u64,
    },
    Freezing {
        again_at: u64,
        until: u64,
    },
    Killing {
        again_at: u64,
        until: u64,
    },
    Draining {
        quiet_at: u64,
        cap_at: u64,
    },
    Done,
}

/// One task's decisions.
#[derive(Debug)]
pub(crate) struct Machine {
    phase: Phase,
    lease: Lease,
    holders: usize,
    holder_by: Option<u64>,
    deadline_at: Option<u64>,
    deadline_reason: String,
    grace_ms: u64,
    cause: Option<Cause>,
    /// Signals sent by request, as bits.
    sent: u64,
    main_ended: bool,
    open_streams: usize,
    held_open: bool,
}

impl Machine {
    /// A task that starts now, with this many captured streams.
    pub(crate) fn new(now: u64, rules: Rules, open_streams: usize) -> Self {
        let waits_for_holder = rules.lease == Lease::Foreground;
        Self {
            phase: Phase::Running,
            lease: rules.lease,
            holders: 0,
            holder_by: waits_for_holder.then_some(now + HOLDER_WAIT_MS),
            deadline_at: rules.deadline_ms.map(|ms| now.saturating_add(ms)),
            deadline_reason: rules.deadline_reason,
            grace_ms: rules.grace_ms,
            cause: None,
            sent: 0,
            main_ended: false,
            open_streams,
            held_open: false,
        }
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    pub(crate) fn holders(&self) -> usize {
        self.holders
    }

    /// Whether a stop is under way.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(
            self.phase,
            Phase::Grace { .. } | Phase::Freezing { .. } | Phase::Killing { .. }
        )
    }

    /// Whether the main process has ended and was waited for.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. } | Phase::Done)
    }

    /// Whether a descendant still held a stream at the end.
    pub(crate) fn is_held_open(&self) -> bool {
        self.held_open
    }

    /// A connection holds the foreground lease from now on.
    pub(crate) fn on_hold(&mut self) {
        self.holders += 1;
        self.holder_by = None;
    }

    /// A holder is gone.
    pub(crate) fn on_release(&mut self, now: u64) -> Vec<Effect> {
        self.holders = self.holders.saturating_sub(1);
        if self.holders > 0 || self.lease != Lease::Foreground {
            return Vec::new();
        }
        self.begin_stop(now, self.grace_ms, EndState::Killed, "caller-gone")
    }

    /// Somebody moves the lease. The refusal is in a form to show.
    pub(crate) fn on_lease(&mut self, to: Lease) -> Result<(), &'static str> {
        if to == Lease::Foreground && self.lease != Lease::Foreground {
            return Err("a task cannot go back to the foreground; choose session or durable");
        }
        if to != Lease::Foreground {
            self.holder_by = None;
        }
        self.lease = to;
        Ok(())
    }

    /// Somebody asks for the end of the tree.
    pub(crate) fn on_stop(
        &mut self,
        now: u64,
        grace_ms: Option<u64>,
        reason: Option<&str>,
    ) -> Vec<Effect> {
        let grace_ms = grace_ms.unwrap_or(self.grace_ms);
        if let Phase::Grace { until } = self.phase {
            // Who asks again with less patience is heard.
            self.phase = Phase::Grace {
                until: until.min(now.saturating_add(grace_ms)),
            };
            return Vec::new();
        }
        self.begin_stop(now, grace_ms, EndState::Killed, reason.unwrap_or("stopped"))
    }

    /// A signal was sent to the tree by request.
    pub(crate) fn on_signal_sent(&mut self, signal: i32) {
        self.sent |= 1_u64.checked_shl(signal as u32).unwrap_or(0);
    }

    /// The main process has ended. Told again and again it is heard once.
    pub(crate) fn on_main_ended(&mut self, now: u64) -> Vec<Effect> {
        if self.main_ended {
            return Vec::new();
        }
        self.main_ended = true;
        match self.phase {
            Phase::Running => self.begin_drain(now, Vec::new()),
            _ => Vec::new(),
        }
    }

    /// The tree was looked at and nobody is alive in it.
    pub(crate) fn on_tree_empty(&mut self, now: u64) -> Vec<Effect> {
        if self.main_ended && self.is_stopping() {
            return self.begin_drain(now, Vec::new());
        }
        Vec::new()
    }

    /// A round of SIGSTOP is done.
    pub(crate) fn on_frozen(&mut self, now: u64, round: Round) -> Vec<Effect> {
        let Phase::Freezing { until, .. } = self.phase else {
            return Vec::new();
        };
        if now < until && (round.has_newcomers || round.is_unsettled) {
            let pause = if round.has_newcomers {
                0
            } else {
                FREEZE_PAUSE_MS
            };
            self.phase = Phase::Freezing {
                again_at: now + pause,
                until,
            };
            return Vec::new();
        }
        self.phase = Phase::Killing {
            again_at: now + KILL_PAUSE_MS,
            until: now + STOP_CAP_MS,
        };
        vec![Effect::Kill]
    }

    /// Bytes came.
    pub(crate) fn on_output(&mut self, now: u64) {
        if let Phase::Draining { quiet_at, .. } = &mut self.phase {
            *quiet_at = now + DRAIN_QUIET_MS;
        }
    }

    /// One captured stream came to its end of file.
    pub(crate) fn on_stream_end(&mut self) -> Vec<Effect> {
        self.open_streams = self.open_streams.saturating_sub(1);
        match self.phase {
            Phase::Draining { .. } if self.open_streams == 0 => self.finish(),
            _ => Vec::new(),
        }
    }

    /// Time has passed.
    pub(crate) fn on_time(&mut self, now: u64) -> Vec<Effect> {
        match self.phase {
            Phase::Running => self.on_time_running(now),
            Phase::Grace { until } if now >= until => {
                self.phase = Phase::Freezing {
                    again_at: now,
                    until: now + FREEZE_CAP_MS,
                };
                vec![Effect::Freeze]
            }
            Phase::Freezing { again_at, .. } if now >= again_at => vec![Effect::Freeze],
            Phase::Killing { until, .. } if now >= until => self.give_up(now),
            Phase::Killing { again_at, until } if now >= again_at => {
                self.phase = Phase::Killing {
                    again_at: now + KILL_PAUSE_MS,
                    until,
                };
                vec![Effect::Kill]
            }
            Phase::Draining { quiet_at, cap_at } if now >= quiet_at.min(cap_at) => self.finish(),
            _ => Vec::new(),
        }
    }

    /// When [`Machine::on_time`] has something to do, if nothing else happens.
    pub(crate) fn next_wake(&self) -> Option<u64> {
        match self.phase {
            Phase::Running => [self.deadline_at, self.holder_by]
                .into_iter()
                .flatten()
                .min(),
            Phase::Grace { until } => Some(until),
            Phase::Freezing { again_at, .. } => Some(again_at),
            Phase::Killing { again_at, until } => Some(again_at.min(until)),
            Phase::Draining { quiet_at, cap_at } => Some(quiet_at.min(cap_at)),
            Phase::Done => None,
        }
    }

    /// What the receipt says of this end.
    pub(crate) fn outcome(&self, end: MainEnd) -> Outcome {
        let (exit_code, signal) = match end {
            MainEnd::Code(code) => (code, None),
            MainEnd::Signal(signal) => (128 + signal, Some(signal)),
        };
        let was_sent = |signal: i32| self.sent >> signal & 1 == 1;
        let (state, reason) = match (&self.cause, end) {
            (Some(cause), _) => (cause.state, Some(cause.reason.clone())),
            (None, MainEnd::Code(0)) => (EndState::Exited, None),
            (None, MainEnd::Signal(signal)) if was_sent(signal) => {
                (EndState::Killed, Some("signalled".to_owned()))
            }
            (None, _) => (EndState::Failed, None),
        };
        Outcome {
            state,
            exit_code,
            signal,
            reason,
        }
    }

    fn on_time_running(&mut self, now: u64) -> Vec<Effect> {
        let passed = |at: Option<u64>| at.is_some_and(|at| now >= at);
        if passed(self.deadline_at) {
            self.deadline_at = None;
            let reason = self.deadline_reason.clone();
            return self.begin_stop(now, self.grace_ms, EndState::TimedOut, &reason);
        }
        if passed(self.holder_by) {
            self.holder_by = None;
            return self.begin_stop(now, self.grace_ms, EndState::Killed, "caller-gone");
        }
        Vec::new()
    }

    fn begin_stop(
        &mut self,
        now: u64,
        grace_ms: u64,
        state: EndState,
        reason: &str,
    ) -> Vec<Effect> {
        if self.phase != Phase::Running {
            return Vec::new();
        }
        // The first cause stands, also where an earlier stop had to give up.
        self.cause.get_or_insert(Cause {
            state,
            reason: reason.chars().take(REASON_CHARS_MAX).collect(),
        });
        self.phase = Phase::Grace {
            until: now.saturating_add(grace_ms),
        };
        vec![Effect::Terminate]
    }

    fn give_up(&mut self, now: u64) -> Vec<Effect> {
        let effects = vec![Effect::GiveUp];
        if self.main_ended {
            return self.begin_drain(now, effects);
        }
        // The main process itself will not end (it may be another user's by now). The task runs on, and the
        // cause stands for when it does end.
        self.phase = Phase::Running;
        effects
    }

    fn begin_drain(&mut self, now: u64, mut effects: Vec<Effect>) -> Vec<Effect> {
        effects.push(Effect::ReapMain);
        self.phase = Phase::Draining {
            quiet_at: now + DRAIN_QUIET_MS,
            cap_at: now + DRAIN_CAP_MS,
        };
        if self.open_streams == 0 {
            effects.extend(self.finish());
        }
        effects
    }

    fn finish(&mut self) -> Vec<Effect> {
        self.held_open = self.open_streams > 0;
        self.phase = Phase::Done;
        vec![Effect::Finish]
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
