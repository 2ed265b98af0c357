use super::*;
use proptest::prelude::*;

fn machine(lease: Lease, deadline_ms: Option<u64>, streams: usize) -> Machine {
    let rules = Rules {
        lease,
        deadline_ms,
        deadline_reason: "deadline".into(),
        grace_ms: 500,
    };
    Machine::new(0, rules, streams)
}

const SETTLED: Round = Round {
    has_newcomers: false,
    is_unsettled: false,
};

#[test]
fn an_end_waits_for_its_streams_and_no_longer() {
    let mut task = machine(Lease::Durable, None, 1);
    assert_eq!(task.on_main_ended(10), [Effect::ReapMain]);
    assert_eq!(task.on_stream_end(), [Effect::Finish]);
    assert!(!task.is_held_open());
}

#[test]
fn a_quiet_descendant_holds_an_end_up_for_250_ms() {
    let mut task = machine(Lease::Durable, None, 1);
    let _ = task.on_main_ended(1000);
    assert_eq!(task.next_wake(), Some(1250));
    task.on_output(1100);
    assert_eq!(task.on_time(1250), []);
    assert_eq!(task.on_time(1350), [Effect::Finish]);
    assert!(task.is_held_open());
}

#[test]
fn a_chatty_descendant_holds_an_end_up_for_2_s() {
    let mut task = machine(Lease::Durable, None, 1);
    let _ = task.on_main_ended(0);
    for now in (0..2000).step_by(50) {
        task.on_output(now);
        assert_eq!(task.on_time(now), []);
    }
    assert_eq!(task.on_time(2000), [Effect::Finish]);
}

#[test]
fn a_stop_ends_early_when_the_tree_is_gone() {
    let mut task = machine(Lease::Durable, None, 1);
    assert_eq!(task.on_stop(0, None, None), [Effect::Terminate]);
    assert_eq!(task.on_main_ended(20), []);
    assert_eq!(task.on_tree_empty(20), [Effect::ReapMain]);
    assert_eq!(task.on_stream_end(), [Effect::Finish]);
    let outcome = task.outcome(MainEnd::Signal(15));
    assert_eq!((outcome.state, outcome.exit_code), (EndState::Killed, 143));
    assert_eq!(outcome.reason.as_deref(), Some("stopped"));
}

#[test]
fn a_stop_freezes_until_nobody_is_new_and_then_kills() {
    let mut task = machine(Lease::Durable, None, 1);
    let _ = task.on_stop(0, Some(100), None);
    assert_eq!(task.on_time(99), []);
    assert_eq!(task.on_time(100), [Effect::Freeze]);
    let newcomers = Round {
        has_newcomers: true,
        ..SETTLED
    };
    assert_eq!(task.on_frozen(100, newcomers), []);
    assert_eq!(task.on_time(100), [Effect::Freeze]);
    assert_eq!(task.on_frozen(101, SETTLED), [Effect::Kill]);
    assert_eq!(task.on_time(101 + KILL_PAUSE_MS), [Effect::Kill]);
    assert_eq!(task.on_time(101 + STOP_CAP_MS), [Effect::GiveUp]);
    assert!(!task.is_stopping());
}

#[test]
fn freezing_has_a_cap() {
    let mut task = machine(Lease::Durable, None, 1);
    let _ = task.on_stop(0, Some(0), None);
    let _ = task.on_time(0);
    let unsettled = Round {
        is_unsettled: true,
        ..SETTLED
    };
    assert_eq!(task.on_frozen(1, unsettled), []);
    assert_eq!(task.on_frozen(FREEZE_CAP_MS, unsettled), [Effect::Kill]);
}

#[test]
fn a_second_stop_with_less_patience_is_heard_and_keeps_the_first_reason() {
    let mut task = machine(Lease::Durable, None, 1);
    let _ = task.on_stop(0, Some(60_000), Some("first"));
    assert_eq!(task.on_stop(10, Some(0), Some("second")), []);
    assert_eq!(task.on_time(10), [Effect::Freeze]);
    let outcome = task.outcome(MainEnd::Code(0));
    assert_eq!(outcome.reason.as_deref(), Some("first"));
    assert_eq!(outcome.state, EndState::Killed);
}

#[test]
fn a_deadline_is_a_stop_with_another_name() {
    let mut task = machine(Lease::Durable, Some(5000), 1);
    assert_eq!(task.next_wake(), Some(5000));
    assert_eq!(task.on_time(5000), [Effect::Terminate]);
    assert_eq!(task.outcome(MainEnd::Signal(15)).state, EndState::TimedOut);
}

