//! Restart or give up: how a supervisor answers the failure of a child.
//!
//! The rule is OTP's, as a burst and a sustained rate: a child may fail [`BURST`](crate::limits::RESTART_BURST) times
//! within [`WINDOW`](crate::limits::RESTART_WINDOW_MS) milliseconds; each restart within the window waits longer than the one
//! before. One failure more and the supervisor gives the child up and tells its own parent.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::limits::{RESTART_BURST, RESTART_PAUSE_MAX_MS, RESTART_PAUSE_MS, RESTART_WINDOW_MS};

/// What to do about a failed child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Rebuild it from the store after so many milliseconds.
    Restart {
        /// The pause before.
        after_ms: u64,
    },
    /// It fails too often: leave it down and tell the parent.
    GiveUp,
}

/// The failures of one child that still count.
#[derive(Debug, Default)]
pub struct Failures {
    recent: VecDeque<u64>,
}

impl Failures {
    /// A failure at `now` (any monotonic milliseconds).
    pub fn on_failure(&mut self, now: u64) -> Verdict {
        while self
            .recent
            .front()
            .is_some_and(|at| now.saturating_sub(*at) > RESTART_WINDOW_MS)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let count = self.recent.len();
        if count > RESTART_BURST {
            return Verdict::GiveUp;
        }
        // The first restart is at once: one bad message must not make everyone else wait.
        let after_ms = if count == 1 {
            0
        } else {
            (RESTART_PAUSE_MS << (count - 2)).min(RESTART_PAUSE_MAX_MS)
        };
        Verdict::Restart { after_ms }
    }
}

/// A panic that was caught around a machine's call.
#[derive(Debug, Clone)]
pub struct Panicked(pub String);

/// Calls a machine. actix would close the mailbox of a panicking actor for good, so the panic stops here; the caller drops the
/// machine, whose state may be half changed.
pub fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without words".to_owned());
        Panicked(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_restarted_ever_slower_and_then_given_up() {
        let mut failures = Failures::default();
        let mut pauses = Vec::new();
        for at in 0..RESTART_BURST as u64 {
            match failures.on_failure(at) {
                Verdict::Restart { after_ms } => pauses.push(after_ms),
                Verdict::GiveUp => panic!("gave up within the burst"),
            }
        }
        assert_eq!(pauses[0], 0);
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(failures.on_failure(RESTART_BURST as u64), Verdict::GiveUp);
    }

    #[test]
    fn old_failures_are_forgiven() {
        let mut failures = Failures::default();
        for round in 0..100_u64 {
            let at = round * (RESTART_WINDOW_MS + 1);
            assert_eq!(failures.on_failure(at), Verdict::Restart { after_ms: 0 });
        }
    }

    #[test]
    fn a_panic_becomes_a_value_with_its_words() {
        let caught = guarded(|| -> u8 { panic!("out of cheese") });
        assert_eq!(caught.unwrap_err().0, "out of cheese");
        assert_eq!(guarded(|| 7).unwrap(), 7);
    }
}
