//! What is known of a task: the spec it was launched with, how it ended, and the record that callers see.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settle::NEVER_STARTED;
use super::wire::{EndState, Io, Lease, Receipt, StreamName};

/// Where a task stands. `exited` means code 0 and nothing more: it is no verdict on the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Committed, not yet known to run.
    Starting,
    /// Its main process lives.
    Running,
    /// Ended with code 0.
    Exited,
    /// Ended with another code, or by a signal that nobody here sent.
    Failed,
    /// Stopped by weft.
    Killed,
    /// Ended by its deadline.
    TimedOut,
    /// Its shim is gone and left no receipt: how it ended cannot be known.
    Lost,
}

impl State {
    /// Whether the task has ended.
    pub fn is_final(self) -> bool {
        !matches!(self, State::Starting | State::Running)
    }

    /// The name as it stands in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Exited => EndState::Exited.as_str(),
            State::Failed => EndState::Failed.as_str(),
            State::Killed => EndState::Killed.as_str(),
            State::TimedOut => EndState::TimedOut.as_str(),
            State::Lost => "lost",
        }
    }
}

impl From<EndState> for State {
    fn from(state: EndState) -> Self {
        match state {
            EndState::Exited => State::Exited,
            EndState::Failed => State::Failed,
            EndState::Killed => State::Killed,
            EndState::TimedOut => State::TimedOut,
        }
    }
}

/// Everything decided at launch. Never changes, but for what [`TaskRow`](super::row::TaskRow) keeps beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The task's id: `t-` and random characters.
    pub id: String,
    /// Who launched it, where that was a task: `task:<id>`.
    pub by: Option<String>,
    /// A person's name for it.
    pub label: Option<String>,
    /// What runs, as one line that can be pasted into a shell.
    pub command: String,
    /// The words of the command; none for a shell line.
    pub argv: Option<Vec<String>>,
    /// The absolute working directory.
    pub cwd: String,
    /// Batch, pipes or PTY.
    pub io: Io,
    /// Its output streams.
    pub streams: Vec<StreamName>,
    /// When the launch was committed, epoch milliseconds.
    pub created_at: u64,
    /// The hard cap on the process from its start, milliseconds.
    pub timeout_ms: Option<u64>,
    /// From the first signal of a stop to the next, milliseconds.
    pub grace_ms: u64,
    /// Kept bytes a stream.
    pub keep_bytes: u64,
    /// Where the end is announced.
    pub notify: Option<NotifySpec>,
    /// A new value for every launch.
    pub incarnation: String,
    /// The owner's branch at launch.
    pub branch: Option<String>,
}

/// Where and as what a task's end is announced.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotifySpec {
    /// The topic of the event.
    pub topic: String,
    /// Its kind.
    pub kind: String,
    /// The single-use grant the shim posts with.
    pub grant_id: String,
}

/// How a task ended, in the words of its receipt; for a lost one, what is known.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    /// A final state.
    pub state: State,
    /// The process's own code, 128 + n for signal n; none when lost.
    pub exit_code: Option<i32>,
    /// The signal's name, `SIGKILL`.
    pub signal: Option<String>,
    /// Why, where the state alone does not tell: `deadline`, `never-started`, …
    pub reason: Option<String>,
    /// The main process's number while it lived.
    pub pid: Option<u32>,
    /// Epoch milliseconds.
    pub started_at: Option<u64>,
    /// Epoch milliseconds.
    pub finished_at: u64,
    /// Epoch milliseconds of the last byte of output.
    pub last_output_at: Option<u64>,
    /// Bytes of each stream since launch.
    pub streams: BTreeMap<StreamName, u64>,
    /// A descendant held a stream open at the end; what it printed later was not captured.
    pub streams_held_open: bool,
    /// Processes that could not be signalled.
    pub survivors: Vec<u32>,
    /// Whether the remains of a lost task could be ended: `ended` or `unknown`.
    pub descendants: Option<String>,
    /// What the tree used.
    pub usage: Usage,
}

impl End {
    /// Whether nothing of the command ever ran, though its start was recorded.
    pub fn never_began(&self) -> bool {
        self.state == State::Lost && self.reason.as_deref() == Some(NEVER_STARTED)
    }

