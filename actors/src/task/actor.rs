//! The actor of one unfinished task: it hears what happens, asks the machine, and does what that says.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, ResponseFuture};
use tracing::{debug, error, warn};

use super::announce;
use super::control::Control;
use super::launch;
use super::machine::{Effect, Input, TaskMachine};
use super::plan::Plan;
use super::settle::{Settled, settle};
use super::wire::{Ask, Running, Stopped};
use crate::error::{Error, Result};
use crate::house::{BusyGuard, House, LiveTask};
use crate::limits::{MAILBOX, SWEEP_PAUSE_MS};
use crate::root::SweepIn;
use crate::session::{ChildFailed, ChildLeft, SessionActor};
use crate::supervise::guarded;
use crate::sys;

/// The shell around [`TaskMachine`].
pub struct TaskActor {
    id: String,
    house: Arc<House>,
    parent: Addr<SessionActor>,
    /// None after a panic, until the supervisor says [`Rebuild`].
    machine: Option<TaskMachine>,
    control: Option<Control>,
    _busy: BusyGuard,
}

impl TaskActor {
    /// The actor of task `id`, a child of `parent`. It does nothing before [`LaunchTask`] or [`Rebuild`].
    pub fn new(id: String, house: Arc<House>, parent: Addr<SessionActor>) -> Self {
        let busy = house.busy.enter();
        TaskActor {
            id,
            house,
            parent,
            machine: None,
            control: None,
            _busy: busy,
        }
    }

    /// Asks the machine; a panic in it ends this machine and nothing else.
    fn on(&mut self, input: Input, ctx: &mut Context<Self>) {
        let Some(machine) = &mut self.machine else {
            debug!(task = %self.id, ?input, "dropped: the task's actor is being rebuilt");
            return;
        };
        let fail_points = &self.house.settings.fail_points;
        match guarded(|| {
            fail_points.hit("task.on");
            machine.on(&input)
        }) {
            Ok(effects) => {
                for effect in effects {
                    self.perform(effect, ctx);
                }
            }
            Err(panicked) => self.failed(&panicked.0),
        }
    }

    fn failed(&mut self, what: &str) {
        error!(task = %self.id, panic = what, "the task's actor failed; its supervisor decides");
        self.machine = None;
        self.parent.do_send(ChildFailed {
            id: self.id.clone(),
        });
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let addr = ctx.address();
        match effect {
            Effect::Attach => {
                let folder = self.house.home.task(&self.id);
                tokio::spawn(async move {
                    addr.do_send(Connected(Control::connect(&folder).await.ok()));
                });
            }
            Effect::Settle => {
                let (house, id) = (self.house.clone(), self.id.clone());
                tokio::spawn(async move {
                    let input = match settle(&house, &id).await {
                        Ok(Settled::Alive) => Input::FoundAlive,
                        Ok(Settled::Announced | Settled::Left | Settled::Gone) => Input::Settled,
                        Err(error) => {
                            warn!(task = %id, %error, "the end could not be announced yet; it is tried again");
                            // For whoever waits for the end and looks at the record.
                            house.store.wake(&announce::wake_key(&id));
                            Input::SettleFailed
                        }
                    };
                    addr.do_send(Happened(input));
                });
            }
            Effect::Pause(ms) => {
                ctx.run_later(Duration::from_millis(ms), |actor, ctx| {
                    actor.on(Input::PauseOver, ctx);
                });
            }
            Effect::Leave => {
                self.house.live.remove(&self.id);
                if let Ok(root) = self.house.root() {
                    root.do_send(SweepIn { ms: SWEEP_PAUSE_MS });
                }
                self.parent.do_send(ChildLeft {
                    id: self.id.clone(),
                });
                ctx.stop();
            }
        }
    }
}

impl Actor for TaskActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// Something happened to the task.
#[derive(Message)]
#[rtype(result = "()")]
struct Happened(Input);

impl Handler<Happened> for TaskActor {
    type Result = ();

