//! Verbs that give something to a running task: input, the end of it, a size of its terminal, a signal.

use std::io::{self, Read as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use weft_actors::limits::{INPUT_WRITE_BYTES_MAX, WAIT_MS_MAX};

use super::each::Change;
use super::given;
use crate::app::{App, block_on, say};
use crate::client::Client;
use crate::exit::{self, Failure};
use crate::render::{list, plain};
use crate::terminal::size::{self, Size};

/// Options of `write`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft write t-3f 'make test' --enter\n  weft write t-3f - < patch.diff      all of a file, as fast as the task reads it\n\nThe task was started with --pty or --io pipes. Writes are applied in the order they arrive."
)]
pub(super) struct Write {
    /// The task's id, or the beginning of it
    id: String,
    /// The text as it is, without a newline of its own; `-` for standard input to its end
    #[arg(allow_hyphen_values = true, required_unless_present = "enter")]
    text: Option<String>,
    /// Add the Enter key: a carriage return on a terminal, a newline to a pipe
    #[arg(long)]
    enter: bool,
}

impl Write {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        let answer = block_on(async {
            match self.text.as_deref() {
                Some("-") => self.copy(&mut client).await,
                text => {
                    let text = given([
                        ("id", Some(self.id.as_str().into())),
                        ("text", text.map(Into::into)),
                        ("enter", self.enter.then_some(true.into())),
                    ]);
                    client.change("tasks.write", text).await
                }
            }
        })?;
        app.answer(&answer, |_| String::new())?;
        Ok(exit::DONE)
    }

    /// Writes standard input to its end, waiting while the task does not read.
    async fn copy(&self, client: &mut Client) -> Result<Value, Failure> {
        let mut written = 0;
        let mut block = vec![0; INPUT_WRITE_BYTES_MAX];
        loop {
            let got = match io::stdin().lock().read(&mut block) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                got => got.map_err(|error| Failure::io("standard input", error))?,
            };
            if got == 0 {
                return Ok(json!({"id": self.id, "written": written, "closed": false}));
            }
            let input = given([
                ("id", Some(self.id.as_str().into())),
                ("data", Some(BASE64_STANDARD.encode(&block[..got]).into())),
                ("waitMs", Some(WAIT_MS_MAX.into())),
            ]);
            let answer = client.change("tasks.write", input).await?;
            written += answer["written"].as_u64().unwrap_or(0);
        }
    }
}

/// Options of `close-input`.
#[derive(Debug, clap::Args)]
pub(super) struct CloseInput {
    /// The task's id, or the beginning of it
    id: String,
}

impl CloseInput {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        let input = json!({"id": self.id});
        let answer = block_on(client.change("tasks.closeInput", input))?;
        app.answer(&answer, |_| String::new())?;
        Ok(exit::DONE)
    }
}

/// Options of `resize`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft resize t-3f 120x40")]
pub(super) struct Resize {
    /// The task's id, or the beginning of it
    id: String,
    /// Columns and rows
    #[arg(value_name = "COLSxROWS", value_parser = size::parse)]
    size: Size,
}

impl Resize {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        let input = json!({"id": self.id, "size": self.size.pair()});
        let answer = block_on(client.change("tasks.resize", input))?;
        app.answer(&answer, |_| String::new())?;
        Ok(exit::DONE)
    }
}

/// Options of `kill`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft kill -s HUP t-3f\n  weft kill -s INT t-3f\n\nThe signal goes to every process of the task. To end a task use `weft stop`, which sees it through."
)]
pub(super) struct Kill {
    /// The signal's name, with or without SIG, or its number
    #[arg(long, short, value_name = "SIGNAL", default_value = "TERM")]
    signal: String,
    /// The ids of tasks, or their beginnings
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

impl Kill {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let signal = Change {
            called: "weft kill",
            reference: "tasks.signal",
            part: |answer| answer,
            show: |_| String::new(),
            code: reach,
        };
        signal.perform(
            app,
            &self.ids,
            |id| json!({"id": id, "signal": self.signal}),
        )
    }
}

/// Names who was not reached, which is a refusal.
fn reach(answer: &Value) -> u8 {
    let denied: Vec<String> = list(answer, "denied").iter().map(plain).collect();
    if denied.is_empty() {
        return exit::DONE;
    }
    say(&format!(
        "these processes of it may not be signalled: {}",
        denied.join(" ")
    ));
    exit::REFUSED
}
