//! The start of a task, in its order: row, folder, shim, and only then the answer.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use weft_grants::{GrantClaims, mint_grant};
use weft_mesh::{EventId, NewGrant};

use super::announce;
use super::control::hear_or_wake;
use super::folder::{self, Folder};
use super::plan::Plan;
use super::record::{End, Spec};
use super::row::{self, TaskRow};
use super::view::blocking;
use super::wire::{Answer, Launch, Lease, PROTOCOL, Running, Secret};
use crate::error::{Error, Result};
use crate::house::House;
use crate::limits::{ANSWER_BYTES_MAX, COMPLETION_TTL_MS};
use crate::requests::{self, RequestKey};

/// What the first commit of a launch found.
#[derive(Debug)]
pub enum Committed {
    /// The row is there: go on with the folder.
    New,
    /// A task of that key is there: nothing is to be started.
    Joined(Box<TaskRow>),
    /// This very request made it: nothing is to be started, and the answer is the first one's.
    Repeated(Box<TaskRow>),
}

/// Commits the row with its grant and its request, unless there is one already.
pub async fn commit(house: &House, plan: &Plan, request: Option<RequestKey>) -> Result<Committed> {
    let row = plan.row.clone();
    let grant = row
        .spec
        .notify
        .as_ref()
        .map(|_| new_grant(house, &row))
        .transpose()?;
    house
        .commit(move |tx| {
            if let Some(request) = &request
                && let Some(id) = request.made::<String>(tx.sql())?
            {
                if id == row.spec.id {
                    // Taken over: the row is there, its start is to come.
                    return Ok(Committed::New);
                }
                let made = row::get(tx.sql(), &id)?.ok_or_else(|| Error::no_task(&id))?;
                if !made.end.as_ref().is_some_and(End::never_began) {
                    return Ok(Committed::Repeated(Box::new(made)));
                }
                // A node ended between the row and the start, and nothing of the command ran: it is for this repeat to run it.
                requests::forget(tx.sql(), &id)?;
            }
            if let Some(key) = &row.key
                && let Some(held) = row::by_key(tx.sql(), key)?
            {
                joins(&row, &held)?;
                return Ok(Committed::Joined(Box::new(held)));
            }
            if let Some(grant) = &grant {
                tx.insert_grant(grant)?;
            }
            row::insert(tx.sql(), &row)?;
            if let Some(request) = &request {
                request.keep(tx, &row.spec.id)?;
            }
            Ok(Committed::New)
        })
        .await
}

