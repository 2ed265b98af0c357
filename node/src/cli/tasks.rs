//! Verbs on tasks that exist: list, look, wait, stop, take over.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_actors::limits::GRACE_MS_MAX;

use super::each::Change;
use super::{given, some_list};
use crate::app::{App, block_on, print_json, say};
use crate::duration::{self, human, parse_ms};
use crate::exit::{self, Failure};
use crate::limits::WAIT_MS_MAX;
use crate::render::{self, list, now_ms, text};

/// Options of `ps`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft ps\n  weft ps --all --state running,lost\n  weft ps -q | xargs -n1 weft stop"
)]
pub(super) struct Ps {
    /// Tasks of every session, not of this one alone
    #[arg(long, short)]
    all: bool,
    /// Only tasks in these states: starting running exited failed killed timed_out lost
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    /// Print ids alone
    #[arg(long, short)]
    quiet: bool,
}

impl Ps {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let input = given([
            ("all", self.all.then_some(true.into())),
            ("states", some_list(&self.state)),
        ]);
        let mut client = app.client()?;
        let answer = block_on(client.read("tasks.list", input))?;
        app.answer(&answer, |answer| {
            if self.quiet {
                ids(list(answer, "tasks"), "id")
            } else {
                render::tasks(answer, now_ms(), self.all)
            }
        })?;
        if !self.quiet {
            let whose = if self.all {
                "tasks"
            } else {
                "tasks of this session; --all shows everybody's"
            };
            app.tell_if_none(list(&answer, "tasks"), whose);
        }
        Ok(exit::DONE)
    }
}

/// One id a line.
pub(super) fn ids(list: &[Value], name: &str) -> String {
    list.iter().fold(String::new(), |mut out, entry| {
        let _ = writeln!(out, "{}", render::visible(text(entry, name)));
        out
    })
}

/// Options of `get`.
#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// The task's id, or the beginning of it
    id: String,
}

impl Get {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        let answer = block_on(client.read("tasks.get", json!({"id": self.id})))?;
        app.answer(&answer, |answer| {
            render::fields(&answer["task"]) + &render::output(answer)
        })?;
        Ok(exit::DONE)
    }
}

/// Options of `wait`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft wait t-3f\n  weft wait --timeout 30s t-3f || echo 'failed, or still running'"
)]
pub(super) struct Wait {
    /// The task's id, or the beginning of it
    id: String,
    /// Wait no longer than this; the task runs on
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    timeout: Option<u64>,
}

impl Wait {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        let answer = block_on(self.wait(&mut client))?;
        let task = &answer["task"];
        if answer["timedOut"] == true {
            // The answer is the one document there is with `--json`; a failure would print a second.
            if app.globals.json {
                print_json(&answer)?;
            }
            say(&format!("{} is still running", text(task, "id")));
            return Ok(exit::REFUSED);
        }
        app.answer(&answer, ended_line)?;
        Ok(exit::of_record(task))
    }

    /// Asks again while the node's own bound, not ours, ended the wait.
    async fn wait(&self, client: &mut crate::client::Client) -> Result<Value, Failure> {
        let until = self
            .timeout
            .map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            let left = until.map_or(WAIT_MS_MAX, |until| {
                until.saturating_duration_since(Instant::now()).as_millis() as u64
            });
            let input = json!({"id": self.id, "timeoutMs": left.clamp(1, WAIT_MS_MAX)});
            let answer = client.wait("tasks.wait", input).await?;
            if answer["timedOut"] != true || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(answer);
            }
        }
    }
}

fn ended_line(answer: &Value) -> String {
    let task = &answer["task"];
    let ran = match (task["startedAt"].as_u64(), task["finishedAt"].as_u64()) {
        (Some(started), Some(finished)) => human(finished.saturating_sub(started)),
        _ => "an unknown time".to_owned(),
    };
    render::visible(&format!(
        "{}  {}  after {ran}",
        text(task, "id"),
        render::state(task)
    )) + "\n"
}

/// Options of `stop`.
#[derive(Debug, clap::Args)]
pub(super) struct Stop {
    /// The ids of tasks, or their beginnings
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// The time between SIGTERM and SIGKILL: 500ms, 5s
    #[arg(long, short = 't', visible_alias = "time", value_name = "TIME", value_parser = duration::between(0..=GRACE_MS_MAX))]
    grace: Option<u64>,
}

impl Stop {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let stop = Change {
            called: "weft stop",
            reference: "tasks.stop",
            part: |mut answer| answer["task"].take(),
            show: ended_line,
            code: survival,
        };
        stop.perform(app, &self.ids, |id| {
            given([
                ("id", Some(id.into())),
                ("graceMs", self.grace.map(Into::into)),
            ])
        })
    }
}

/// Names the processes of a stopped task that live on, which is a refusal.
fn survival(answer: &Value) -> u8 {
    let survivors = list(&answer["task"], "survivors");
    if survivors.is_empty() {
        return exit::DONE;
    }
    let pids: Vec<String> = survivors.iter().map(render::plain).collect();
    say(&format!(
        "these processes of it may not be signalled and live on: {}",
        pids.join(" ")
    ));
    exit::REFUSED
}

/// Options of `external`.
#[derive(Debug, clap::Args)]
pub(super) struct External {
    /// Print ids alone
    #[arg(long, short)]
    quiet: bool,
}

impl External {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        let answer = block_on(client.read("tasks.external", json!({})))?;
        app.answer(&answer, |answer| {
            let jobs = list(answer, "jobs");
            if self.quiet {
                ids(jobs, "id")
            } else {
                external(jobs, now_ms())
            }
        })?;
        if !self.quiet {
            app.tell_if_none(list(&answer, "jobs"), "tasks of other sessions");
        }
        Ok(exit::DONE)
    }
}

fn external(jobs: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            vec![
                text(job, "id").to_owned(),
                render::state(job),
                text(job, "session").to_owned(),
                text(job, "lease").to_owned(),
                render::age(&job["startedAt"], now),
                render::title(job).to_owned(),
            ]
        })
        .collect();
    render::table(&["ID", "STATE", "SESSION", "LEASE", "AGE", "TASK"], &rows)
}

/// Options of `adopt`.
#[derive(Debug, clap::Args)]
pub(super) struct Adopt {
    /// The task's id, or the beginning of it
    id: String,
}

impl Adopt {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let input = json!({"jobId": self.id});
        let mut client = app.client()?;
        let answer = block_on(client.change("tasks.adopt", input))?;
        app.answer(&answer, |answer| {
            format!("{}\n", render::visible(text(&answer["task"], "id")))
        })?;
        Ok(exit::DONE)
    }
}
