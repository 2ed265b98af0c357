//! What a task's actor decides: nothing here touches a process, a file or a clock.

use crate::limits::{ANNOUNCE_PAUSE_MAX_MS, ANNOUNCE_PAUSE_MS};

/// Where the actor stands with its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The launch is under way.
    Launching,
    /// Looking for the shim: after a node start, a restart of the actor, or a look that said it lives.
    Attaching,
    /// Connected to the living shim.
    Running,
    /// The shim is gone; its end is being announced. Counts the tries.
    Settling {
        /// Failed tries.
        failed: u32,
    },
    /// Announced, or never was: the actor leaves.
    Done,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The command runs.
    Launched,
    /// The command does not run and nothing of it is left.
    LaunchFailed,
    /// The launch came to an end that only the folder can explain.
    LaunchUnclear,
    /// The connection to the shim stands.
    Attached,
    /// There is no connection to be had.
    AttachFailed,
    /// The connection ended: the shim is gone or told the end.
    ShimGone,
    /// The end is announced, or there is nothing to announce.
    Settled,
    /// The folder says that the shim lives.
    FoundAlive,
    /// The announcement failed: store busy, disk full.
    SettleFailed,
    /// A pause is over.
    PauseOver,
}

/// What is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Connect to the shim.
    Attach,
    /// Look at the folder and announce the end if it has one.
    Settle,
    /// Say [`Input::PauseOver`] after so many milliseconds.
    Pause(u64),
    /// The task needs nobody any more.
    Leave,
}

/// The machine of one task.
#[derive(Debug)]
pub struct TaskMachine {
    phase: Phase,
}

impl TaskMachine {
    /// For a task that is about to be launched.
    pub fn launching() -> Self {
        TaskMachine {
            phase: Phase::Launching,
        }
    }

    /// For a task that was launched before: find its shim.
    pub fn attaching() -> (Self, Vec<Effect>) {
        (
            TaskMachine {
                phase: Phase::Attaching,
            },
            vec![Effect::Attach],
        )
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Something happened. What does not fit the phase is old news and changes nothing.
    #[must_use]
    #[expect(
        clippy::match_same_arms,
        reason = "one line for each thing that can happen, in the order of a life"
    )]
    pub fn on(&mut self, input: &Input) -> Vec<Effect> {
        let (phase, effects) = match (self.phase, input) {
            (Phase::Launching, Input::Launched) => (Phase::Attaching, vec![Effect::Attach]),
            (Phase::Launching, Input::LaunchFailed) => (Phase::Done, vec![Effect::Leave]),
            (Phase::Launching, Input::LaunchUnclear)
            | (Phase::Attaching, Input::AttachFailed)
            | (Phase::Running, Input::ShimGone) => {
                (Phase::Settling { failed: 0 }, vec![Effect::Settle])
            }
            (Phase::Attaching, Input::Attached) => (Phase::Running, vec![]),
            (Phase::Settling { .. }, Input::Settled) => (Phase::Done, vec![Effect::Leave]),
            // Alive, yet it could not be reached: it may be about to make its socket or about to end. Try again after a pause.
            (Phase::Settling { failed }, Input::FoundAlive | Input::SettleFailed) => (
                Phase::Settling {
                    failed: failed.saturating_add(1),
                },
                vec![Effect::Pause(pause_ms(failed))],
            ),
            // The shim is asked first: while it lives only it knows.
            (Phase::Settling { failed }, Input::PauseOver) => {
                (Phase::Settling { failed }, vec![Effect::Attach])
            }
            (Phase::Settling { .. }, Input::Attached) => (Phase::Running, vec![]),
            (Phase::Settling { failed }, Input::AttachFailed) => {
                (Phase::Settling { failed }, vec![Effect::Settle])
            }
            (phase, _) => (phase, vec![]),
        };
        self.phase = phase;
        effects
    }
}

fn pause_ms(failed: u32) -> u64 {
    ANNOUNCE_PAUSE_MS
        .saturating_mul(1 << failed.min(16))
        .min(ANNOUNCE_PAUSE_MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(machine: &mut TaskMachine, inputs: &[Input]) -> Vec<Effect> {
        inputs.iter().flat_map(|input| machine.on(input)).collect()
    }

    #[test]
    fn a_task_is_launched_attached_and_announced_once() {
        let mut machine = TaskMachine::launching();
        let effects = drive(
            &mut machine,
            &[
                Input::Launched,
                Input::Attached,
                Input::ShimGone,
                Input::Settled,
            ],
        );
        assert_eq!(effects, [Effect::Attach, Effect::Settle, Effect::Leave]);
        assert_eq!(machine.phase(), Phase::Done);
        assert!(
            drive(
                &mut machine,
                &[Input::ShimGone, Input::Settled, Input::PauseOver]
            )
            .is_empty()
        );
    }

    #[test]
    fn an_announcement_that_fails_is_tried_until_it_is_done_ever_more_rarely() {
        let (mut machine, _) = TaskMachine::attaching();
        assert_eq!(machine.on(&Input::AttachFailed), [Effect::Settle]);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            match machine.on(&Input::SettleFailed).as_slice() {
                [Effect::Pause(ms)] => pauses.push(*ms),
                other => panic!("{other:?}"),
            }
            assert_eq!(machine.on(&Input::PauseOver), [Effect::Attach]);
            assert_eq!(machine.on(&Input::AttachFailed), [Effect::Settle]);
        }
        assert_eq!(pauses[0], ANNOUNCE_PAUSE_MS);
        assert!(pauses.is_sorted());
        assert_eq!(*pauses.last().unwrap(), ANNOUNCE_PAUSE_MAX_MS);
        assert_eq!(machine.on(&Input::Settled), [Effect::Leave]);
    }

    #[test]
    fn a_shim_that_lives_is_never_given_up() {
        let (mut machine, _) = TaskMachine::attaching();
        let _ = machine.on(&Input::AttachFailed);
        assert!(matches!(
            machine.on(&Input::FoundAlive).as_slice(),
            [Effect::Pause(_)]
        ));
        assert_eq!(machine.on(&Input::PauseOver), [Effect::Attach]);
        assert!(machine.on(&Input::Attached).is_empty());
        assert_eq!(machine.phase(), Phase::Running);
    }

    #[test]
    fn a_failed_launch_leaves_nothing_to_do() {
        let mut machine = TaskMachine::launching();
        assert_eq!(machine.on(&Input::LaunchFailed), [Effect::Leave]);
    }
}
