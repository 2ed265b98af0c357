//! The command line: its verbs, the variable of every option, and what happens to the result.

mod attach;
mod each;
mod home;
mod inbox;
mod input;
mod logs;
mod mesh;
mod node;
mod post;
mod read;
mod residents;
mod run;
mod tasks;
#[cfg(test)]
mod tests;
mod tokens;

use std::ffi::OsStr;

use clap::builder::FalseyValueParser;
use clap::{Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde_json::{Value, json};

use crate::app::{App, Globals, refuse};
use crate::config;
use crate::exit::{self, Failure};

/// Keeps commands running and tells everyone who waits, exactly once
#[derive(Debug, Parser)]
#[command(
    name = "weft",
    version,
    after_help = "Examples:\n  weft run -- make -j2                     run it here, with its own exit code\n  weft run --durable --notify builds -- make   run it on, and announce its end on the topic builds\n  weft ps; weft logs -f ID; weft stop ID   look, follow, end\n  weft mesh subscribe 'builds'             hear of every end\n\nEvery option can also be given by a variable: --timeout of `weft run` is WEFT_RUN_TIMEOUT."
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a command: here until it ends, or on with --background or --durable
    Run(Box<run::Run>),
    /// Run a command on: the same as `run --durable`
    Start(Box<run::Run>),
    /// List tasks
    #[command(visible_aliases = ["ls", "list"])]
    Ps(tasks::Ps),
    /// Show one task and the last of its output
    #[command(visible_aliases = ["inspect", "status"])]
    Get(tasks::Get),
    /// Wait until a task has ended, and exit with its code
    Wait(tasks::Wait),
    /// Read a task's output from an offset
    Read(read::Read),
    /// Show the output of tasks as text
    Logs(logs::Logs),
    /// Show output lines that hold a text, or what a monitor saw
    Watch(read::Watch),
    /// End a task with all its processes
    Stop(tasks::Stop),
    /// Write to the input of a task with pipes or a terminal
    Write(input::Write),
    /// End the input of a task
    CloseInput(input::CloseInput),
    /// Put this terminal on a task's: see it and type into it
    Attach(attach::Attach),
    /// Show what stands on a task's terminal
    Screen(attach::Screen),
    /// Give a task's terminal another size
    Resize(input::Resize),
    /// Send one signal to every process of a task
    Kill(input::Kill),
    /// List the tasks of this home that other sessions own, those that have ended too
    External(tasks::External),
    /// Take over a task of another session, without a restart
    Adopt(tasks::Adopt),
    /// Show what was delivered to this session
    Inbox(inbox::Inbox),
    /// Call an action with a JSON object; without one, list the actions
    Call(node::Call),
    /// Show what the node can do
    Capabilities,
    /// Run the node of a home, or look after it
    Node(node::Node),
    /// Run the node with TCP on 127.0.0.1:7411, and print the address
    Up(node::Up),
    /// Look after homes
    #[command(subcommand)]
    Home(home::HomeVerb),
    /// Publish, read and follow events; mint grants
    #[command(subcommand)]
    Mesh(mesh::Mesh),
    /// Keep handlers that run for every event of a topic
    #[command(subcommand)]
    Residents(residents::Residents),
    /// Make tokens for callers over TCP
    #[command(subcommand)]
    Token(tokens::Tokens),
    /// See a durable build finish and a resident hear of it, in a temporary home
    Demo,
    /// Show the version
    Version,
    /// Supervise one task; weft starts it
    #[command(hide = true)]
    Shim,
}

