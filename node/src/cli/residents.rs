//! `residents`: handlers that run for every event of their topics.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value, json};
use weft_actors::limits::{TIMEOUT_MS_MAX, TIMEOUT_MS_MIN};

use super::{given, some_list};
use crate::app::{App, block_on, json_argument};
use crate::client::Client;
use crate::config;
use crate::duration;
use crate::exit::{self, Failure, shell_word};
use crate::render::{self, age, list, now_ms, plain, text};

/// The verbs of `residents`.
#[derive(Debug, Subcommand)]
pub(super) enum Residents {
    /// Create a resident that runs a command for every event
    Create(Create),
    /// List residents
    List {
        /// Print names alone
        #[arg(long, short)]
        quiet: bool,
    },
    /// Show one resident
    Get(Name),
    /// Show what a resident did with its events
    Log(Log),
    /// Hold a resident's events back
    Pause(Name),
    /// Let a resident go on
    Resume(Name),
    /// Remove a resident; its events stay
    Remove(Name),
    /// Put a message into a resident's mailbox
    Tell(Tell),
}

/// One resident.
#[derive(Debug, clap::Args)]
pub(super) struct Name {
    /// Its name
    name: String,
}

/// Options of `create`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The command gets the event as CloudEvents JSON on stdin and in WEFT_EVENT_* variables; exit 0 acknowledges it.\n\nExample:\n  weft residents create notify --topic builds -- ./on-build.sh"
)]
pub(super) struct Create {
    /// Its name
    name: String,
    /// A topic or pattern; can be given more than once
    #[arg(
        long = "topic",
        visible_alias = "topics",
        required = true,
        value_name = "PATTERN",
        value_delimiter = ','
    )]
    topics: Vec<String>,
    /// Only these kinds
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Where to begin: now, start or a sequence
    #[arg(long, value_name = "WHERE")]
    from: Option<String>,
    /// Attempts after the first, before an event goes to the dead letters
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// A hard cap on one run
    #[arg(long, value_name = "TIME", value_parser = duration::between(TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX))]
    timeout: Option<u64>,
    /// The working directory of its runs
    #[arg(long, short = 'C', value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Set a variable of its runs; can be given more than once
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The command and its arguments
    #[arg(
        required = true,
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
}

/// Options of `log`.
#[derive(Debug, clap::Args)]
pub(super) struct Log {
    /// Its name
    name: String,
    /// Only entries after this number
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// At most this many
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<u64>,
}

/// Options of `tell`.
#[derive(Debug, clap::Args)]
pub(super) struct Tell {
    /// Its name
    name: String,
    /// A text
    text: Option<String>,
    /// JSON data; @FILE reads a file, - stdin
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
}

impl Residents {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        match self {
            Residents::Create(create) => {
                let name = create.name.clone();
                let input = create.input(app)?;
                let answer = block_on(client.change("residents.create", input))?;
                app.answer(&answer, |_| String::new())?;
                app.tell(&format!("resident {name} is at work"));
            }
            Residents::List { quiet } => {
                let answer = block_on(client.read("residents.list", json!({})))?;
                app.answer(&answer, |answer| {
                    let residents = list(answer, "residents");
                    if quiet {
                        super::tasks::ids(residents, "name")
                    } else {
                        table(residents, now_ms())
                    }
                })?;
                if !quiet {
                    app.tell_if_none(list(&answer, "residents"), "residents");
                }
            }
            Residents::Get(Name { name }) => {
                let answer = block_on(client.read("residents.get", json!({"name": name})))?;
                app.answer(&answer, |answer| {
                    render::fields(&for_people(&answer["resident"]))
                })?;
            }
            Residents::Log(log) => {
                let input = given([
                    ("name", Some(log.name.into())),
                    ("after", log.after.map(Into::into)),
                    ("limit", log.limit.map(Into::into)),
                ]);
                let answer = block_on(client.read("residents.log", input))?;
                app.answer(&answer, |answer| entries(list(answer, "entries"), now_ms()))?;
                app.tell_if_none(list(&answer, "entries"), "entries");
            }
            Residents::Pause(name) => change(app, &mut client, "pause", &name.name)?,
            Residents::Resume(name) => change(app, &mut client, "resume", &name.name)?,
            Residents::Remove(name) => change(app, &mut client, "remove", &name.name)?,
            Residents::Tell(tell) => {
                let data = tell
                    .data
                    .map(|data| json_argument("--data", &data))
                    .transpose()?;
                if tell.text.is_none() && data.is_none() {
                    return Err(Failure::Usage(
                        "nothing to tell: give a text or --data".to_owned(),
                    ));
                }
                let input = given([
                    ("name", Some(tell.name.as_str().into())),
                    ("text", tell.text.map(Into::into)),
                    ("data", data),
                ]);
                let answer = block_on(client.change("residents.tell", input))?;
                app.answer(&answer, |_| String::new())?;
                app.tell(&format!(
                    "resident {} was told, as event {}",
                    tell.name,
                    plain(&answer["sequence"])
                ));
            }
        }
        Ok(exit::DONE)
    }
}

