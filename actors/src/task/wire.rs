//! The words spoken between a node and a shim: one launch document, one answer, then JSON lines on the
//! control socket. Node and shim may be of different releases, so a reader ignores fields that it does
//! not know, new fields have a default, and only `version` decides whether the two can talk at all.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use words::{os, os_list, os_option, os_pairs};

mod words;

/// The launch protocol that this release speaks, and the `hello` of its control socket.
pub const PROTOCOL: u32 = 1;

/// What a shim's refusal of input begins with where it would be taken later.
pub const INPUT_IS_FULL: &str = "the task has not read its input";

/// A shim's refusal of what comes too late.
pub const HAS_ENDED: &str = "the task has ended";

/// Who keeps a task alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lease {
    /// The caller: an open control connection that asked to `hold`.
    Foreground,
    /// An owner session; the node sends the stop when that one ends.
    Session,
    /// The home: nobody's end but its own.
    Durable,
}

/// How a task's standard streams are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// Standard input is closed (or holds given bytes); output goes to files.
    Batch,
    /// Standard input is an open pipe that `write` feeds.
    Pipes,
    /// A terminal.
    Pty,
}

/// Whether standard output and error share one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Streams {
    /// One pipe and one file, `output`, in true write order.
    Merged,
    /// Two pipes and two files, `stdout` and `stderr`.
    Split,
}

/// The name of one captured stream, which is also its file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamName {
    /// Standard output and error together.
    Output,
    /// Standard output alone.
    Stdout,
    /// Standard error alone.
    Stderr,
}

impl StreamName {
    /// The name as it stands in paths and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// The stream of that name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Output, Self::Stdout, Self::Stderr]
            .into_iter()
            .find(|stream| stream.as_str() == name)
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl Streams {
    /// The streams that a task of this kind has, in the order of their slots in the file `kept`.
    pub const fn names(self) -> &'static [StreamName] {
        match self {
            Self::Merged => &[StreamName::Output],
            Self::Split => &[StreamName::Stdout, StreamName::Stderr],
        }
    }
}

/// A text that must not be shown: its `Debug` is blind and it has no `Display`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

/// All that a shim needs to know, sent once through its standard input. Words that are not UTF-8 travel
/// as `{"base64": "…"}`, so that they arrive as they were given.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// [`PROTOCOL`] of the sender.
    pub version: u32,
    /// The task's id.
    pub id: String,
    /// The home, absolute.
    #[serde(with = "os")]
    pub home: PathBuf,
    /// The `weft` binary, absolute: what the shim runs when a node must be woken.
    #[serde(with = "os")]
    pub weft: PathBuf,
    /// The complete environment of a node that the shim may have to start.
    #[serde(with = "os_pairs", default)]
    pub node_env: Vec<(OsString, OsString)>,
    /// The command's words, the program first. A program without a slash is looked up in the `PATH` of `env`.
    #[serde(with = "os_list")]
    pub argv: Vec<OsString>,
    /// The command's working directory, absolute.
    #[serde(with = "os")]
    pub cwd: PathBuf,
    /// The command's complete environment.
    #[serde(with = "os_pairs")]
    pub env: Vec<(OsString, OsString)>,
    /// Who keeps it alive at first.
    pub lease: Lease,
    /// How its streams are connected.
    pub io: Io,
    /// One output file or two.
    pub streams: Streams,
    /// A hard cap on the process in milliseconds since its start, suspend included.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    /// The receipt's reason when the deadline ends the task; `deadline` if there is none.
    #[serde(default)]
    pub deadline_reason: Option<String>,
    /// Milliseconds between SIGTERM and the end of patience, where a stop names none.
    pub grace_ms: u64,
    /// Bytes kept of each stream.
    pub keep_bytes: u64,
    /// The completion grant's token. It lives in memory alone.
    #[serde(default)]
    pub token: Option<Secret>,
    /// The topic to post the completion to.
    #[serde(default)]
    pub topic: Option<String>,
    /// The bytes of a batch task's standard input; without them it reads `/dev/null`.
    #[serde(with = "os_option", default)]
    pub stdin: Option<OsString>,
    /// The limit of open files for the command (soft, hard), where the node changed its own.
    #[serde(default)]
    pub nofile: Option<(u64, u64)>,
    /// Names this run of the task apart from any other.
    pub incarnation: String,
    /// Bytes that must stay free on the file system of the home.
    pub free_floor: u64,
    /// Columns and rows of a terminal at its start.
    #[serde(default)]
    pub size: Option<(u16, u16)>,
}

impl fmt::Debug for Launch {
    // Invariant: neither a value of the environment nor the token can reach a log by this way.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Launch")
            .field("id", &self.id)
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("lease", &self.lease)
            .field("io", &self.io)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

/// The one line that a shim writes to its standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The command runs, and the file `started` says so.
    Started(Running),
    /// Nothing runs and nothing was left behind.
    Failed(Failure),
    /// Another shim has this folder, or the task has already ended. Nothing was started.
    Busy(bool),
}

/// The command that runs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// The main process.
    pub pid: u32,
    /// Epoch milliseconds.
    pub started_at: u64,
}

/// Why a command did not start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The reason, in a form to show.
    pub message: String,
    /// The system's error number, where it was the system's refusal.
    #[serde(default)]
    pub errno: Option<i32>,
}

