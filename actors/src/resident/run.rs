//! The I/O of a resident: finding its next event, running its handler, recording the outcome.

use std::sync::Arc;

use tracing::debug;
use weft_mesh::{Cursor, Event, MeshError, Pattern, Query};

use super::rows::{self, Attempt, LogEntry, LogState, ResidentRow};
use super::spec::Handler;
use super::{cloudevent, session_of, tell_topic};
use crate::error::{Error, Result};
use crate::house::{House, now_ms, random_id};
use crate::root::Run;
use crate::task::plan::{RunInput, Surroundings, plan};
use crate::task::record::{End, State};
use crate::task::row;
use crate::task::wire::Lease;
use crate::watch_end::wait_end;

/// The next event of a resident.
#[derive(Debug, Clone)]
pub struct Next {
    /// The resident as its row is now.
    pub resident: Arc<ResidentRow>,
    /// The event.
    pub event: Arc<Event>,
    /// Failed attempts on record.
    pub failed: u32,
}

/// The patterns a resident reads: its topics and what is told to it alone.
pub fn patterns(row: &ResidentRow) -> Result<Vec<Pattern>> {
    let mut patterns = row.spec.topics.clone();
    patterns.push(tell_topic(&row.name).parse()?);
    Ok(patterns)
}

/// The next event after the cursor of an enabled resident. Events it does not take are passed over, and what retention took
/// before it saw them is written into its log.
pub async fn next(house: &House, name: &str) -> Result<Option<Next>> {
    loop {
        let row = {
            let name = name.to_owned();
            house.look(move |sql| rows::get(sql, &name)).await?
        };
        let Some(row) = row.filter(|row| row.enabled) else {
            return Ok(None);
        };
        let cursor = Cursor {
            epoch: Some(row.epoch.clone()),
            sequence: row.cursor,
        };
        let page = match house
            .store
            .read_events(Query {
                limit: PAGE,
                ..Query::new(patterns(&row)?, cursor)
            })
            .await
        {
            Ok(page) => page,
            // The store was replaced: what is in it now is all new to this resident.
            Err(MeshError::Resync { .. }) => {
                house
                    .store
                    .read_events(Query {
                        limit: PAGE,
                        ..Query::new(patterns(&row)?, 0)
                    })
                    .await?
            }
            Err(error) => return Err(error.into()),
        };
        let taken = page
            .events
            .iter()
            .find(|event| row.spec.takes(event))
            .cloned();
        if !page.omitted.is_empty() {
            disclose(house, &row, &page.omitted).await?;
        }
        if let Some(event) = taken {
            let failed = {
                let (name, sequence) = (name.to_owned(), event.sequence);
                house
                    .look(move |sql| rows::failed_attempts(sql, &name, sequence))
                    .await?
            };
            return Ok(Some(Next {
                resident: Arc::new(row),
                event: Arc::new(event),
                failed,
            }));
        }
        // Nothing here is for it. The durable cursor moves only when that saves reading, not for every foreign event.
        if !page.more {
            return Ok(None);
        }
        let name = name.to_owned();
        house
            .commit(move |tx| rows::move_cursor(tx, &name, page.next))
            .await?;
    }
}

/// Events looked at together. Only the first taken one is handled; the rest is read again, from the page cache.
const PAGE: usize = 64;

async fn disclose(house: &House, row: &ResidentRow, omitted: &[weft_mesh::Omitted]) -> Result<()> {
    let (name, omitted) = (row.name.clone(), omitted.to_vec());
    house
        .commit(move |tx| {
            for gap in &omitted {
                let entry = LogEntry {
                    n: 0,
                    sequence: Some(gap.to),
                    event_id: None,
                    topic: Some(gap.topic.to_string()),
                    attempt: 0,
                    task_id: None,
                    state: LogState::Omitted,
                    reason: Some(format!(
                        "retention took {} events after {} up to {}",
                        gap.count, gap.after, gap.to
                    )),
                    at: tx.now(),
                };
                rows::add_entry(tx, &name, &entry)?;
                rows::move_cursor(tx, &name, gap.to)?;
            }
            Ok(())
        })
        .await
}

/// What a run came to.
#[derive(Debug, Clone)]
pub enum Ran {
    /// The handler took the event.
    Took {
        /// The run.
        task_id: String,
    },
    /// It did not.
    Refused {
        /// The run, where it started.
        task_id: Option<String>,
        /// Why.
        reason: String,
    },
}

