//! `node`, `up`, `call` and `capabilities`: the node itself, and its actions as they are.

use std::time::Duration;

use clap::Subcommand;
use rustix::process::Pid;
use serde_json::{Value, json};
use weft_actors::action;

use crate::app::{App, block_on, json_argument, print_json};
use crate::cli_node::{self, Options};
use crate::client::Client;
use crate::duration::{Idle, parse_idle};
use crate::exit::{self, Failure};
use crate::http::gone;
use crate::limits::{LOCK_WAIT_MS, UP_ADDRESS};
use crate::render::{self, list, text};

/// Options of `call`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without an action it lists those of the node, with what each does.\n\nExamples:\n  weft call\n  weft call tasks.list '{\"all\":true}'\n  weft call mesh.publish @event.json"
)]
pub(super) struct Call {
    /// The action, such as tasks.read
    #[arg(value_name = "REF")]
    reference: Option<String>,
    /// Its JSON object; @FILE reads a file, - stdin
    #[arg(value_name = "JSON", default_value = "{}")]
    input: String,
}

impl Call {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let Some(reference) = &self.reference else {
            return list_actions(app);
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
        if reference.is_empty() || !reference.bytes().all(plain) {
            return Err(Failure::Usage(format!(
                "`{reference}` is no ref of an action, such as tasks.read"
            )));
        }
        let input = json_argument("the input", &self.input)?;
        let mut client = app.client()?;
        let answer = block_on(client.bare(reference, &input))?;
        print_json(&answer)?;
        Ok(exit::DONE)
    }
}

/// Lists the actions that the node offers. What one does is told by this program, where it knows the action.
fn list_actions(app: &App) -> Result<u8, Failure> {
    let mut client = app.client()?;
    let answer = block_on(client.read("capabilities", json!({})))?;
    let actions: Vec<Value> = list(&answer, "features")
        .iter()
        .filter_map(Value::as_str)
        .map(|reference| {
            let summary = action::find(reference).map_or("", |action| action.summary);
            json!({"ref": reference, "summary": summary})
        })
        .collect();
    app.answer(&json!({"actions": actions}), |answer| {
        let rows: Vec<Vec<String>> = list(answer, "actions")
            .iter()
            .map(|action| {
                ["ref", "summary"]
                    .map(|name| text(action, name).to_owned())
                    .to_vec()
            })
            .collect();
        render::table(&["REF", "WHAT IT DOES"], &rows)
    })?;
    Ok(exit::DONE)
}

/// Shows what the node can do.
pub(super) fn capabilities(app: &App) -> Result<u8, Failure> {
    let mut client = app.client()?;
    let answer = block_on(client.read("capabilities", json!({})))?;
    app.answer(&answer, render::fields)?;
    Ok(exit::DONE)
}

/// Options of `node`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  weft node                            on the home's Unix socket, until it has nothing to do for 10 minutes\n  weft node --listen 127.0.0.1:7411 --idle never"
)]
pub(super) struct Node {
    #[command(subcommand)]
    verb: Option<NodeVerb>,
    /// Listen on this TCP address too; can be given more than once
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<String>,
    /// Allow an address that others can reach, without TLS
    #[arg(long)]
    insecure_listen: bool,
    /// How long to stay with nothing to do, or never
    #[arg(long, value_name = "TIME", value_parser = parse_idle)]
    idle: Option<Idle>,
    /// The form of the log on stderr
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
    /// Started by another weft: tells its first line, then lets go of its starter
    #[arg(long, hide = true)]
    detached: bool,
}

#[derive(Debug, Subcommand)]
enum NodeVerb {
    /// Show the node of a home
    Status,
    /// End the node of a home; its tasks run on
    Stop,
}

impl Node {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        match self.verb {
            Some(NodeVerb::Status) => status(app),
            Some(NodeVerb::Stop) => stop(app),
            None => cli_node::run(
                app,
                Options {
                    listen: self.listen,
                    insecure_listen: self.insecure_listen,
                    any_port: false,
                    idle: self.idle,
                    log_format: self.log_format,
                    detached: self.detached,
                },
            ),
        }
    }
}

fn status(app: &App) -> Result<u8, Failure> {
    let mut client = app.client_of_running()?;
    match block_on(client.read("node.status", json!({}))) {
        Ok(answer) => app.answer(&answer, render::fields)?,
        // That is an answer to the question, not a failure to get one.
        Err(Failure::NoNode { home, .. }) => {
            let home = home.display();
            return Err(Failure::Failed(format!("no node runs in {home}")));
        }
        Err(failure) => return Err(failure),
    }
    Ok(exit::DONE)
}

/// Returns when the node is gone; that none runs is what was asked for.
fn stop(app: &App) -> Result<u8, Failure> {
    let mut client = app.client_of_running()?;
    let answer = block_on(async {
        match client.change("node.stop", json!({})).await {
            Ok(answer) => {
                client.closed().await;
                wait_for_end(&answer).await;
                Ok(answer)
            }
            Err(Failure::NoNode { .. }) => Ok(Value::Null),
            Err(failure) => Err(failure),
        }
    })?;
    app.tell(if answer.is_null() {
        "no node runs in this home"
    } else {
        "the node has ended; tasks go on"
    });
    app.answer(
        &if answer.is_null() {
            json!({"stopped": false})
        } else {
            answer
        },
        |_| String::new(),
    )?;
    Ok(exit::DONE)
}

/// Waits, for a bounded time, until the process that answered is gone: it writes into the home up to its end.
async fn wait_for_end(answer: &Value) {
    let pid = answer["pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        gone(pid, Duration::from_millis(LOCK_WAIT_MS)).await;
    }
}

/// Options of `up`.
#[derive(Debug, clap::Args)]
pub(super) struct Up {
    /// Listen on this TCP address; where it is taken, on a free port of it
    #[arg(long, value_name = "ADDRESS:PORT", default_value = UP_ADDRESS)]
    listen: String,
    /// How long to stay with nothing to do, or never
    #[arg(long, value_name = "TIME", value_parser = parse_idle, default_value = "never")]
    idle: Idle,
    /// The form of the log on stderr
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
}

impl Up {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        if let Some(status) = running(app)? {
            return already_up(app, &status);
        }
        cli_node::run(
            app,
            Options {
                listen: vec![self.listen],
                insecure_listen: false,
                any_port: true,
                idle: Some(self.idle),
                log_format: self.log_format,
                detached: false,
            },
        )
    }
}

/// The status of the node that runs in the home, if one does.
fn running(app: &App) -> Result<Option<Value>, Failure> {
    let mut client = Client::new(app.home()?, app.session(), None);
    match block_on(client.read("node.status", json!({}))) {
        Ok(status) => Ok(Some(status)),
        Err(Failure::NoNode { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn already_up(app: &App, status: &Value) -> Result<u8, Failure> {
    let urls = list(status, "http");
    if urls.is_empty() {
        return Err(Failure::Failed("a node without TCP runs in this home; end it with `weft node stop` (its tasks run on), then `weft up`".to_owned()));
    }
    app.answer(status, |_| {
        urls.iter()
            .map(|url| render::visible(&render::plain(url)) + "\n")
            .collect()
    })?;
    Ok(exit::DONE)
}