    fn handle(&mut self, Happened(input): Happened, ctx: &mut Self::Context) {
        if input == Input::ShimGone {
            self.control = None;
        }
        self.on(input, ctx);
    }
}

/// The try to connect to the shim came to its end.
#[derive(Message)]
#[rtype(result = "()")]
struct Connected(Option<Control>);

impl Handler<Connected> for TaskActor {
    type Result = ();

    fn handle(&mut self, Connected(control): Connected, ctx: &mut Self::Context) {
        let Some(control) = control else {
            return self.on(Input::AttachFailed, ctx);
        };
        let addr = ctx.address();
        let watched = control.clone();
        tokio::spawn(async move {
            watched.closed().await;
            addr.do_send(Happened(Input::ShimGone));
        });
        let live = LiveTask {
            actor: ctx.address(),
            control: control.clone(),
            pid: control.hello().pid,
        };
        self.house.live.insert(&self.id, live);
        self.control = Some(control);
        self.on(Input::Attached, ctx);
    }
}

/// Start the command of this plan. Its row is committed.
#[derive(Message)]
#[rtype(result = "Result<Running>")]
pub struct LaunchTask(pub Box<Plan>);

impl Handler<LaunchTask> for TaskActor {
    type Result = ResponseFuture<Result<Running>>;

    fn handle(&mut self, LaunchTask(plan): LaunchTask, ctx: &mut Self::Context) -> Self::Result {
        self.machine = Some(TaskMachine::launching());
        let (house, addr) = (self.house.clone(), ctx.address());
        // Its own task, so that a caller who goes away does not leave a launch in the middle.
        let launched = tokio::spawn(async move {
            let result = launch::launch(&house, *plan).await;
            addr.do_send(Happened(match &result {
                Ok(_) => Input::Launched,
                Err(Error::NotStarted { .. } | Error::Io { .. }) => Input::LaunchFailed,
                Err(_) => Input::LaunchUnclear,
            }));
            result
        });
        Box::pin(async move {
            launched.await.unwrap_or_else(|error| {
                Err(Error::Internal(format!("a launch failed inside: {error}")))
            })
        })
    }
}

/// Begin (again) from the store and the folder.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Rebuild;

impl Handler<Rebuild> for TaskActor {
    type Result = ();

    fn handle(&mut self, _: Rebuild, ctx: &mut Self::Context) {
        let (machine, effects) = TaskMachine::attaching();
        self.machine = Some(machine);
        for effect in effects {
            self.perform(effect, ctx);
        }
    }
}

/// End the whole tree.
#[derive(Message)]
#[rtype(result = "Result<Stopped>")]
pub struct StopTask {
    /// Milliseconds to the second round, instead of the launch's.
    pub grace_ms: Option<u64>,
    /// The receipt's reason, instead of `stopped`.
    pub reason: Option<String>,
}

impl Handler<StopTask> for TaskActor {
    type Result = ResponseFuture<Result<Stopped>>;

    fn handle(&mut self, stop: StopTask, _: &mut Self::Context) -> Self::Result {
        let fail_points = self.house.settings.fail_points.clone();
        if let Err(panicked) = guarded(|| fail_points.hit("task.stop")) {
            self.failed(&panicked.0);
            let id = self.id.clone();
            return Box::pin(
                async move { Err(Error::ActorFailed(format!("the actor of task {id}"))) },
            );
        }
        let control = self.control.clone();
        let folder = self.house.home.task(&self.id);
        Box::pin(async move {
            let control = match control {
                Some(control) => control,
                // A stop may come between the start and the actor's own connection.
                None => Control::connect(&folder)
                    .await
                    .map_err(|_| Error::WrongState("the task has no living shim".into()))?,
            };
            // A command can freeze its own supervisor; it is woken, since the connection says that it is still that process.
            sys::resume(control.shim_pid());
            let answer = control
                .ask(Ask::Stop {
                    grace_ms: stop.grace_ms,
                    reason: stop.reason,
                })
                .await?;
            serde_json::from_value(answer).map_err(|error| {
                Error::Internal(format!("the shim's answer cannot be read: {error}"))
            })
        })
    }
}