/// Whoever joins a task gets what he asked for of its end, or is told that he does not.
fn joins(wanted: &TaskRow, held: &TaskRow) -> Result<()> {
    let place = |row: &TaskRow| {
        let notify = row.spec.notify.as_ref()?;
        Some((notify.topic.clone(), notify.kind.clone()))
    };
    let lacks = match (place(wanted), place(held)) {
        (Some((topic, kind)), known) if known != Some((topic.clone(), kind.clone())) => {
            format!("its end is not told on {topic} as {kind}")
        }
        _ if wanted.lease == Lease::Durable && held.lease != Lease::Durable => {
            "it is not durable".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Error::WrongState(format!(
        "task {} runs under this key already, and {lacks}; wait for it, stop it, or take another key",
        held.spec.id
    )))
}

fn new_grant(house: &House, row: &TaskRow) -> Result<NewGrant> {
    let notify = row
        .spec
        .notify
        .as_ref()
        .ok_or_else(|| Error::Internal("a grant without a notify".into()))?;
    Ok(NewGrant {
        jti: notify.grant_id.clone(),
        topic: notify.topic.parse()?,
        kind: Some(notify.kind.parse()?),
        eid: Some(EventId::completion(&row.spec.id)?),
        uses: 1,
        exp: expiry(row),
        description: Some(format!(
            "completion of {}, kept by {}",
            row.spec.id,
            house.node_id()
        )),
        minted_by: format!("task:{}", row.spec.id),
    })
}

fn expiry(row: &TaskRow) -> u64 {
    (row.spec.created_at + COMPLETION_TTL_MS) / 1000
}

/// The completion grant's token; never stored, since the same claims always make the same one.
fn token(house: &House, row: &TaskRow) -> Option<Secret> {
    let notify = row.spec.notify.as_ref()?;
    let claims = GrantClaims {
        iss: house.node_id(),
        aud: house.audience(),
        jti: notify.grant_id.clone(),
        topic: notify.topic.clone(),
        kind: Some(notify.kind.clone()),
        eid: Some(announce::event_id(&row.spec.id)),
        uses: 1,
        iat: row.spec.created_at / 1000,
        nbf: None,
        exp: expiry(row),
    };
    Some(Secret::new(
        mint_grant(&house.keys(), &claims).expose().to_owned(),
    ))
}

/// Makes the folder, starts the shim and waits for its word. When it says no, nothing is left of the task.
pub async fn launch(house: &Arc<House>, plan: Plan) -> Result<Running> {
    let (id, command) = (plan.row.spec.id.clone(), plan.row.spec.command.clone());
    let started = start(house, plan).await;
    match started {
        Ok(Answer::Started(running)) => Ok(running),
        Ok(Answer::Failed(failure)) => {
            forget(house, &id).await?;
            Err(Error::NotStarted {
                command: brief(&command),
                message: failure.message,
                errno: failure.errno,
            })
        }
        // A shim that lives and says nothing is left to its actor, which tries to reach it.
        Err(error @ Error::NoAnswer(_)) => Err(error),
        // Only a folder that somebody else uses answers so: the row is left to reconcile, which looks who.
        Ok(Answer::Busy(_)) => Err(Error::Internal(format!("the folder of {id} is in use"))),
        // A shim writes `started` before the command's first byte runs: one that died between that and its word may have
        // run it, and the task ends as lost. Without the file nothing ran.
        Err(error) => {
            if let Some(running) = running_by_folder(house, &id).await {
                return Ok(running);
            }
            forget(house, &id).await?;
            Err(error)
        }
    }
}

async fn running_by_folder(house: &House, id: &str) -> Option<Running> {
    let path = house.home.task(id);
    let started = blocking(move || Ok(Folder::open(&path).and_then(|folder| folder.started())))
        .await
        .ok()?;
    let started = started.ok()??;
    Some(Running {
        pid: started.pid,
        started_at: started.started_at,
    })
}

/// A command in an error: a line, not a page.
fn brief(command: &str) -> String {
    const CHARS: usize = 200;
    if command.chars().count() <= CHARS {
        command.to_owned()
    } else {
        command.chars().take(CHARS).chain(['…']).collect()
    }
}

async fn start(house: &Arc<House>, plan: Plan) -> Result<Answer> {
    let document = {
        let launch = launch_document(house, &plan);
        serde_json::to_vec(&launch)
            .map_err(|error| Error::Internal(format!("a launch is no JSON: {error}")))?
    };
    let house = house.clone();
    // Folder and spawn block for about a millisecond: not on a thread that serves sockets.
    let pipes = tokio::task::spawn_blocking(move || {
        let path = house.home.task(&plan.row.spec.id);
        prepare_folder(&path, &plan)?;
        spawn(&house, &path)
    })
    .await
    .map_err(|error| Error::Internal(format!("the start of a task failed inside: {error}")))??;
    let mut input = pipe::Sender::from_owned_fd(pipes.input)
        .map_err(|error| Error::io("sending the launch to the shim", error))?;
    let mut output = pipe::Receiver::from_owned_fd(pipes.output)
        .map_err(|error| Error::io("hearing the shim", error))?;
    // A shim that died early gives EPIPE here; its answer, or the want of one, tells more.
    let _ = input.write_all(&document).await;
    drop(input);
    let mut answer = Vec::new();
    let mut words = (&mut output).take(ANSWER_BYTES_MAX);
    hear_or_wake(pipes.shim, words.read_to_end(&mut answer))
        .await
        .map_err(|_mute| {
            Error::NoAnswer(format!(
                "the task's shim, process {}, does not answer",
                pipes.shim
            ))
        })?
        .map_err(|error| Error::io("hearing the shim", error))?;
    if answer.is_empty() {
        return Err(Error::Internal(
            "the shim ended without a word; the system may be out of memory or processes".into(),
        ));
    }
    serde_json::from_slice(&answer)
        .map_err(|error| Error::Internal(format!("the shim's answer cannot be read: {error}")))
}

fn launch_document(house: &House, plan: &Plan) -> Launch {
    let spec = &plan.row.spec;
    Launch {
        version: PROTOCOL,
        id: spec.id.clone(),
        home: house.home.root.clone(),
        weft: house.settings.weft.clone(),
        node_env: house
            .settings
            .node_env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        argv: plan.argv.clone(),
        cwd: spec.cwd.clone().into(),
        env: plan.env.clone(),
        lease: plan.row.lease,
        io: spec.io,
        streams: plan.streams,
        deadline_ms: spec.timeout_ms,
        deadline_reason: None,
        grace_ms: spec.grace_ms,
        keep_bytes: spec.keep_bytes,
        token: token(house, &plan.row),
        topic: spec.notify.as_ref().map(|notify| notify.topic.clone()),
        stdin: plan
            .stdin
            .clone()
            .map(std::os::unix::ffi::OsStringExt::from_vec),
        nofile: house.settings.nofile,
        incarnation: spec.incarnation.clone(),
        free_floor: house.settings.free_floor,
        size: plan.size,
    }
}

/// What `spec.json` keeps of a launch: all that its row can be made from again, no value of the environment, no token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecFile {
    /// The owner session at launch.
    pub session: String,
    /// The lease at launch.
    pub lease: Lease,
    /// The task's key.
    pub key: Option<String>,
    /// The names of the environment's variables.
    pub env_names: Vec<String>,
    /// What was decided at launch.
    #[serde(flatten)]
    pub spec: Spec,
}

