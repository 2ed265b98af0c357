//! The actor of one owner session: the supervisor of the tasks it started.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, ResponseFuture};
use tracing::{error, warn};

use crate::error::{Error, Result};
use crate::house::House;
use crate::limits::MAILBOX;
use crate::requests::RequestKey;
use crate::root::{Root, SessionIdle, SessionStays};
use crate::supervise::{Failures, Verdict};
use crate::task::actor::{LaunchTask, Rebuild, TaskActor};
use crate::task::launch::{Committed, commit};
use crate::task::plan::Plan;
use crate::task::row::TaskRow;
use crate::task::wire::Running;

struct Child {
    actor: Addr<TaskActor>,
    failures: Failures,
}

/// The supervisor of one owner session's tasks.
pub struct SessionActor {
    name: String,
    house: Arc<House>,
    root: Addr<Root>,
    tasks: HashMap<String, Child>,
    born: Instant,
}

impl SessionActor {
    /// The actor of session `name`.
    pub fn new(name: String, house: Arc<House>, root: Addr<Root>) -> Self {
        SessionActor {
            name,
            house,
            root,
            tasks: HashMap::new(),
            born: Instant::now(),
        }
    }

    fn child(&mut self, id: &str, ctx: &mut Context<Self>) -> Addr<TaskActor> {
        if let Some(child) = self.tasks.get(id) {
            return child.actor.clone();
        }
        let actor = TaskActor::new(id.to_owned(), self.house.clone(), ctx.address()).start();
        self.tasks.insert(
            id.to_owned(),
            Child {
                actor: actor.clone(),
                failures: Failures::default(),
            },
        );
        actor
    }

    fn leave_if_idle(&self) {
        if self.tasks.is_empty() {
            self.root.do_send(SessionIdle {
                name: self.name.clone(),
            });
        }
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Launched {
    /// The row as it was committed, or the one that was there.
    pub row: TaskRow,
    /// A task of that key was there: nothing was started.
    pub joined: bool,
    /// The process, of a task that this call started.
    pub running: Option<Running>,
}

/// Start a task of this session.
#[derive(Message)]
#[rtype(result = "Result<Launched>")]
pub struct StartTask {
    /// The checked launch.
    pub plan: Box<Plan>,
    /// The request id, if the caller gave one.
    pub request: Option<RequestKey>,
}

impl Handler<StartTask> for SessionActor {
    type Result = ResponseFuture<Result<Launched>>;

    fn handle(&mut self, start: StartTask, ctx: &mut Self::Context) -> Self::Result {
        let StartTask { plan, request } = start;
        let (house, id, row) = (
            self.house.clone(),
            plan.row.spec.id.clone(),
            plan.row.clone(),
        );
        // The child exists before the commit, so that nothing can come between row and supervisor.
        let task = self.child(&id, ctx);
        let session = ctx.address();
        // Its own task: a caller who goes away must not leave a row without a launch.
        let started = tokio::spawn(async move {
            match commit(&house, &plan, request).await {
                Ok(Committed::New) => house.settings.fail_points.die("launch.committed"),
                Ok(Committed::Joined(row)) => {
                    session.do_send(ChildLeft { id });
                    return Ok(Launched {
                        row: *row,
                        joined: true,
                        running: None,
                    });
                }
                Ok(Committed::Repeated(row)) => {
                    session.do_send(ChildLeft { id });
                    return Ok(Launched {
                        row: *row,
                        joined: false,
                        running: None,
                    });
                }
                Err(error) => {
                    session.do_send(ChildLeft { id });
                    return Err(error);
                }
            }
            let running = match task.send(LaunchTask(plan)).await {
                Ok(launched) => launched?,
                Err(_closed) => return Err(Error::ActorFailed(format!("the actor of task {id}"))),
            };
            Ok(Launched {
                row,
                joined: false,
                running: Some(running),
            })
        });
        Box::pin(async move {
            started.await.unwrap_or_else(|error| {
                Err(Error::Internal(format!("a start failed inside: {error}")))
            })
        })
    }
}

/// Look after a task that was launched before.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TendTask {
    /// Its id.
    pub id: String,
}

impl Handler<TendTask> for SessionActor {
    type Result = ();

    fn handle(&mut self, TendTask { id }: TendTask, ctx: &mut Self::Context) {
        self.child(&id, ctx).do_send(Rebuild);
    }
}

/// A child's machine panicked.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ChildFailed {
    /// The child's task.
    pub id: String,
}

impl Handler<ChildFailed> for SessionActor {
    type Result = ();

    fn handle(&mut self, ChildFailed { id }: ChildFailed, ctx: &mut Self::Context) {
        let now = self.born.elapsed().as_millis() as u64;
        let Some(child) = self.tasks.get_mut(&id) else {
            return;
        };
        match child.failures.on_failure(now) {
            Verdict::Restart { after_ms } => {
                warn!(session = %self.name, task = %id, after_ms, "restarting the task's actor");
                let actor = child.actor.clone();
                ctx.run_later(Duration::from_millis(after_ms), move |_, _| {
                    actor.do_send(Rebuild);
                });
            }
            // The process and its shim go on; the next start of a node looks after them again.
            Verdict::GiveUp => {
                error!(session = %self.name, task = %id, "the task's actor fails too often and stays down until the node's next start");
            }
        }
    }
}

/// A child has nothing left to do.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ChildLeft {
    /// The child's task.
    pub id: String,
}

impl Handler<ChildLeft> for SessionActor {
    type Result = ();

    fn handle(&mut self, ChildLeft { id }: ChildLeft, _: &mut Self::Context) {
        self.tasks.remove(&id);
        self.leave_if_idle();
    }
}

/// The root does not know this session any more; it leaves, unless something came in between.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Retire;

impl Handler<Retire> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: Retire, ctx: &mut Self::Context) {
        if self.tasks.is_empty() {
            ctx.stop();
        } else {
            self.root.do_send(SessionStays {
                name: self.name.clone(),
                actor: ctx.address(),
            });
        }
    }
}
