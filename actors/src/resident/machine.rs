//! What a resident decides: one event at a time, retries with back-off, then the dead letter.

use crate::limits::{RETRY_PAUSE_MAX_MS, RETRY_PAUSE_MS};

/// Where a resident stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing to do until the log grows.
    Idle,
    /// Looking for its next event. `again`: the log grew meanwhile.
    Fetching {
        /// Look once more before going idle.
        again: bool,
    },
    /// The handler runs.
    Running {
        /// Counted from 1.
        attempt: u32,
    },
    /// The outcome is being recorded.
    Recording(Outcome),
    /// Waiting before the next attempt, or before recording again.
    Pausing(Then),
}

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The handler took it: the cursor moves.
    Acknowledged {
        /// Counted from 1.
        attempt: u32,
    },
    /// It did not; it comes again.
    Failed {
        /// Counted from 1.
        attempt: u32,
    },
    /// It did not, and patience is over: to the dead letters, and the cursor moves.
    Dead {
        /// The last attempt.
        attempt: u32,
    },
}

/// What follows a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Run the handler.
    Run {
        /// Counted from 1.
        attempt: u32,
    },
    /// Record the outcome again.
    Record(Outcome),
    /// Look for the next event again.
    Fetch,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// The log grew, or the resident's row changed. A hint.
    LookAgain,
    /// There is an event, of which so many attempts failed before.
    Fetched {
        /// Failed attempts on record.
        failed: u32,
    },
    /// There is none, or the resident is paused.
    NothingFound,
    /// The store could not be read.
    FetchFailed,
    /// The handler took the event.
    RunSucceeded,
    /// It did not.
    RunFailed,
    /// Nobody can say (the node could not start it for want of space, say): no attempt was spent.
    RunUnclear,
    /// The outcome is recorded.
    Recorded,
    /// It is not: tried again.
    RecordFailed,
    /// The pause is over.
    PauseOver,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Look for the next event.
    Fetch,
    /// Run the handler.
    Run {
        /// Counted from 1.
        attempt: u32,
    },
    /// Record how it went.
    Record(Outcome),
    /// Say [`Input::PauseOver`] after about so many milliseconds.
    Pause(u64),
}

/// The machine of one resident.
#[derive(Debug)]
pub struct ResidentMachine {
    phase: Phase,
    retries: u32,
}

impl ResidentMachine {
    /// A resident that retries so often. It begins by looking.
    pub fn new(retries: u32) -> (Self, Vec<Effect>) {
        (
            ResidentMachine {
                phase: Phase::Fetching { again: false },
                retries,
            },
            vec![Effect::Fetch],
        )
    }

    /// Whether it waits for the log to grow.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Something happened. What does not fit the phase is old news and changes nothing.
    #[must_use]
    #[expect(
        clippy::match_same_arms,
        reason = "one line for each thing that can happen, in the order of a life"
    )]
    pub fn on(&mut self, input: Input) -> Vec<Effect> {
        let (phase, effect) = match (self.phase, input) {
            (Phase::Idle, Input::LookAgain) => fetch(),
            (Phase::Fetching { .. }, Input::LookAgain) => (Phase::Fetching { again: true }, None),
            (Phase::Fetching { again: true }, Input::NothingFound) => fetch(),
            (Phase::Fetching { again: false }, Input::NothingFound) => (Phase::Idle, None),
            (Phase::Fetching { .. }, Input::FetchFailed) => (
                Phase::Pausing(Then::Fetch),
                Some(Effect::Pause(RETRY_PAUSE_MS)),
            ),
            (Phase::Fetching { .. }, Input::Fetched { failed }) if failed > self.retries => {
                record(Outcome::Dead { attempt: failed })
            }
            (Phase::Fetching { .. }, Input::Fetched { failed }) => run(failed + 1),
            (Phase::Running { attempt }, Input::RunSucceeded) => {
                record(Outcome::Acknowledged { attempt })
            }
            (Phase::Running { attempt }, Input::RunFailed) if attempt > self.retries => {
                record(Outcome::Dead { attempt })
            }
            (Phase::Running { attempt }, Input::RunFailed) => record(Outcome::Failed { attempt }),
            (Phase::Running { attempt }, Input::RunUnclear) => (
                Phase::Pausing(Then::Run { attempt }),
                Some(Effect::Pause(RETRY_PAUSE_MS)),
            ),
            // The row is read again after the pause: the resident may have been paused or changed meanwhile.
            (Phase::Recording(Outcome::Failed { attempt }), Input::Recorded) => (
                Phase::Pausing(Then::Fetch),
                Some(Effect::Pause(pause_ms(attempt))),
            ),
            (
                Phase::Recording(Outcome::Acknowledged { .. } | Outcome::Dead { .. }),
                Input::Recorded,
            ) => fetch(),
            (Phase::Recording(outcome), Input::RecordFailed) => (
                Phase::Pausing(Then::Record(outcome)),
                Some(Effect::Pause(RETRY_PAUSE_MS)),
            ),
            (Phase::Pausing(Then::Run { attempt }), Input::PauseOver) => run(attempt),
            (Phase::Pausing(Then::Record(outcome)), Input::PauseOver) => record(outcome),
            (Phase::Pausing(Then::Fetch), Input::PauseOver) => fetch(),
            (phase, _) => (phase, None),
        };
        self.phase = phase;
        effect.into_iter().collect()
    }
}

