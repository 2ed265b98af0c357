//! The root actor: sessions and residents are its children, started in order and found by name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseFuture, SpawnHandle};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::error::{Error, Result};
use crate::house::{House, now_ms};
use crate::limits::{FINISHED_KEPT_MS, MAILBOX, SETTLE_AT_ONCE, SWEEP_PAUSE_MS};
use crate::requests::RequestKey;
use crate::resident::actor::{LeaveResident, LookAgain, ResidentActor};
use crate::session::{Launched, Retire, SessionActor, StartTask, TendTask};
use crate::task::folder::Folder;
use crate::task::intake::take_in;
use crate::task::janitor::sweep;
use crate::task::plan::Plan;
use crate::task::row::{self, TaskRow};
use crate::task::settle::{Settled, settle_unless};
use crate::task::unbegun;
use crate::task::view::blocking;

/// The root of the node's actors.
pub struct Root {
    house: Arc<House>,
    sessions: HashMap<String, Addr<SessionActor>>,
    residents: HashMap<String, Addr<ResidentActor>>,
    /// The next look for tasks to forget.
    sweep: Option<(Instant, SpawnHandle)>,
}

impl Root {
    /// Starts the root and what the store says is to be looked after: unannounced tasks first, since residents may wait for
    /// their ends.
    pub async fn begin(house: Arc<House>) -> Result<Addr<Root>> {
        take_in(&house).await?;
        let tasks = house.look(row::unannounced).await?;
        let residents = house.look(crate::resident::rows::all).await?;
        note_shims(&house, &tasks).await?;
        let tasks = announce_ended(&house, tasks).await;
        let root = Root {
            house: house.clone(),
            sessions: HashMap::new(),
            residents: HashMap::new(),
            sweep: None,
        }
        .start();
        house.set_root(root.clone());
        info!(
            tasks = tasks.len(),
            residents = residents.len(),
            "looking after what was left"
        );
        for task in tasks {
            root.do_send(Tend {
                session: task.session,
                id: task.spec.id,
            });
        }
        for resident in residents {
            root.do_send(WakeResident {
                name: resident.name,
            });
        }
        root.do_send(SweepIn { ms: SWEEP_PAUSE_MS });
        Ok(root)
    }

    fn session(&mut self, name: &str, ctx: &mut Context<Self>) -> Addr<SessionActor> {
        if let Some(actor) = self.sessions.get(name) {
            return actor.clone();
        }
        let actor = SessionActor::new(name.to_owned(), self.house.clone(), ctx.address()).start();
        self.sessions.insert(name.to_owned(), actor.clone());
        actor
    }
}

/// Announces what ended while there was no node, before a door opens: the first caller sees it. Those that still run, or could
/// not be announced in this while, are left to their actors.
async fn announce_ended(house: &Arc<House>, tasks: Vec<TaskRow>) -> Vec<TaskRow> {
    let mut looks = JoinSet::new();
    let room = Arc::new(Semaphore::new(SETTLE_AT_ONCE));
    for task in tasks {
        let (house, room) = (house.clone(), room.clone());
        looks.spawn(async move {
            let _place = room.acquire().await;
            let settled = settle_unless(&house, &task.spec.id, async |row, end| {
                Ok(end.never_began() && unbegun::keep(&house, row).await?)
            });
            match settled.await {
                Ok(Settled::Announced | Settled::Left | Settled::Gone) => None,
                Ok(Settled::Alive) | Err(_) => Some(task),
            }
        });
    }
    let mut left = Vec::new();
    while let Some(look) = looks.join_next().await {
        left.extend(look.ok().flatten());
    }
    left
}

/// Learns which processes are shims of this home before a door opens: their commands may call at once, and count as tasks.
async fn note_shims(house: &Arc<House>, tasks: &[TaskRow]) -> Result<()> {
    let ids: Vec<String> = tasks.iter().map(|task| task.spec.id.clone()).collect();
    let house = house.clone();
    blocking(move || {
        for id in ids {
            let Ok(folder) = Folder::open(&house.home.task(&id)) else {
                continue;
            };
            // Only while its lock is held is the number in the file the shim's.
            if let (Ok(None), Ok(Some(started))) = (folder.try_lock(), folder.started()) {
                house.live.note_shim(started.shim, &id);
            }
        }
        Ok(())
    })
    .await
}

