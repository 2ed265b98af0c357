//! `run` and `start`: one command, under any lease.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use serde_json::{Value, json};
use weft_actors::limits::{
    GRACE_MS_MAX, KEEP_BYTES_MAX, KEEP_BYTES_MIN, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN,
};

use weft_actors::task::wire::Io;

use crate::app::{App, block_on, print_json, say};
use crate::duration::{self, parse_ms};
use crate::exit::{self, Failure};
use crate::terminal::{self, size::Size};
use crate::{config, foreground, render, size};

/// Options of `run`.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
#[command(
    after_help = "Examples:\n  weft run -- cargo build --release\n  weft run --durable --notify builds --label 'Nightly build' -- make all\n  weft run --background --timeout 10m -c 'sleep 5; echo done'\n  weft run -c 'sort < names.txt' > sorted.txt 2> errors.txt\n  weft run --durable --pty -- bash      then weft attach, write, screen\n\nThe command's standard input is closed unless --io pipes or --pty keeps it open: then what stands on that of weft goes to it, and on a terminal --pty passes the terminal through."
)]
pub(super) struct Run {
    /// Return at once; the task ends with its owner session
    #[arg(long, conflicts_with = "durable")]
    background: bool,
    /// Return at once; the task lives on without caller, session and node
    #[arg(long, short = 'd')]
    durable: bool,
    /// A name for people
    #[arg(long, short = 'l', value_name = "TEXT")]
    label: Option<String>,
    /// The working directory
    #[arg(long, short = 'C', value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Set a variable of the task; can be given more than once
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// End the task after this time: 500ms, 5s, 2m, 1h
    #[arg(long, value_name = "TIME", value_parser = duration::between(TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX))]
    timeout: Option<u64>,
    /// Announce the end of a durable task on this topic
    #[arg(long, value_name = "TOPIC")]
    notify: Option<String>,
    /// The kind of that event
    #[arg(long, value_name = "KIND", requires = "notify")]
    kind: Option<String>,
    /// Run a line of the shell instead of a command
    #[arg(long, short = 'c', value_name = "LINE", conflicts_with = "command")]
    line: Option<OsString>,
    /// At most one unfinished task of this name in the home; a second run joins it
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// How its standard streams are connected: a closed input, pipes, or a terminal
    #[arg(long, value_name = "KIND", value_parser = ["batch", "pipes", "pty"], conflicts_with = "pty")]
    io: Option<String>,
    /// Give it a terminal: the same as --io pty
    #[arg(long)]
    pty: bool,
    /// The size of its terminal; that of this one, else 120x40
    #[arg(long, value_name = "COLSxROWS", value_parser = terminal::size::parse)]
    size: Option<Size>,
    /// Keep stdout and stderr apart
    #[arg(long, conflicts_with = "merged")]
    split: bool,
    /// Keep stdout and stderr in one stream, in the order they were written
    #[arg(long)]
    merged: bool,
    /// Hand a foreground task over to the session after this time
    #[arg(long, value_name = "TIME", value_parser = parse_ms, conflicts_with_all = ["background", "durable"])]
    hang: Option<u64>,
    /// On a stop, the time between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", value_parser = duration::between(0..=GRACE_MS_MAX))]
    grace: Option<u64>,
    /// How much of each output stream is kept: 512KiB, 64MiB, 2GiB
    #[arg(long, value_name = "SIZE", value_parser = size::between(KEEP_BYTES_MIN..=KEEP_BYTES_MAX))]
    keep: Option<u64>,
    /// No remarks on stderr
    #[arg(long, short)]
    quiet: bool,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

impl Run {
    /// The same with the lease of the home.
    pub(super) fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        if self.durable && self.background {
            return Err(Failure::Usage(
                "--background and --durable are two different leases; give one".to_owned(),
            ));
        }
        let input = self.input(app)?;
        let mut client = app.client()?;
        if self.durable || self.background {
            return block_on(async {
                let record = client.change("tasks.run", input).await?;
                self.show(app, &record)?;
                Ok(exit::DONE)
            });
        }
        let io = self.io();
        block_on(foreground::run(
            app,
            client,
            input,
            io,
            self.hang,
            !self.quiet,
        ))
    }

    /// The record of a task that runs on. One that has ended already says so.
    fn show(&self, app: &App, record: &Value) -> Result<(), Failure> {
        if app.globals.json {
            return print_json(record);
        }
        crate::app::print(&format!("{}\n", render::text(record, "id")))?;
        if !self.quiet && record["joined"] == true {
            say("joined the unfinished task of this key; nothing new was started");
        }
        Ok(())
    }

