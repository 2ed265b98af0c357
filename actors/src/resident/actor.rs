//! The actor of one resident: it hears that the log grew, asks the machine, and does what that says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message};
use tracing::{error, warn};
use weft_mesh::Pattern;

use super::machine::{Effect, Input, Outcome, ResidentMachine};
use super::rows::LogState;
use super::run::{self, Next, Ran};
use crate::house::{BusyGuard, House};
use crate::limits::MAILBOX;
use crate::root::{DropResident, Root};
use crate::supervise::{Failures, Verdict, guarded};

/// The shell around [`ResidentMachine`].
pub struct ResidentActor {
    name: String,
    house: Arc<House>,
    root: Addr<Root>,
    machine: Option<ResidentMachine>,
    failures: Failures,
    born: Instant,
    /// The event at hand and how its last run went.
    next: Option<Next>,
    ran: Option<Ran>,
    /// What the log watcher watches; it is replaced when the topics change.
    watched: Vec<Pattern>,
    watching: Option<tokio::task::AbortHandle>,
    /// While an event is at hand the node must not end for idleness.
    busy: Option<BusyGuard>,
}

impl ResidentActor {
    /// The actor of resident `name`. It begins with the first [`LookAgain`].
    pub fn new(name: String, house: Arc<House>, root: Addr<Root>) -> Self {
        ResidentActor {
            name,
            house,
            root,
            machine: None,
            failures: Failures::default(),
            born: Instant::now(),
            next: None,
            ran: None,
            watched: Vec::new(),
            watching: None,
            busy: None,
        }
    }

    fn on(&mut self, input: Input, ctx: &mut Context<Self>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let fail_points = &self.house.settings.fail_points;
        match guarded(|| {
            fail_points.hit("resident.on");
            machine.on(input)
        }) {
            Ok(effects) => {
                let idle = machine.is_idle();
                self.busy = if idle {
                    None
                } else {
                    self.busy.take().or_else(|| Some(self.house.busy.enter()))
                };
                for effect in effects {
                    self.perform(effect, ctx);
                }
            }
            Err(panicked) => self.failed(&panicked.0, ctx),
        }
    }

    /// The resident is a child of the root: the rule is the same as a session's for its tasks.
    fn failed(&mut self, what: &str, ctx: &mut Context<Self>) {
        error!(resident = %self.name, panic = what, "the resident's actor failed");
        self.machine = None;
        match self
            .failures
            .on_failure(self.born.elapsed().as_millis() as u64)
        {
            Verdict::Restart { after_ms } => {
                ctx.run_later(Duration::from_millis(after_ms), |actor, ctx| {
                    actor.begin(ctx);
                });
            }
            Verdict::GiveUp => {
                error!(resident = %self.name, "the resident fails too often and stays down until it is resumed or the node starts again");
                self.root.do_send(DropResident {
                    name: self.name.clone(),
                });
            }
        }
    }

    /// Begins from the store: an event at hand is found again by the cursor, its run by its key.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        let (house, name, addr) = (self.house.clone(), self.name.clone(), ctx.address());
        tokio::spawn(async move {
            let row = match house.look(move |sql| super::rows::get(sql, &name)).await {
                Ok(row) => row,
                Err(error) => {
                    warn!(%error, "a resident's row could not be read; tried again");
                    tokio::time::sleep(Duration::from_millis(crate::limits::RETRY_PAUSE_MS)).await;
                    return addr.do_send(LookAgain);
                }
            };
            if let Some(row) = row
                && let Ok(patterns) = run::patterns(&row)
            {
                addr.do_send(Begin {
                    retries: row.spec.retries,
                    patterns,
                });
            }
        });
    }

    fn watch(&mut self, patterns: Vec<Pattern>, ctx: &mut Context<Self>) {
        if self.watching.is_some() && self.watched == patterns {
            return;
        }
        if let Some(watching) = self.watching.take() {
            watching.abort();
        }
        let mut watcher = self.house.store.watch(&patterns);
        self.watched = patterns;
        let addr = ctx.address();
        self.watching = Some(
            tokio::spawn(async move {
                loop {
                    watcher.changed().await;
                    // `send` waits for the mailbox: hints that come faster than the actor hears them fall together.
                    if addr.send(LogGrew).await.is_err() {
                        return;
                    }
                }
            })
            .abort_handle(),
        );
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let (house, addr, name) = (self.house.clone(), ctx.address(), self.name.clone());
        match effect {
            Effect::Fetch => {
                (self.next, self.ran) = (None, None);
                tokio::spawn(async move {
                    let found = match run::next(&house, &name).await {
                        Ok(Some(next)) => Look::Event(Box::new(next)),
                        Ok(None) => Look::Nothing,
                        Err(error) => {
                            warn!(resident = %name, %error, "the log could not be read; tried again");
                            Look::Failed
                        }
                    };
                    addr.do_send(Fetched(found));
                });
            }
            Effect::Run { attempt } => {
                let Some(next) = self.next.clone() else {
                    return;
                };
                tokio::spawn(async move {
                    let ran = run::handle(&house, &next, attempt).await;
                    if let Err(error) = &ran {
                        warn!(resident = %name, %error, "the handler's run is unclear; tried again");
                    }
                    addr.do_send(Ended(ran.ok()));
                });
            }
            Effect::Record(outcome) => {
                let Some(next) = self.next.clone() else {
                    return;
                };
                let ran = self.ran.clone();
                let (state, attempt) = match outcome {
                    Outcome::Acknowledged { attempt } => (LogState::Acknowledged, attempt),
                    Outcome::Failed { attempt } => (LogState::Failed, attempt),
                    Outcome::Dead { attempt } => (LogState::Dead, attempt),
                };
                tokio::spawn(async move {
                    let recorded = run::record(&house, &next, attempt, state, ran.as_ref()).await;
                    if let Err(error) = &recorded {
                        warn!(resident = %name, %error, "an outcome could not be recorded; tried again");
                    }
                    addr.do_send(Heard(if recorded.is_ok() {
                        Input::Recorded
                    } else {
                        Input::RecordFailed
                    }));
                });
            }
            Effect::Pause(ms) => {
                ctx.run_later(jittered(ms), |actor, ctx| actor.on(Input::PauseOver, ctx));
            }
        }
    }
}