#[test]
fn a_foreground_task_ends_with_its_last_holder_or_without_a_first_one() {
    let mut alone = machine(Lease::Foreground, None, 1);
    assert_eq!(alone.on_time(HOLDER_WAIT_MS), [Effect::Terminate]);
    let mut held = machine(Lease::Foreground, None, 1);
    held.on_hold();
    held.on_hold();
    assert_eq!(held.on_release(5), []);
    assert_eq!(held.on_release(6), [Effect::Terminate]);
    let outcome = held.outcome(MainEnd::Signal(15));
    assert_eq!(outcome.reason.as_deref(), Some("caller-gone"));
}

#[test]
fn a_lease_moves_away_from_the_foreground_and_not_back() {
    let mut task = machine(Lease::Foreground, None, 1);
    task.on_hold();
    task.on_lease(Lease::Session).unwrap();
    assert_eq!(task.on_release(5), []);
    task.on_lease(Lease::Durable).unwrap();
    task.on_lease(Lease::Session).unwrap();
    assert!(task.on_lease(Lease::Foreground).is_err());
    assert_eq!(task.next_wake(), None);
}

#[test]
fn an_end_is_named_by_who_caused_it() {
    let mut task = machine(Lease::Durable, None, 1);
    for (end, state, code, signal) in [
        (MainEnd::Signal(9), EndState::Failed, 137, Some(9)),
        (MainEnd::Signal(1), EndState::Failed, 129, Some(1)),
        (MainEnd::Code(137), EndState::Failed, 137, None),
        (MainEnd::Code(0), EndState::Exited, 0, None),
    ] {
        let got = task.outcome(end);
        assert_eq!(
            (got.state, got.exit_code, got.signal),
            (state, code, signal)
        );
    }
    task.on_signal_sent(2);
    assert_eq!(task.outcome(MainEnd::Signal(2)).state, EndState::Killed);
    assert_eq!(task.outcome(MainEnd::Signal(9)).state, EndState::Failed);
    assert_eq!(task.outcome(MainEnd::Code(0)).state, EndState::Exited);
}

#[test]
fn a_stop_that_comes_after_the_end_changes_nothing() {
    let mut task = machine(Lease::Durable, Some(10), 1);
    let _ = task.on_main_ended(5);
    assert_eq!(task.on_stop(6, None, None), []);
    assert_eq!(task.on_time(20), []);
    assert_eq!(task.outcome(MainEnd::Code(0)).state, EndState::Exited);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Stop,
    MainEnds,
    TreeEmpty,
    Frozen(bool),
    Output,
    StreamEnds,
    Hold,
    Release,
    Time,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Stop),
        Just(Step::MainEnds),
        Just(Step::TreeEmpty),
        any::<bool>().prop_map(Step::Frozen),
        Just(Step::Output),
        Just(Step::StreamEnds),
        Just(Step::Hold),
        Just(Step::Release),
        Just(Step::Time),
    ]
}

proptest! {
    // Invariant: one wait for the main process and one end, whatever happens in whatever order, and once the
    // main process has ended the end comes by time alone.
    #[test]
    fn every_task_ends_once(steps in proptest::collection::vec((step(), 0..800_u64), 0..60)) {
        let mut task = machine(Lease::Foreground, Some(20_000), 2);
        let mut now = 0;
        let mut effects = Vec::new();
        for (step, pause) in steps {
            now += pause;
            effects.extend(match step {
                Step::Stop => task.on_stop(now, None, None),
                Step::MainEnds => task.on_main_ended(now),
                Step::TreeEmpty => task.on_tree_empty(now),
                Step::Frozen(is_unsettled) => task.on_frozen(now, Round { has_newcomers: false, is_unsettled }),
                Step::Output => { task.on_output(now); Vec::new() }
                Step::StreamEnds => task.on_stream_end(),
                Step::Hold => { task.on_hold(); Vec::new() }
                Step::Release => task.on_release(now),
                Step::Time => task.on_time(now),
            });
        }
        effects.extend(task.on_main_ended(now));
        for _ in 0..400 {
            let Some(at) = task.next_wake() else { break };
            now = now.max(at);
            let told = task.on_time(now);
            if told.contains(&Effect::Freeze) {
                effects.extend(task.on_frozen(now, SETTLED));
            }
            effects.extend(told);
        }
        let count = |wanted| effects.iter().filter(|effect| **effect == wanted).count();
        prop_assert_eq!(count(Effect::ReapMain), 1);
        prop_assert_eq!(count(Effect::Finish), 1);
    }
}
