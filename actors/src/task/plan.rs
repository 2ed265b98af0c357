//! From the arguments of `tasks.run` to a spec and a launch: every check, every default, no I/O.

use std::ffi::OsString;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_mesh::{Kind, Topic};

use super::quote::shell_quoted;
use super::record::{NotifySpec, Spec, State};
use super::row::TaskRow;
use super::wire::{Io, Lease, Streams};
use crate::check;
use crate::error::{Error, Result};
use crate::limits::{
    ARG_BYTES_MAX, GRACE_MS_DEFAULT, GRACE_MS_MAX, KEEP_BYTES_DEFAULT, KEEP_BYTES_MAX,
    KEEP_BYTES_MIN, KEEP_BYTES_TAKEN_ON_MIN, KEY_CHARS_MAX, LABEL_CHARS_MAX, OUTPUT_BYTES_MAX,
    TERMINAL_SIZE_DEFAULT, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN,
};

/// The kind of a completion event unless the launch names another.
pub const COMPLETION_KIND: &str = "task.completed";

/// The kind of terminal that weft gives a task.
pub const TERMINAL_KIND: &str = "xterm-256color";

/// Where the end is announced.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NotifyInput {
    /// The topic; not a reserved one.
    pub topic: String,
    /// The kind, `task.completed` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// What a command is and how it is run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunInput {
    /// The words of the command, the program first. Either this or `line`.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// A line for the shell. Either this or `argv`.
    #[serde(default)]
    pub line: Option<String>,
    /// The working directory, absolute; the folder that holds the home unless given.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Variables added to the base environment.
    #[serde(default)]
    pub env: Option<std::collections::BTreeMap<String, String>>,
    /// `default`: a plain environment of the user; `none`: `env` is the whole of it (the command line hands over its own so).
    #[serde(default)]
    pub env_base: Option<EnvBase>,
    /// Who keeps it alive.
    #[serde(default)]
    pub lease: Option<Lease>,
    /// Who holds a foreground lease: this `call` (the default), or the `caller` itself on the task's control socket; then the
    /// record is answered at once.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// `batch`, with a closed input, unless given; `pipes` and `pty` keep it open for `tasks.write`.
    #[serde(default)]
    pub io: Option<Io>,
    /// Merged into `output`, or split into `stdout` and `stderr`; split for pipes unless given. A terminal has one stream.
    #[serde(default)]
    pub streams: Option<Streams>,
    /// Columns and rows of a terminal; 120 and 40 unless given. Goes with `io: "pty"`.
    #[serde(default)]
    pub size: Option<(u16, u16)>,
    /// A person's name for it, at most 200 characters.
    #[serde(default, alias = "description")]
    pub label: Option<String>,
    /// A hard cap on the process, milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// From the first signal of a stop to the next, milliseconds.
    #[serde(default)]
    pub grace_ms: Option<u64>,
    /// Where the end is announced; durable tasks only.
    #[serde(default)]
    pub notify: Option<NotifyInput>,
    /// Bytes kept of each stream.
    #[serde(default)]
    pub keep_bytes: Option<u64>,
    /// At most one unfinished task of this key a home; a second run joins it.
    #[serde(default)]
    pub key: Option<String>,
    /// Bytes of each stream in the answer of a foreground run.
    #[serde(default)]
    pub max_output: Option<usize>,
    /// Milliseconds after which a foreground call moves its task to the background; 0 is off.
    #[serde(default)]
    pub hang_ms: Option<u64>,
    /// The owner's branch, opaque.
    #[serde(default)]
    pub branch: Option<String>,
    /// The owner session; the caller's unless given.
    #[serde(default)]
    pub session: Option<String>,
    /// The same id again gets the same answer and starts nothing.
    #[serde(default)]
    pub request_id: Option<String>,
}

/// What a task's environment starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnvBase {
    /// HOME USER SHELL PATH LANG TMPDIR of the user.
    Default,
    /// Nothing.
    None,
}

/// Who holds a foreground lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// The node, for as long as the call lasts.
    Call,
    /// The caller, by its own connection to the task's control socket.
    Caller,
}

/// What the plan is made from beside the arguments.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The new task's id.
    pub id: String,
    /// A new random value.
    pub incarnation: String,
    /// The id of its completion grant, for when there is a notify.
    pub grant_id: String,
    /// The owner session.
    pub session: String,
    /// The task that calls, if one does.
    pub by: Option<String>,
    /// The home, absolute.
    pub home: &'a Path,
    /// The folder of the task.
    pub folder: &'a Path,
    /// The folder that holds the home.
    pub project: &'a Path,
    /// The base environment.
    pub base_env: &'a [(String, String)],
    /// What runs a line.
    pub shell: &'a str,
    /// Now, epoch milliseconds.
    pub now: u64,
    /// Bytes for its standard input, as a resident's run gets its event.
    pub stdin: Option<Vec<u8>>,
    /// Variables of weft's own, as a resident's run gets `WEFT_EVENT_*`.
    pub own_env: Vec<(String, String)>,
}