    /// The input of `tasks.run`.
    fn input(&self, app: &App) -> Result<Value, Failure> {
        let lease = match (self.durable, self.background) {
            (true, _) => "durable",
            (_, true) => "session",
            _ => "foreground",
        };
        let streams = self.streams(lease == "foreground");
        let cwd = self
            .cwd
            .as_ref()
            .map_or_else(|| app.cwd().to_owned(), |given| app.cwd().join(given));
        let what = self.what()?;
        Ok(super::given([
            (what.0, Some(what.1)),
            ("cwd", Some(text("--cwd", cwd.as_os_str())?.into())),
            ("env", Some(json!(self.environment()?))),
            // The caller's environment is the whole of it: nothing of the node's own base is added.
            ("envBase", Some("none".into())),
            ("lease", Some(lease.into())),
            ("hold", (lease == "foreground").then(|| "caller".into())),
            ("io", (self.io() != Io::Batch).then(|| json!(self.io()))),
            ("size", self.terminal_size().map(|size| json!(size.pair()))),
            ("streams", streams.map(Into::into)),
            ("label", self.label.clone().map(Into::into)),
            ("timeoutMs", self.timeout.map(Into::into)),
            ("graceMs", self.grace.map(Into::into)),
            (
                "notify",
                self.notify.as_ref().map(|topic| {
                    super::given([
                        ("topic", Some(topic.clone().into())),
                        ("kind", self.kind.clone().map(Into::into)),
                    ])
                }),
            ),
            ("keepBytes", self.keep.map(Into::into)),
            ("key", self.key.clone().map(Into::into)),
        ]))
    }

    fn io(&self) -> Io {
        match self.io.as_deref() {
            Some("pipes") => Io::Pipes,
            Some("pty") => Io::Pty,
            _ if self.pty => Io::Pty,
            _ => Io::Batch,
        }
    }

    /// The size of its terminal: as given, else that of a terminal of ours.
    fn terminal_size(&self) -> Option<Size> {
        let ours = || Size::of(std::io::stdin()).or_else(|| Size::of(std::io::stdout()));
        self.size
            .or_else(|| (self.io() == Io::Pty).then(ours).flatten())
    }

    fn what(&self) -> Result<(&'static str, Value), Failure> {
        if let Some(line) = &self.line {
            return Ok(("line", text("-c", line)?.into()));
        }
        if self.command.is_empty() {
            return Err(Failure::Usage(
                "nothing to run: give a command after --, or a line with -c".to_owned(),
            ));
        }
        super::refuse_option(self.command.first().map(OsString::as_os_str))?;
        let words: Result<Vec<&str>, Failure> = self
            .command
            .iter()
            .map(|word| text("the command", word))
            .collect();
        Ok(("argv", words?.into()))
    }

    fn streams(&self, foreground: bool) -> Option<&'static str> {
        match (self.split, self.merged) {
            (true, _) => Some("split"),
            (_, true) => Some("merged"),
            // A terminal has one stream.
            _ if self.io() == Io::Pty => None,
            // `a | b` and `2>x` must work, and one terminal or file should see the true order.
            _ if foreground => Some(if foreground::outputs_are_one() {
                "merged"
            } else {
                "split"
            }),
            _ => None,
        }
    }

    fn environment(&self) -> Result<BTreeMap<String, String>, Failure> {
        let (mut environment, dropped) = config::for_task();
        if !dropped.is_empty() {
            say(&format!(
                "these variables are no UTF-8 and are not handed over: {}",
                dropped.join(" ")
            ));
        }
        if self.io() == Io::Pty {
            // Of the task's terminal the node knows the kind; ours may be another.
            environment.remove("TERM");
        }
        for pair in &self.env {
            let pair = text("--env", pair)?;
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| Failure::Usage(format!("--env {pair}: takes NAME=VALUE")))?;
            if !config::is_variable_name(OsStr::new(name)) {
                return Err(Failure::Usage(format!("--env {pair}: takes NAME=VALUE")));
            }
            environment.insert(name.to_owned(), value.to_owned());
        }
        Ok(environment)
    }
}

/// A word of the system as text. What is no UTF-8 cannot travel in JSON, and is refused instead of changed.
fn text<'a>(name: &str, word: &'a OsStr) -> Result<&'a str, Failure> {
    word.to_str().ok_or_else(|| {
        Failure::Usage(format!(
            "{name}: {} is no UTF-8; weft takes text only",
            word.to_string_lossy()
        ))
    })
}