/// The file `started`: what proves later that a process is the task's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// The main process, a number that means something only in `boot_id` and `pid_ns`.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub birth: u64,
    /// The kernel's own number for it, which is never used again in this boot; Linux has it since 6.9. A tick
    /// is ten milliseconds, in which a pid might come round again.
    #[serde(default)]
    pub unique: Option<u64>,
    /// The kernel's id of this boot.
    pub boot_id: String,
    /// The inode of the pid namespace.
    pub pid_ns: u64,
    /// Epoch milliseconds.
    pub started_at: u64,
    /// The shim's own pid, in the same boot and namespace.
    pub shim: u32,
    /// Device and inode of the task's folder: in a copy of the home this file tells of another home's processes.
    #[serde(default)]
    pub folder: Option<(u64, u64)>,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndState {
    /// By itself, with code 0.
    Exited,
    /// By itself with another code, or by a signal that nobody here sent.
    Failed,
    /// It was stopped, or ended by a signal sent through weft.
    Killed,
    /// Its deadline passed.
    TimedOut,
}

impl EndState {
    /// The name as it stands in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::TimedOut => "timed_out",
        }
    }
}

/// What the task used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Processor time of all processes that were waited for, user and system, in milliseconds.
    pub cpu_ms: u64,
    /// The largest resident size that any one of them reached.
    pub peak_rss_bytes: u64,
}

/// The file `receipt.json`. Invariant: once there it never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The task's id.
    pub task_id: String,
    /// How it ended.
    pub state: EndState,
    /// The main process's code, 128 + n for signal n.
    pub exit_code: i32,
    /// The name of the signal that ended the main process, such as `SIGKILL`.
    pub signal: Option<String>,
    /// Why it was stopped: `stopped`, `deadline`, `caller-gone`, or what the asker gave.
    pub reason: Option<String>,
    /// Epoch milliseconds.
    pub started_at: u64,
    /// When the main process ended, in epoch milliseconds.
    pub finished_at: u64,
    /// Epoch milliseconds of the last byte.
    pub last_output_at: Option<u64>,
    /// Bytes since launch of each stream.
    pub streams: BTreeMap<StreamName, u64>,
    /// Their sum.
    pub output_bytes: u64,
    /// A descendant still held a stream when the capture ended.
    pub streams_held_open: bool,
    /// Processes of a stopped tree that could not be ended.
    pub survivors: Vec<u32>,
    /// What it used.
    pub usage: Usage,
    /// The run that this receipt is of.
    pub incarnation: String,
    /// The kernel's id of the boot in which it ended.
    pub boot_id: String,
}

/// One request on the control socket: `{"n":1,"do":"stop","graceMs":500}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the asker; the answer carries it.
    pub n: u64,
    /// What is asked.
    #[serde(flatten)]
    pub ask: Ask,
}

/// What can be asked of a shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ask {
    /// This connection holds the foreground lease until it closes.
    Hold {
        /// It takes the output on as a pipe's reader would: what it has not asked past by `await` is not given up, and a
        /// command that is ahead of it by nearly all that is kept waits.
        #[serde(default)]
        consumes: bool,
    },
    /// Moves the lease to `session` or `durable`.
    Lease {
        /// The new lease.
        to: Lease,
    },
    /// Ends the whole tree; answered with the receipt's `state` and `survivors` when it is gone.
    Stop {
        /// Milliseconds between SIGTERM and SIGKILL, instead of the launch's.
        #[serde(default)]
        grace_ms: Option<u64>,
        /// The receipt's reason, instead of `stopped`.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Sends one signal to every process of the tree.
    Signal {
        /// A name, with or without `SIG`.
        signal: String,
        /// Asked twice by the same mark it is sent once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<Mark>,
    },
    /// Answered once, when the stream has more than `after` bytes or the task has ended.
    Await {
        /// The stream.
        stream: StreamName,
        /// Bytes already known.
        after: u64,
    },
    /// What is going on.
    Status,
    /// Bytes for the standard input of a task with pipes or a terminal, in base64. All are taken or none.
    Write {
        /// The bytes.
        data: String,
        /// Asked twice by the same mark they are written once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<Mark>,
    },
    /// Answered once, when so many bytes of input would be taken, or none will be any more.
    Room {
        /// The bytes.
        bytes: usize,
    },
    /// End of file for that standard input, after what was written.
    CloseInput,
    /// Gives the terminal another size.
    Resize {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
}

/// What a repeated request is known by. A node may die between asking a shim and telling its caller, who then asks the next
/// node: only the shim, which outlives both, can know that it is the same request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Names the request.
    pub id: String,
    /// Names what it asked for: the same `id` with another body is another's.
    pub body: String,
}

/// One line from a shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// The first line of every connection.
    Hello(Hello),
    /// The task has ended and its receipt is durable. The last line.
    Ended {
        /// The receipt.
        ended: Box<Receipt>,
    },
    /// The answer to a request.
    Ok {
        /// The request's number.
        n: u64,
        /// The result, an object.
        ok: Value,
    },
    /// The refusal of a request.
    Error {
        /// The request's number.
        n: u64,
        /// The reason, in a form to show.
        error: String,
    },
}

/// The first line of every connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the shim.
    pub hello: u32,
    /// The task's id.
    pub id: String,
    /// The main process.
    pub pid: u32,
    /// The lease as it is now.
    pub lease: Lease,
    /// Bytes since launch of each stream.
    pub sizes: BTreeMap<StreamName, u64>,
}

/// The result of `status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `running`, `stopping` or `ending`.
    pub phase: String,
    /// The main process.
    pub pid: u32,
    /// The lease as it is now.
    pub lease: Lease,
    /// Connections that hold the foreground lease.
    pub holders: usize,
    /// Bytes since launch of each stream.
    pub sizes: BTreeMap<StreamName, u64>,
    /// Epoch milliseconds of the last byte.
    pub last_output_at: Option<u64>,
    /// Whether standard input can still be written.
    pub input_open: bool,
}

/// The result of `stop`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// How the task ended; `None` while its main process is itself one of the survivors.
    pub state: Option<EndState>,
    /// Processes that could not be ended.
    pub survivors: Vec<u32>,
}

#[cfg(test)]
mod tests;