/// A checked launch.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The row to commit.
    pub row: TaskRow,
    /// The words to execute.
    pub argv: Vec<OsString>,
    /// A script to write into the task's folder first, for a line too long for one argument.
    pub script: Option<String>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Merged or split.
    pub streams: Streams,
    /// Columns and rows of its terminal, where it has one.
    pub size: Option<(u16, u16)>,
    /// Bytes for the standard input.
    pub stdin: Option<Vec<u8>>,
}

impl RunInput {
    /// The lease asked for.
    pub fn lease(&self) -> Lease {
        self.lease.unwrap_or(Lease::Foreground)
    }
}

/// Checks the arguments and decides everything that a launch needs.
pub fn plan(input: &RunInput, around: Surroundings<'_>) -> Result<Plan> {
    let lease = input.lease();
    let (program, command) = program(input, &around)?;
    check_numbers(input)?;
    let io = input.io.unwrap_or(Io::Batch);
    let streams = streams(input, io)?;
    let size = size(input, io)?;
    let notify = notify(input, lease, &around.grant_id)?;
    let cwd = match &input.cwd {
        Some(cwd) if !cwd.starts_with('/') => {
            return Err(Error::invalid(
                "cwd",
                format!("takes an absolute path, not {cwd}"),
            ));
        }
        Some(cwd) => cwd.clone(),
        None => text_path("cwd", around.project)?,
    };
    let env = environment(input, io, &around)?;
    let spec = Spec {
        id: around.id,
        by: around.by,
        label: input.label.clone(),
        command,
        argv: input.argv.clone(),
        cwd,
        io,
        streams: streams.names().to_vec(),
        created_at: around.now,
        timeout_ms: input.timeout_ms,
        grace_ms: input.grace_ms.unwrap_or(GRACE_MS_DEFAULT),
        keep_bytes: kept(input),
        notify,
        incarnation: around.incarnation,
        branch: input.branch.clone(),
    };
    let row = TaskRow {
        session: around.session,
        lease,
        key: input.key.clone(),
        state: State::Starting,
        announced: false,
        discard_item: false,
        adopted: false,
        notify_state: spec
            .notify
            .as_ref()
            .map(|_| super::record::NotifyState::Pending),
        notify_reason: None,
        end: None,
        spec,
    };
    Ok(Plan {
        row,
        argv: program.words,
        script: program.script,
        env,
        streams,
        size,
        stdin: around.stdin,
    })
}

fn streams(input: &RunInput, io: Io) -> Result<Streams> {
    match (io, input.streams) {
        (Io::Pty, Some(Streams::Split)) => Err(Error::invalid(
            "streams",
            "a terminal has one stream, output; use pipes to keep stdout and stderr apart",
        )),
        (_, Some(streams)) => Ok(streams),
        (Io::Pipes, None) => Ok(Streams::Split),
        (Io::Batch | Io::Pty, None) => Ok(Streams::Merged),
    }
}

fn size(input: &RunInput, io: Io) -> Result<Option<(u16, u16)>> {
    let Some(size) = input.size else {
        return Ok((io == Io::Pty).then_some(TERMINAL_SIZE_DEFAULT));
    };
    if io != Io::Pty {
        return Err(Error::invalid("size", "goes with io pty only"));
    }
    check::terminal_size("size", size)?;
    Ok(Some(size))
}

/// Bytes kept of each stream. Who takes the output on as it comes must never be overtaken: what the shim may be ahead of him, and
/// what the pipe holds at the command's end, have to fit.
fn kept(input: &RunInput) -> u64 {
    let asked = input.keep_bytes.unwrap_or(KEEP_BYTES_DEFAULT);
    match input.hold {
        Some(Hold::Caller) => asked.max(KEEP_BYTES_TAKEN_ON_MIN),
        _ => asked,
    }
}

struct Program {
    words: Vec<OsString>,
    script: Option<String>,
}