/// Runs the handler for one event, or joins the run that a node before this one began. An error tells nothing of the handler.
pub async fn handle(house: &Arc<House>, next: &Next, attempt: u32) -> Result<Ran> {
    let Handler::Exec(exec) = &next.resident.spec.handler;
    let spec = &next.resident.spec;
    let input = RunInput {
        argv: Some(exec.argv.clone()),
        cwd: spec.cwd.clone(),
        env: Some(spec.env.clone()),
        lease: Some(Lease::Durable),
        label: Some(
            format!(
                "resident {}: {} #{}",
                spec.name, next.event.topic, next.event.sequence
            )
            .chars()
            .take(crate::limits::LABEL_CHARS_MAX)
            .collect(),
        ),
        timeout_ms: spec.timeout_ms,
        key: Some(format!(
            "resident:{}:{}:{}:{attempt}",
            spec.name,
            house.store.epoch(),
            next.event.sequence
        )),
        ..RunInput::default()
    };
    let id = random_id("t-", crate::limits::TASK_ID_CHARS)?;
    let folder = house.home.task(&id);
    let around = Surroundings {
        incarnation: random_id("", crate::limits::INCARNATION_CHARS)?,
        grant_id: String::new(),
        session: session_of(&spec.name),
        by: None,
        home: &house.home.root,
        folder: &folder,
        project: house.home.project(),
        base_env: &house.settings.base_env,
        shell: &house.settings.shell,
        now: now_ms(),
        stdin: Some(
            cloudevent::json(&next.event, &house.node_id())
                .to_string()
                .into_bytes(),
        ),
        own_env: cloudevent::variables(&next.event, &spec.name, attempt),
        id,
    };
    let planned = match plan(&input, around) {
        Ok(planned) => planned,
        Err(error) => {
            return Ok(Ran::Refused {
                task_id: None,
                reason: error.to_string(),
            });
        }
    };
    let launched = house
        .root()?
        .send(Run {
            plan: Box::new(planned),
            request: None,
        })
        .await;
    let task_id = match launched.map_err(|_| Error::ActorFailed("the root actor".into()))? {
        Ok(launched) => launched.row.spec.id,
        // The command cannot run: that is the handler's failure. Anything else (no space, a stopping node) is not.
        Err(error @ Error::NotStarted { .. }) => {
            return Ok(Ran::Refused {
                task_id: None,
                reason: error.to_string(),
            });
        }
        Err(error) => return Err(error),
    };
    let Some(end) = wait_end(house, &task_id).await?.end else {
        return Err(Error::no_task(task_id));
    };
    if end.never_began() {
        // A node ended between the row and the start. Nothing of the handler ran, so no attempt is counted and the key is
        // free for it: a node that is killed again and again must not turn an event into a dead letter.
        house
            .commit(move |tx| row::free_key(tx.sql(), &task_id))
            .await?;
        return Err(Error::Internal(format!(
            "attempt {attempt} was recorded and never begun"
        )));
    }
    debug!(resident = %spec.name, task = %task_id, state = ?end.state, "a handler's run ended");
    Ok(if end.state == State::Exited {
        Ran::Took { task_id }
    } else {
        Ran::Refused {
            task_id: Some(task_id),
            reason: why(&end),
        }
    })
}

fn why(end: &End) -> String {
    match (end.state, end.exit_code, &end.signal) {
        (State::Lost, ..) => "its run was lost".into(),
        (State::TimedOut, ..) => "its deadline passed".into(),
        (_, _, Some(signal)) => format!("ended by {signal}"),
        (_, Some(code), None) => format!("exit code {code}"),
        (state, None, None) => format!("{state:?}"),
    }
}

/// Records how an attempt went.
pub async fn record(
    house: &House,
    next: &Next,
    attempt: u32,
    state: LogState,
    ran: Option<&Ran>,
) -> Result<()> {
    let (task_id, reason) = match ran {
        Some(Ran::Took { task_id }) => (Some(task_id.clone()), None),
        Some(Ran::Refused { task_id, reason }) => (task_id.clone(), Some(reason.clone())),
        None => (
            None,
            Some("its attempts were over before the node's start".into()),
        ),
    };
    let attempt = Attempt {
        name: next.resident.name.clone(),
        incarnation: next.resident.incarnation.clone(),
        event: (*next.event).clone(),
        attempt,
        state,
        task_id,
        reason,
    };
    house.commit(move |tx| rows::record(tx, &attempt)).await
}