/// Up to a fifth more or less, so that residents that failed together do not come back together.
fn jittered(ms: u64) -> Duration {
    let mut byte = [0_u8; 1];
    // Without random numbers there is no jitter, and nothing worse.
    let _ = getrandom::fill(&mut byte);
    Duration::from_millis(ms * 4 / 5 + ms * 2 / 5 * u64::from(byte[0]) / 255)
}

impl Actor for ResidentActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        if let Some(watching) = self.watching.take() {
            watching.abort();
        }
    }
}

/// The resident was made, resumed or changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LookAgain;

impl Handler<LookAgain> for ResidentActor {
    type Result = ();

    fn handle(&mut self, _: LookAgain, ctx: &mut Self::Context) {
        if self.machine.is_some() {
            self.on(Input::LookAgain, ctx);
        } else {
            self.begin(ctx);
        }
    }
}

/// The log grew where this resident reads.
#[derive(Message)]
#[rtype(result = "()")]
struct LogGrew;

impl Handler<LogGrew> for ResidentActor {
    type Result = ();

    fn handle(&mut self, _: LogGrew, ctx: &mut Self::Context) {
        self.on(Input::LookAgain, ctx);
    }
}

/// The row was read: what to watch and how patient to be.
#[derive(Message)]
#[rtype(result = "()")]
struct Begin {
    retries: u32,
    patterns: Vec<Pattern>,
}

impl Handler<Begin> for ResidentActor {
    type Result = ();

    fn handle(&mut self, begin: Begin, ctx: &mut Self::Context) {
        if self.machine.is_some() {
            return self.on(Input::LookAgain, ctx);
        }
        // The watcher stands before the first look, so that nothing appended between is missed.
        self.watch(begin.patterns, ctx);
        let (machine, effects) = ResidentMachine::new(begin.retries);
        self.machine = Some(machine);
        self.busy = Some(self.house.busy.enter());
        for effect in effects {
            self.perform(effect, ctx);
        }
    }
}

/// The look for the next event came to its end.
#[derive(Message)]
#[rtype(result = "()")]
struct Fetched(Look);

/// What a look for the next event found.
enum Look {
    Event(Box<Next>),
    Nothing,
    Failed,
}

impl Handler<Fetched> for ResidentActor {
    type Result = ();

    fn handle(&mut self, Fetched(found): Fetched, ctx: &mut Self::Context) {
        let input = match &found {
            Look::Failed => Input::FetchFailed,
            Look::Nothing => Input::NothingFound,
            Look::Event(next) => Input::Fetched {
                failed: next.failed,
            },
        };
        self.next = match found {
            Look::Event(next) => Some(*next),
            Look::Nothing | Look::Failed => None,
        };
        self.on(input, ctx);
    }
}

/// The handler's run came to its end.
#[derive(Message)]
#[rtype(result = "()")]
struct Ended(Option<Ran>);

impl Handler<Ended> for ResidentActor {
    type Result = ();

    fn handle(&mut self, Ended(ran): Ended, ctx: &mut Self::Context) {
        let input = match &ran {
            Some(Ran::Took { .. }) => Input::RunSucceeded,
            Some(Ran::Refused { .. }) => Input::RunFailed,
            None => Input::RunUnclear,
        };
        self.ran = ran;
        self.on(input, ctx);
    }
}

/// Something else was heard.
#[derive(Message)]
#[rtype(result = "()")]
struct Heard(Input);

impl Handler<Heard> for ResidentActor {
    type Result = ();

    fn handle(&mut self, Heard(input): Heard, ctx: &mut Self::Context) {
        self.on(input, ctx);
    }
}

/// The resident was removed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LeaveResident;

impl Handler<LeaveResident> for ResidentActor {
    type Result = ();

    fn handle(&mut self, _: LeaveResident, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