fn program(input: &RunInput, around: &Surroundings<'_>) -> Result<(Program, String)> {
    match (&input.argv, &input.line) {
        (Some(argv), None) => {
            match argv.first() {
                None => {
                    return Err(Error::invalid(
                        "argv",
                        "takes at least one word, the program",
                    ));
                }
                Some(program) if program.is_empty() => {
                    return Err(Error::invalid("argv", "the program's name is empty"));
                }
                Some(_) => {}
            }
            if let Some(index) = argv.iter().position(|word| word.contains('\0')) {
                return Err(Error::invalid(
                    "argv",
                    format!("word {index} holds a NUL byte, which no argument can"),
                ));
            }
            let words = argv.iter().map(OsString::from).collect();
            Ok((
                Program {
                    words,
                    script: None,
                },
                shell_quoted(argv),
            ))
        }
        (None, Some(line)) => {
            if line.contains('\0') {
                return Err(Error::invalid(
                    "line",
                    "holds a NUL byte, which no command line can",
                ));
            }
            let program = if line.len() > ARG_BYTES_MAX {
                // The kernel takes no longer argument; a script has no such bound.
                let script = around.folder.join(super::folder::SCRIPT);
                Program {
                    words: vec![around.shell.into(), script.into()],
                    script: Some(line.clone()),
                }
            } else {
                Program {
                    words: vec![around.shell.into(), "-c".into(), line.into()],
                    script: None,
                }
            };
            Ok((program, line.clone()))
        }
        (Some(_), Some(_)) => Err(Error::invalid(
            "line",
            "comes instead of `argv`, not beside it",
        )),
        (None, None) => Err(Error::invalid(
            "argv",
            "is missing: give the command's words in `argv` or a shell line in `line`",
        )),
    }
}

fn check_numbers(input: &RunInput) -> Result<()> {
    check::within(
        "timeoutMs",
        input.timeout_ms,
        TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX,
    )?;
    check::within("graceMs", input.grace_ms, 0..=GRACE_MS_MAX)?;
    check::within(
        "keepBytes",
        input.keep_bytes,
        KEEP_BYTES_MIN..=KEEP_BYTES_MAX,
    )?;
    check::within("maxOutput", input.max_output, 0..=OUTPUT_BYTES_MAX)?;
    check::within("hangMs", input.hang_ms, 0..=TIMEOUT_MS_MAX)?;
    check::text("label", input.label.as_deref(), LABEL_CHARS_MAX)?;
    check::text("key", input.key.as_deref(), KEY_CHARS_MAX)?;
    check::text("requestId", input.request_id.as_deref(), KEY_CHARS_MAX)?;
    check::text("branch", input.branch.as_deref(), KEY_CHARS_MAX)?;
    if let Some(session) = &input.session {
        check::name("session", session)?;
    }
    if input.hold.is_some() && input.lease() != Lease::Foreground {
        return Err(Error::invalid(
            "hold",
            "goes with the foreground lease only",
        ));
    }
    Ok(())
}

fn notify(input: &RunInput, lease: Lease, grant_id: &str) -> Result<Option<NotifySpec>> {
    let Some(notify) = &input.notify else {
        return Ok(None);
    };
    if lease != Lease::Durable {
        return Err(Error::invalid(
            "notify",
            "goes with the durable lease only, since another task may end without anyone to announce it",
        ));
    }
    let topic = Topic::parse_public(&notify.topic)?;
    let kind: Kind = notify.kind.as_deref().unwrap_or(COMPLETION_KIND).parse()?;
    Ok(Some(NotifySpec {
        topic: topic.to_string(),
        kind: kind.to_string(),
        grant_id: grant_id.to_owned(),
    }))
}

fn environment(
    input: &RunInput,
    io: Io,
    around: &Surroundings<'_>,
) -> Result<Vec<(OsString, OsString)>> {
    let mut env = std::collections::BTreeMap::new();
    if input.env_base.unwrap_or(EnvBase::Default) == EnvBase::Default {
        env.extend(around.base_env.iter().cloned());
    }
    for (name, value) in input.env.iter().flatten() {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(Error::invalid(
                format!("env.{}", name.escape_default()),
                "takes a name without `=` and no NUL bytes",
            ));
        }
        env.insert(name.clone(), value.clone());
    }
    if io == Io::Pty {
        // Whoever looks at it, by whatever terminal, sees what this one was told.
        env.entry("TERM".into())
            .or_insert_with(|| TERMINAL_KIND.into());
    }
    env.insert("WEFT_HOME".into(), text_path("home", around.home)?);
    env.insert("WEFT_TASK_ID".into(), around.id.clone());
    env.insert("WEFT_SESSION".into(), around.session.clone());
    env.extend(around.own_env.iter().cloned());
    Ok(env
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect())
}

fn text_path(field: &str, path: &Path) -> Result<String> {
    path.to_str().map(ToOwned::to_owned).ok_or_else(|| {
        Error::invalid(
            field,
            format!(
                "{} is not UTF-8; give a path that is, or name another one",
                path.display()
            ),
        )
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
