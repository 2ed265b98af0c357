//! `weft demo`: the product at work in a temporary home. Every line comes from the node's API.

mod build;
mod stage;
mod timeline;

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{App, block_on, on_terminal, say};
use crate::autostart::own_program;
use crate::client::{Client, Events};
use crate::config;
use crate::exit::{self, Failure};
use crate::limits::WAIT_MS_MAX;
use crate::render::{list, text};

use stage::Stage;
use timeline::Timeline;

/// The topic on which the job's end is announced.
const BUILDS: &str = "builds";
/// The topic on which the resident reports.
const REPORTS: &str = "reports";
/// Where an event goes that the resident's handler did not take.
const DEAD: &str = "weft.dead.reporter";
/// The resident's name.
const RESIDENT: &str = "reporter";

/// What the resident runs for each event: it shows what it got, then publishes a report of its own.
const HANDLER: &str = r#"echo "event $WEFT_EVENT_SEQUENCE of $WEFT_EVENT_TOPIC, kind $WEFT_EVENT_KIND, attempt $WEFT_EVENT_ATTEMPT"
cat; echo
exec "$0" --json mesh publish reports --kind build.reported --text "heard of event $WEFT_EVENT_SEQUENCE""#;

/// Shows the product at work. In a terminal it stays until Ctrl-C.
pub(crate) fn demo(app: &App) -> Result<u8, Failure> {
    block_on(async {
        let mut interrupted =
            signals().map_err(|error| Failure::io("listening for signals", error))?;
        let mut stage = Stage::set(app)?;
        let played = tokio::select! {
            played = play(app, &mut stage) => played,
            () = interrupted.any() => Ok(()),
        };
        let cleared = stage.clear().await;
        played.and(cleared)?;
        Ok(exit::DONE)
    })
}

async fn play(app: &App, stage: &mut Stage) -> Result<(), Failure> {
    let timeline = Timeline::begin(app.globals.json);
    let status = stage.client().read("node.status", json!({})).await?;
    timeline.node(&status)?;
    let path = config::path().unwrap_or_default();
    create_resident(stage, &timeline, &path).await?;
    let topics = [BUILDS, REPORTS, DEAD].map(str::to_owned);
    let mut events = stage
        .another_client()
        .events(&topics, Some("0"), None)
        .await?;
    run_build(stage, &timeline, &path).await?;
    follow(stage.client(), &timeline, &mut events).await?;
    if on_terminal() && !app.globals.json {
        stay(stage, &timeline, &status, &mut events).await?;
    }
    Ok(())
}

async fn create_resident(
    stage: &mut Stage,
    timeline: &Timeline,
    path: &str,
) -> Result<(), Failure> {
    let program = stage.program().to_string_lossy().into_owned();
    let input = json!({
        "name": RESIDENT,
        "topics": [BUILDS],
        // A handler that fails is shown at once instead of being tried again.
        "retries": 0,
        "handler": {"exec": {"argv": ["/bin/sh", "-c", HANDLER, program]}},
        "cwd": stage.work().to_string_lossy(),
        "env": {"PATH": path, "WEFT_STATE_DIR": stage.state_dir().to_string_lossy()},
    });
    let answer = stage.client().change("residents.create", input).await?;
    let resident = answer.get("resident").unwrap_or(&answer);
    timeline.show(
        "resident",
        resident,
        &format!("{} subscribes to {BUILDS}", text(resident, "name")),
    )
}

async fn run_build(stage: &mut Stage, timeline: &Timeline, path: &str) -> Result<(), Failure> {
    let job = build::prepare(&stage.work(), path)?;
    if let Some(remark) = job.remark {
        say(remark);
    }
    let input = json!({
        "line": job.line,
        "cwd": stage.work().to_string_lossy(),
        "env": {"PATH": path},
        "lease": "durable",
        "label": job.label,
        "notify": {"topic": BUILDS},
    });
    let record = stage.client().change("tasks.run", input).await?;
    timeline.task(&record)?;
    timeline.grant(&record)
}

/// Shows events as they come, with what is behind each, until the resident has handled the build's.
async fn follow(
    client: &mut Client,
    timeline: &Timeline,
    events: &mut Events,
) -> Result<(), Failure> {
    while let Some(event) = next_event(events).await? {
        timeline.event(&event)?;
        if event["topic"] == DEAD {
            show_log(client, timeline).await?;
            return Err(Failure::Failed("the resident's handler failed".to_owned()));
        }
        // Who sent it is a task in both cases: the build itself, or the resident's run.
        let task = text(&event, "from")
            .strip_prefix("task:")
            .unwrap_or_default()
            .to_owned();
        let answer = client
            .wait("tasks.wait", json!({"id": task, "timeoutMs": WAIT_MS_MAX}))
            .await?;
        timeline.end(&answer["task"])?;
        timeline.output(&answer)?;
        if event["topic"] == REPORTS {
            return show_log(client, timeline).await;
        }
        timeline.grant(&answer["task"])?;
    }
    Err(Failure::Failed(
        "the node ended the stream before the resident had reported".to_owned(),
    ))
}

/// Shows what the resident's log says of its events, which is written right after the end of the run.
async fn show_log(client: &mut Client, timeline: &Timeline) -> Result<(), Failure> {
    let answer = client
        .wait(
            "residents.log",
            json!({"name": RESIDENT, "waitMs": WAIT_MS_MAX}),
        )
        .await?;
    list(&answer, "entries")
        .iter()
        .try_for_each(|entry| timeline.resident(entry))
}

/// Leaves everything as it is for a person to look at, and goes on showing events.
async fn stay(
    stage: &mut Stage,
    timeline: &Timeline,
    status: &Value,
    events: &mut Events,
) -> Result<(), Failure> {
    let home = exit::shell_word(&stage.home().to_string_lossy());
    let state_dir = exit::shell_word(&stage.state_dir().to_string_lossy());
    // By its path: whoever tries it out may not have installed it.
    let weft = own_program().map_err(|error| Failure::io("this program's own path", error))?;
    let weft = exit::shell_word(&weft.to_string_lossy());
    let url = list(status, "http")
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default();
    say(&format!(
        "the node stays at {url} until Ctrl-C; look at it from another terminal:"
    ));
    say(&format!(
        "  {weft} --state-dir {state_dir} --home {home} ps --all"
    ));
    while let Some(event) = next_event(events).await? {
        timeline.event(&event)?;
    }
    Ok(())
}

/// The next event of the stream; cursors without one are passed.
async fn next_event(events: &mut Events) -> Result<Option<Value>, Failure> {
    while let Some(message) = events.next().await? {
        if message.data.is_empty() {
            continue;
        }
        let value: Value = serde_json::from_str(&message.data)
            .map_err(|error| Failure::Protocol(error.to_string()))?;
        if value.get("sequence").is_some() {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// The signals that end the demonstration, each of which leaves nothing behind.
struct Interrupted([tokio::signal::unix::Signal; 3]);

fn signals() -> std::io::Result<Interrupted> {
    Ok(Interrupted([
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ]))
}

impl Interrupted {
    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