/// Pauses, resumes or removes a resident.
fn change(app: &App, client: &mut Client, verb: &str, name: &str) -> Result<(), Failure> {
    let input = json!({"name": name});
    let answer = block_on(client.change(&format!("residents.{verb}"), input))?;
    app.answer(&answer, |_| String::new())?;
    let done = match verb {
        "pause" => "is paused; its events wait",
        "resume" => "goes on",
        _ => "is removed; its events stay",
    };
    app.tell(&format!("resident {name} {done}"));
    Ok(())
}

/// A resident as a person reads it: its command as a line, and whether it is paused.
fn for_people(resident: &Value) -> Value {
    let mut shown = resident.clone();
    shown["handler"] = handler(resident).into();
    shown["state"] = state(resident).into();
    for list in ["topics", "kinds", "envNames"] {
        if resident[list].is_array() {
            shown[list] = words(resident, list).into();
        }
    }
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("enabled");
        fields.retain(|_, value| *value != "");
    }
    shown
}

/// The command that a resident runs, as it would be typed.
fn handler(resident: &Value) -> String {
    let argv = list(&resident["handler"]["exec"], "argv");
    let words: Vec<String> = argv
        .iter()
        .filter_map(Value::as_str)
        .map(shell_word)
        .collect();
    if words.is_empty() {
        plain(&resident["handler"])
    } else {
        words.join(" ")
    }
}

fn state(resident: &Value) -> &'static str {
    if resident["enabled"] == false {
        "paused"
    } else {
        "enabled"
    }
}

fn words(value: &Value, name: &str) -> String {
    let words: Vec<&str> = list(value, name).iter().filter_map(Value::as_str).collect();
    words.join(" ")
}

impl Create {
    fn input(self, app: &App) -> Result<Value, Failure> {
        super::refuse_option(self.command.first().map(OsStr::new))?;
        let cwd = self
            .cwd
            .map_or_else(|| app.cwd().to_owned(), |cwd| app.cwd().join(cwd));
        let cwd = cwd.to_str().ok_or_else(|| {
            Failure::Usage("the working directory is no UTF-8; give another with --cwd".to_owned())
        })?;
        let from = self.from.map(|from| {
            from.parse::<u64>()
                .map_or_else(|_| Value::from(from.as_str()), Value::from)
        });
        Ok(given([
            ("name", Some(self.name.into())),
            ("topics", some_list(&self.topics)),
            ("kinds", some_list(&self.kinds)),
            ("handler", Some(json!({"exec": {"argv": self.command}}))),
            ("from", from),
            ("retries", self.retries.map(Into::into)),
            ("timeoutMs", self.timeout.map(Into::into)),
            ("cwd", Some(cwd.into())),
            ("env", Some(environment(&self.env)?)),
        ]))
    }
}

/// The search path as it is here and now, under what was given: a handler finds what its maker would.
fn environment(pairs: &[String]) -> Result<Value, Failure> {
    let mut environment = Map::new();
    if let Some(path) = config::path() {
        environment.insert("PATH".to_owned(), path.into());
    }
    for pair in pairs {
        let (name, value) = pair
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| Failure::Usage(format!("--env {pair}: takes NAME=VALUE")))?;
        environment.insert(name.to_owned(), value.into());
    }
    Ok(Value::Object(environment))
}

fn table(residents: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = residents
        .iter()
        .map(|resident| {
            vec![
                text(resident, "name").to_owned(),
                state(resident).to_owned(),
                words(resident, "topics"),
                plain(&resident["cursor"]),
                age(&resident["createdAt"], now),
                handler(resident),
            ]
        })
        .collect();
    render::table(
        &["NAME", "STATE", "TOPICS", "CURSOR", "AGE", "HANDLER"],
        &rows,
    )
}

fn entries(entries: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let mut row = vec![plain(&entry["n"]), age(&entry["at"], now)];
            let names = ["state", "attempt", "sequence", "topic", "taskId", "reason"];
            row.extend(names.map(|name| plain(&entry[name])));
            row
        })
        .collect();
    render::table(
        &[
            "N", "AGE", "STATE", "ATTEMPT", "EVENT", "TOPIC", "TASK", "REASON",
        ],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resident_shows_what_it_runs_and_whether_it_is_paused() {
        let resident = json!({"name": "r", "topics": ["a", "b.*"], "kinds": [], "enabled": false, "envNames": ["PATH", "X"], "handler": {"exec": {"argv": ["./on build.sh", "-v"]}}, "cursor": 3, "createdAt": 5});
        let shown = render::fields(&for_people(&resident));
        for line in [
            "handler    './on build.sh' -v",
            "envNames   PATH X",
            "state      paused",
            "topics     a b.*",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
        assert!(table(&[resident], 9).contains("paused"));
    }
}