    /// The end that a receipt tells; the process's number stands in the file `started`.
    pub fn of_receipt(receipt: Receipt, pid: Option<u32>) -> Self {
        End {
            state: receipt.state.into(),
            exit_code: Some(receipt.exit_code),
            signal: receipt.signal,
            reason: receipt.reason,
            pid,
            started_at: Some(receipt.started_at),
            finished_at: receipt.finished_at,
            last_output_at: receipt.last_output_at,
            streams: receipt.streams,
            streams_held_open: receipt.streams_held_open,
            survivors: receipt.survivors,
            descendants: None,
            usage: Usage {
                cpu_ms: receipt.usage.cpu_ms,
                peak_rss_bytes: receipt.usage.peak_rss_bytes,
                ..Usage::default()
            },
        }
    }

    /// Bytes of all streams since launch.
    pub fn output_bytes(&self) -> u64 {
        self.streams.values().sum()
    }
}

/// What a task's processes use or used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Processor time, milliseconds.
    pub cpu_ms: u64,
    /// Resident memory now, bytes.
    pub rss_bytes: u64,
    /// The most resident memory of any of its processes, bytes.
    pub peak_rss_bytes: u64,
    /// Living processes.
    pub processes: u32,
}

/// How far the announcement on a topic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotifyState {
    /// Not yet: the task runs, or its end is not announced yet.
    Pending,
    /// The event is in the log.
    Posted,
    /// A person revoked the grant: there is no event.
    Revoked,
    /// The event could not be made; `reason` says why.
    Failed,
}

/// The announcement of a task's end, as its record shows it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Notify {
    /// The topic.
    pub topic: String,
    /// The event's kind.
    pub kind: String,
    /// The single-use grant it is posted with.
    pub grant_id: String,
    /// How far it is.
    pub state: NotifyState,
    /// Why there is no event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The record of a task: every key is always there, null, 0, false or [] where it has nothing to say.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "its shape is the public record"
)]
pub struct Record {
    /// Its id; any unambiguous prefix of it is accepted.
    pub id: String,
    /// The owner session.
    pub session: String,
    /// Who launched it, where that was a task.
    pub by: Option<String>,
    /// A person's name for it.
    pub label: Option<String>,
    /// What runs, as one line.
    pub command: String,
    /// The words of the command; null for a shell line.
    pub argv: Option<Vec<String>>,
    /// The working directory.
    pub cwd: String,
    /// Who keeps it alive.
    pub lease: Option<Lease>,
    /// Batch, pipes or PTY.
    pub io: Option<Io>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The names of its output streams.
    pub streams: Vec<String>,
    /// Where it stands.
    pub state: State,
    /// Whether its main process lives or is about to.
    pub running: bool,
    /// 0..255, 128 + n for signal n; null while it runs and for a lost one.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Why, where the state does not tell.
    pub reason: Option<String>,
    /// The main process.
    pub pid: Option<u32>,
    /// Epoch milliseconds.
    pub started_at: Option<u64>,
    /// Epoch milliseconds.
    pub finished_at: Option<u64>,
    /// Epoch milliseconds of the last byte of output.
    pub last_output_at: Option<u64>,
    /// Bytes of all streams since launch.
    pub output_bytes: u64,
    /// The file of the first stream.
    pub log_path: String,
    /// Epoch milliseconds of its hard cap.
    pub deadline_at: Option<u64>,
    /// A descendant held a stream open at the end.
    pub streams_held_open: bool,
    /// Processes that could not be signalled.
    pub survivors: Vec<u32>,
    /// The remains of a lost task: `ended` or `unknown`.
    pub descendants: Option<String>,
    /// Where its end is announced.
    pub notify: Option<Notify>,
    /// Its monitor. None in this version.
    pub monitor: Option<serde_json::Value>,
    /// What an observer watches. None in this version.
    pub target: Option<String>,
    /// What it uses or used.
    pub usage: Usage,
    /// Taken over from another session.
    pub adopted: bool,
    /// A new value for every launch.
    pub incarnation: String,
    /// The node that keeps it.
    pub node: String,
}