/// Parses, runs, and gives the exit code.
pub(crate) fn main() -> u8 {
    let (cli, called) = match parse() {
        Ok(parsed) => parsed,
        Err(error) => return misread(&error),
    };
    let json = cli.globals.json;
    let for_command = matches!(cli.verb, Verb::Run(_) | Verb::Start(_));
    let failure = match App::new(cli.globals).and_then(|app| cli.verb.perform(&app)) {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    // A reader that closed our output has decided so; there is nothing to tell.
    if !matches!(failure, Failure::OutputClosed) {
        refuse(&failure, &called, None, json);
    }
    if for_command {
        failure.code_for_command()
    } else {
        failure.code()
    }
}

/// The command line, and its verb as it was called: `weft mesh read`.
fn parse() -> Result<(Cli, String), clap::Error> {
    let matches = command().try_get_matches()?;
    let mut called = String::from("weft");
    let mut verbs = matches.subcommand();
    while let Some((name, inner)) = verbs {
        called.push(' ');
        called.push_str(name);
        verbs = inner.subcommand();
    }
    Ok((Cli::from_arg_matches(&matches)?, called))
}

/// Tells why the command line cannot be read, or shows the help that was asked for.
fn misread(error: &clap::Error) -> u8 {
    if error.use_stderr() && config::wants_json() {
        let failure = Failure::Usage(in_short(&error.render().to_string()));
        refuse(&failure, "weft", None, true);
        return exit::USAGE;
    }
    let _ = error.print();
    if error.use_stderr() {
        exit::USAGE
    } else {
        exit::DONE
    }
}

/// What a parser's message says, without the usage below it.
fn in_short(message: &str) -> String {
    let said: Vec<&str> = message
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(|line| line.trim().trim_start_matches("error: "))
        .filter(|line| !line.is_empty())
        .collect();
    said.join(" ")
}

impl Verb {
    fn perform(self, app: &App) -> Result<u8, Failure> {
        match self {
            Verb::Run(run) => run.perform(app),
            Verb::Start(run) => run.durable().perform(app),
            Verb::Ps(verb) => verb.perform(app),
            Verb::Get(verb) => verb.perform(app),
            Verb::Wait(verb) => verb.perform(app),
            Verb::Read(verb) => verb.perform(app),
            Verb::Logs(verb) => verb.perform(app),
            Verb::Watch(verb) => verb.perform(app),
            Verb::Stop(verb) => verb.perform(app),
            Verb::Write(verb) => verb.perform(app),
            Verb::CloseInput(verb) => verb.perform(app),
            Verb::Attach(verb) => verb.perform(app),
            Verb::Screen(verb) => verb.perform(app),
            Verb::Resize(verb) => verb.perform(app),
            Verb::Kill(verb) => verb.perform(app),
            Verb::External(verb) => verb.perform(app),
            Verb::Adopt(verb) => verb.perform(app),
            Verb::Inbox(verb) => verb.perform(app),
            Verb::Call(verb) => verb.perform(app),
            Verb::Capabilities => node::capabilities(app),
            Verb::Node(verb) => verb.perform(app),
            Verb::Up(verb) => verb.perform(app),
            Verb::Home(verb) => verb.perform(app),
            Verb::Mesh(verb) => verb.perform(app),
            Verb::Residents(verb) => verb.perform(app),
            Verb::Token(verb) => verb.perform(app),
            Verb::Demo => crate::demo::demo(app),
            Verb::Version => {
                let version = env!("CARGO_PKG_VERSION");
                app.answer(&json!({"version": version}), |_| {
                    format!("weft {version}\n")
                })?;
                Ok(exit::DONE)
            }
            Verb::Shim => Err(Failure::Usage(
                "a shim is started by a node, with its task on standard input".to_owned(),
            )),
        }
    }
}

/// The command line with a variable for every option.
fn command() -> Command {
    with_variables(Cli::command(), "WEFT")
}

/// Names every option's variable after its verbs and its long name: `WEFT_MESH_READ_AFTER`. Options of all verbs
/// stand at the top and have no verb in their names.
fn with_variables(command: Command, prefix: &str) -> Command {
    let command = command.mut_args(|arg| with_variable(arg, prefix));
    command.mut_subcommands(|verb| {
        // `start` is `run` by another name, and so are its variables.
        let name = if verb.get_name() == "start" {
            "run"
        } else {
            verb.get_name()
        };
        let prefix = format!("{prefix}_{}", variable_part(name));
        with_variables(verb, &prefix)
    })
}

fn with_variable(arg: Arg, prefix: &str) -> Arg {
    let Some(long) = arg.get_long() else {
        return arg;
    };
    if matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    ) {
        return arg;
    }
    let name = format!("{prefix}_{}", variable_part(long));
    // A variable that is set to nothing is how scripts leave it out.
    if std::env::var_os(&name).is_some_and(|value| value.is_empty()) {
        return arg;
    }
    // Help shows the name and never the value, which may be private.
    let arg = arg.env(name).hide_env_values(true);
    // `1`, `yes` and `true` all switch a flag on; `0`, `no`, `false` and nothing at all do not.
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        arg.value_parser(FalseyValueParser::new())
    } else {
        arg
    }
}

fn variable_part(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
}

/// The fields that were given: an action's input knows no null for "not given".
fn given<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    Value::Object(
        fields
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)))
            .collect(),
    )
}

/// Refuses a command that begins with a dash. From its first word on everything is the command's, so a misspelt option of
/// ours would be run, or kept as a resident's handler, with all that follows it.
fn refuse_option(first: Option<&OsStr>) -> Result<(), Failure> {
    match first {
        Some(word) if word.as_encoded_bytes().starts_with(b"-") => {
            let word = word.to_string_lossy();
            Err(Failure::Usage(format!(
                "`{word}` is no option here; a program of that name is given by its path, ./{word}"
            )))
        }
        _ => Ok(()),
    }
}

/// A list that was given, or nothing.
fn some_list(list: &[String]) -> Option<Value> {
    (!list.is_empty()).then(|| list.into())
}