fn fetch() -> (Phase, Option<Effect>) {
    (Phase::Fetching { again: false }, Some(Effect::Fetch))
}

fn run(attempt: u32) -> (Phase, Option<Effect>) {
    (Phase::Running { attempt }, Some(Effect::Run { attempt }))
}

fn record(outcome: Outcome) -> (Phase, Option<Effect>) {
    (Phase::Recording(outcome), Some(Effect::Record(outcome)))
}

/// The pause after `attempt` failed, before jitter.
fn pause_ms(attempt: u32) -> u64 {
    RETRY_PAUSE_MS
        .saturating_mul(1 << (attempt.saturating_sub(1)).min(16))
        .min(RETRY_PAUSE_MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(machine: &mut ResidentMachine, input: Input) -> Option<Effect> {
        let effects = machine.on(input);
        assert!(effects.len() <= 1);
        effects.into_iter().next()
    }

    #[test]
    fn an_event_is_run_once_and_acknowledged() {
        let (mut machine, _) = ResidentMachine::new(5);
        assert_eq!(
            step(&mut machine, Input::Fetched { failed: 0 }),
            Some(Effect::Run { attempt: 1 })
        );
        assert_eq!(step(&mut machine, Input::LookAgain), None);
        assert_eq!(
            step(&mut machine, Input::RunSucceeded),
            Some(Effect::Record(Outcome::Acknowledged { attempt: 1 }))
        );
        assert_eq!(step(&mut machine, Input::Recorded), Some(Effect::Fetch));
        assert_eq!(step(&mut machine, Input::NothingFound), None);
        assert!(machine.is_idle());
    }

    #[test]
    fn after_its_retries_an_event_is_lettered_once() {
        let (mut machine, _) = ResidentMachine::new(2);
        let mut attempts = Vec::new();
        let mut effect = step(&mut machine, Input::Fetched { failed: 0 });
        let mut pauses = Vec::new();
        loop {
            match effect {
                Some(Effect::Run { attempt }) => {
                    attempts.push(attempt);
                    effect = step(&mut machine, Input::RunFailed);
                }
                Some(Effect::Record(Outcome::Failed { .. })) => {
                    effect = step(&mut machine, Input::Recorded);
                }
                Some(Effect::Pause(ms)) => {
                    pauses.push(ms);
                    assert_eq!(step(&mut machine, Input::PauseOver), Some(Effect::Fetch));
                    effect = step(
                        &mut machine,
                        Input::Fetched {
                            failed: attempts.len() as u32,
                        },
                    );
                }
                Some(Effect::Record(Outcome::Dead { attempt })) => {
                    assert_eq!(attempt, 3);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(attempts, [1, 2, 3]);
        assert_eq!(pauses, [RETRY_PAUSE_MS, 2 * RETRY_PAUSE_MS]);
        assert_eq!(step(&mut machine, Input::Recorded), Some(Effect::Fetch));
    }

    #[test]
    fn a_hint_while_it_looks_is_not_lost() {
        let (mut machine, _) = ResidentMachine::new(0);
        assert_eq!(step(&mut machine, Input::LookAgain), None);
        assert_eq!(step(&mut machine, Input::NothingFound), Some(Effect::Fetch));
        assert_eq!(step(&mut machine, Input::NothingFound), None);
    }

    #[test]
    fn attempts_are_counted_over_a_restart() {
        let (mut machine, _) = ResidentMachine::new(2);
        assert_eq!(
            step(&mut machine, Input::Fetched { failed: 2 }),
            Some(Effect::Run { attempt: 3 })
        );
        let (mut machine, _) = ResidentMachine::new(2);
        assert_eq!(
            step(&mut machine, Input::Fetched { failed: 3 }),
            Some(Effect::Record(Outcome::Dead { attempt: 3 }))
        );
    }

    #[test]
    fn what_could_not_be_recorded_is_recorded_again() {
        let (mut machine, _) = ResidentMachine::new(2);
        let _ = machine.on(Input::Fetched { failed: 0 });
        let _ = machine.on(Input::RunSucceeded);
        assert!(matches!(
            step(&mut machine, Input::RecordFailed),
            Some(Effect::Pause(_))
        ));
        assert_eq!(
            step(&mut machine, Input::PauseOver),
            Some(Effect::Record(Outcome::Acknowledged { attempt: 1 }))
        );
    }
}