impl Actor for Root {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// Some time soon, look whether finished tasks are to be forgotten.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SweepIn {
    /// Milliseconds from now.
    pub ms: u64,
}

impl Handler<SweepIn> for Root {
    type Result = ();

    fn handle(&mut self, SweepIn { ms }: SweepIn, ctx: &mut Self::Context) {
        let at = Instant::now() + Duration::from_millis(ms);
        match self.sweep {
            // One that comes sooner serves as well; putting it off for every end would put it off for ever.
            Some((planned, _)) if planned <= at => return,
            Some((_, later)) => drop(ctx.cancel_future(later)),
            None => {}
        }
        let look = ctx.run_later(Duration::from_millis(ms), |root, ctx| {
            root.sweep = None;
            let (house, addr) = (root.house.clone(), ctx.address());
            tokio::spawn(async move {
                let next = match sweep(&house).await {
                    Ok(next) => next,
                    Err(error) => {
                        warn!(%error, "finished tasks could not be forgotten; tried again later");
                        Some(now_ms() + FINISHED_KEPT_MS)
                    }
                };
                if let Some(next) = next {
                    addr.do_send(SweepIn {
                        ms: next.saturating_sub(now_ms()).max(SWEEP_PAUSE_MS),
                    });
                }
            });
        });
        self.sweep = Some((at, look));
    }
}

/// Start a task for its session.
#[derive(Message)]
#[rtype(result = "Result<Launched>")]
pub struct Run {
    /// The checked launch.
    pub plan: Box<Plan>,
    /// The request id, if the caller gave one.
    pub request: Option<RequestKey>,
}

impl Handler<Run> for Root {
    type Result = ResponseFuture<Result<Launched>>;

    fn handle(&mut self, run: Run, ctx: &mut Self::Context) -> Self::Result {
        let session = self.session(&run.plan.row.session, ctx);
        // Sent here, in the root's order, so that a session that is about to leave hears of it first.
        let launched = session.send(StartTask {
            plan: run.plan,
            request: run.request,
        });
        Box::pin(async move {
            launched
                .await
                .unwrap_or_else(|_| Err(Error::ActorFailed("the session's actor".into())))
        })
    }
}

/// Look after a task that was launched before.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Tend {
    /// Its owner.
    pub session: String,
    /// Its id.
    pub id: String,
}

impl Handler<Tend> for Root {
    type Result = ();

    fn handle(&mut self, tend: Tend, ctx: &mut Self::Context) {
        self.session(&tend.session, ctx)
            .do_send(TendTask { id: tend.id });
    }
}

/// A session without children.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionIdle {
    /// Its name.
    pub name: String,
}

impl Handler<SessionIdle> for Root {
    type Result = ();

    fn handle(&mut self, idle: SessionIdle, _: &mut Self::Context) {
        if let Some(actor) = self.sessions.remove(&idle.name) {
            actor.do_send(Retire);
        }
    }
}

/// A session that was about to leave and got work.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionStays {
    /// Its name.
    pub name: String,
    /// Its actor.
    pub actor: Addr<SessionActor>,
}

impl Handler<SessionStays> for Root {
    type Result = ();

    fn handle(&mut self, stays: SessionStays, _: &mut Self::Context) {
        // Where a newer one has taken the name, both go on: a task belongs to one of them, and the row says who owns it.
        self.sessions.entry(stays.name).or_insert(stays.actor);
    }
}

/// A resident was made, resumed or told something: start its actor, or have it look.
#[derive(Message)]
#[rtype(result = "()")]
pub struct WakeResident {
    /// Its name.
    pub name: String,
}

impl Handler<WakeResident> for Root {
    type Result = ();

    fn handle(&mut self, WakeResident { name }: WakeResident, ctx: &mut Self::Context) {
        let house = self.house.clone();
        let root = ctx.address();
        let actor = self
            .residents
            .entry(name.clone())
            .or_insert_with(|| ResidentActor::new(name, house, root).start());
        actor.do_send(LookAgain);
    }
}

/// A resident was removed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DropResident {
    /// Its name.
    pub name: String,
}

impl Handler<DropResident> for Root {
    type Result = ();

    fn handle(&mut self, DropResident { name }: DropResident, _: &mut Self::Context) {
        if let Some(actor) = self.residents.remove(&name) {
            actor.do_send(LeaveResident);
        }
    }
}
