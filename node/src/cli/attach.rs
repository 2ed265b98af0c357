//! `attach` and `screen`: a task's terminal, for a person and for a program.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_actors::limits::CANDIDATES_MAX;
use weft_actors::task::folder::{SOCKET, TASKS};

use crate::app::{App, block_on};
use crate::exit::{self, Failure};
use crate::render::{list, plain, visible};
use crate::terminal::attach::{self, Options};
use crate::terminal::keys::{self, DetachKeys};

/// Options of `attach`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft attach t-3f\n  weft attach --read-only t-3f\n  weft attach --detach-keys ctrl-p,ctrl-q t-3f\n\nThe task was started with --pty and runs on when this ends. Several may be attached at once; its terminal has the size of the one who typed or came last. Ends with 0 when it is detached, else with the task's own code. No node has to run."
)]
pub(super) struct Attach {
    /// The task's id, or the beginning of it
    #[arg(required_unless_present = "socket")]
    id: Option<String>,
    /// Show it, type nothing and leave its size alone
    #[arg(long)]
    read_only: bool,
    /// The keys that detach
    #[arg(long, value_name = "KEYS", default_value = keys::DEFAULT, value_parser = keys::parse)]
    detach_keys: DetachKeys,
    /// The control socket of the task, instead of its id: HOME/tasks/ID/shim.sock
    #[arg(long, value_name = "PATH", conflicts_with = "id")]
    socket: Option<PathBuf>,
}

impl Attach {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let folder = match (&self.socket, &self.id) {
            (Some(socket), _) => folder_of(&app.cwd().join(socket))?,
            (None, Some(id)) => find(&app.existing_home()?.root.join(TASKS), id)?,
            (None, None) => return Err(Failure::Usage("give the task's id".to_owned())),
        };
        let id = folder
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let options = Options {
            keys: self.detach_keys,
            is_read_only: self.read_only,
        };
        block_on(attach::attach(&folder, &id, options))
    }
}

fn folder_of(socket: &Path) -> Result<PathBuf, Failure> {
    let folder = socket.parent().filter(|_| socket.ends_with(SOCKET));
    folder.map(Path::to_path_buf).ok_or_else(|| {
        Failure::Usage(format!(
            "--socket {}: takes a task's control socket, HOME/tasks/ID/{SOCKET}",
            socket.display()
        ))
    })
}

/// The folder of the task whose id begins so: no node is asked, since none may run.
fn find(tasks: &Path, id: &str) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(tasks)
        .map_err(|error| Failure::io(tasks.display().to_string(), error))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !id.is_empty() && name.starts_with(id))
        .collect();
    names.sort_unstable();
    match names.as_slice() {
        [] => Err(Failure::Failed(format!("there is no task {id}"))),
        [only] => Ok(tasks.join(only)),
        [first, ..] if first == id => Ok(tasks.join(first)),
        several => Err(Failure::Failed(format!(
            "{id} fits {} tasks: {}; write more of the id",
            several.len(),
            several[..several.len().min(CANDIDATES_MAX)].join(" ")
        ))),
    }
}

/// Options of `screen`.
#[derive(Debug, clap::Args)]
pub(super) struct Screen {
    /// The task's id, or the beginning of it
    id: String,
}

impl Screen {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        let answer = block_on(client.read("tasks.screen", json!({"id": self.id})))?;
        app.answer(&answer, rows)?;
        Ok(exit::DONE)
    }
}

/// The rows down to the last one with text on it.
fn rows(answer: &Value) -> String {
    let rows: Vec<String> = list(answer, "rows").iter().map(plain).collect();
    let text = rows
        .iter()
        .map(|row| visible(row))
        .collect::<Vec<_>>()
        .join("\n");
    let text = text.trim_end_matches('\n');
    if text.is_empty() {
        String::new()
    } else {
        format!("{text}\n")
    }
}