fn prepare_folder(path: &std::path::Path, plan: &Plan) -> Result<()> {
    let context = || format!("making the task's folder {}", path.display());
    let folder = Folder::create(path).map_err(|error| Error::io(context(), error))?;
    let file = SpecFile {
        session: plan.row.session.clone(),
        lease: plan.row.lease,
        key: plan.row.key.clone(),
        env_names: plan
            .env
            .iter()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect(),
        spec: plan.row.spec.clone(),
    };
    folder
        .write_json(folder::SPEC, &file)
        .map_err(|error| Error::io(context(), error))?;
    if let Some(script) = &plan.script {
        let mut file = folder
            .create_file(folder::SCRIPT)
            .map_err(|error| Error::io(context(), error))?;
        file.write_all(script.as_bytes())
            .map_err(|error| Error::io(context(), error))?;
    }
    Ok(())
}

struct Pipes {
    shim: u32,
    input: OwnedFd,
    output: OwnedFd,
}

/// Starts the shim by its descriptor, with three descriptors and nothing else of this process.
fn spawn(house: &House, folder: &std::path::Path) -> Result<Pipes> {
    let context = || "starting the shim".to_owned();
    // std makes this a posix_spawn, as there is no code between fork and exec: a fork would copy the page tables of a large
    // node. The path is resolved in the child before its descriptors close.
    let mut command = Command::new(format!("/proc/self/fd/{}", house.shim.file.as_raw_fd()));
    command
        .env_clear()
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if house.shim.takes_verb {
        command.arg("shim");
    }
    let mut child = command
        .spawn()
        .map_err(|error| Error::io(context(), error))?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::io(context(), io::ErrorKind::BrokenPipe.into()));
    };
    if let Some(id) = folder.file_name() {
        house.live.note_shim(child.id(), &id.to_string_lossy());
    }
    let shim = child.id();
    // Not waited for here: the node reaps all its children in one place (node/src/reaper.rs), as it must when it is process 1.
    drop(child);
    Ok(Pipes {
        shim,
        input: input.into(),
        output: output.into(),
    })
}

/// Takes away all that a start left which came to nothing: row, grant, request and folder.
async fn forget(house: &House, id: &str) -> Result<()> {
    let row_id = id.to_owned();
    house
        .commit(move |tx| {
            if let Some(notify) = row::get(tx.sql(), &row_id)?.and_then(|row| row.spec.notify) {
                tx.revoke_grant(&notify.grant_id)?;
            }
            row::delete(tx.sql(), &row_id)?;
            // Or a repeat of the request would be answered with a task that is not there.
            requests::forget(tx.sql(), &row_id)?;
            tx.wake(&announce::wake_key(&row_id));
            Ok(())
        })
        .await?;
    Folder::delete(&house.home.task(id))
        .map_err(|error| Error::io("removing a task's folder", error))
}
