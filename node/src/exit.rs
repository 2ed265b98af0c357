//! Every way a command can fail, with its exit code and its hint. Nothing else decides an exit code.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use serde_json::Value;
use thiserror::Error;

use crate::home::HomeError;

/// Done.
pub(crate) const DONE: u8 = 0;
/// Refused, or failed.
pub(crate) const REFUSED: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// A task ended by its deadline.
pub(crate) const TIMED_OUT: u8 = 124;
/// weft itself failed, or a task was lost.
pub(crate) const WEFT_FAILED: u8 = 125;
/// The command was found and cannot be run.
pub(crate) const NOT_RUNNABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// What a shell reports of a process ended by a closed pipe: 128 + SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 141;

/// The verb whose node may be another's.
const POST: &str = "weft mesh post";

/// The kernel's number for "no such file", which a problem document carries in `errno`.
const ENOENT: i64 = 2;

/// What the system refuses to any command, whatever it is: no more files, processes, memory or disk.
const SYSTEM_REFUSALS: [Errno; 8] = [
    Errno::AGAIN,
    Errno::DQUOT,
    Errno::IO,
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOMEM,
    Errno::NOSPC,
    Errno::ROFS,
];

/// Why a command ends without having done what was asked.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The command line does not make sense.
    #[error("{0}")]
    Usage(String),
    /// The home cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The home's settings cannot be used.
    #[error("{}: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the key's name.
        reason: String,
    },
    /// The node said no.
    #[error("{0}")]
    Refused(Problem),
    /// What was asked for did not come about, as the message says.
    #[error("{0}")]
    Failed(String),
    /// No node answers, and none may or could be started.
    #[error("no node answers in {}: {reason}", home.display())]
    NoNode {
        /// The home.
        home: PathBuf,
        /// What was tried and how it ended.
        reason: String,
    },
    /// The connection broke in the middle of an answer.
    #[error("the connection to the node broke: {0}")]
    Cut(String),
    /// A change was sent, no answer came, and it cannot be asked again: only looking tells whether it took effect.
    #[error("whether it took effect is unknown: {reason}{}", request_id.as_ref().map(|id| format!(" (request {id})")).unwrap_or_default())]
    Unknown {
        /// Why there is no answer.
        reason: String,
        /// By which the node knows the request again.
        request_id: Option<String>,
    },
    /// The connection broke each time that a question was asked again.
    #[error("the node breaks the connection again and again: {0}")]
    Broken(String),
    /// The other side does not speak as a node does.
    #[error("the node's answer cannot be understood: {0}")]
    Protocol(String),
    /// A file or stream of ours failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Nobody reads our output any more.
    #[error("nobody reads the output")]
    OutputClosed,
}

impl Failure {
    /// A system failure while doing `what`.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Failure::Io {
            what: what.into(),
            source,
        }
    }

    /// A failure to write our own output: a closed pipe is the reader's choice, not an error to talk about.
    pub(crate) fn output(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            Failure::OutputClosed
        } else {
            Failure::io("writing output", source)
        }
    }

    /// The exit code of this failure.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => USAGE,
            Failure::Home(_) | Failure::Config { .. } | Failure::Failed(_) => REFUSED,
            Failure::Refused(problem) => problem.code(),
            Failure::NoNode { .. }
            | Failure::Cut(_)
            | Failure::Unknown { .. }
            | Failure::Broken(_)
            | Failure::Protocol(_)
            | Failure::Io { .. } => WEFT_FAILED,
            Failure::OutputClosed => BROKEN_PIPE,
        }
    }

    /// The exit code where that of a command is expected: what kept it from being run must not look like its own end.
    pub(crate) fn code_for_command(&self) -> u8 {
        match self {
            Failure::Home(_) | Failure::Config { .. } => WEFT_FAILED,
            other => other.code(),
        }
    }

    /// What a person can do about it, where the message does not say so already. `verb` is the command as it was called,
    /// `weft mesh read`.
    pub(crate) fn hint(&self, verb: &str) -> Option<String> {
        match self {
            Failure::Usage(_) => Some(format!("`{verb} --help` shows how it is used")),
            Failure::NoNode { home, .. } => Some(format!(
                "run `weft --home {} node` to see it start; nothing is ever run unsupervised instead",
                shell_word(&home.to_string_lossy())
            )),
            Failure::Cut(_) | Failure::Unknown { .. } if verb == POST => Some("look with `weft mesh read` in that node's home whether the event is there before you post again".to_owned()),
            Failure::Protocol(_) if verb == POST => Some("is it a weft node that is reached there?".to_owned()),
            Failure::Cut(_) | Failure::Unknown { .. } => Some("look with `weft ps --all` whether it took effect before you repeat it".to_owned()),
            Failure::Broken(_) => Some("run `weft node` in the foreground and ask again to see why".to_owned()),
            Failure::Protocol(_) => Some("another version may be running; `weft node status` tells, `weft node stop` ends it, tasks go on".to_owned()),
            _ => None,
        }
    }

    /// The failure as a problem document, for `--json`: that of a refusal as it came, any other in the same form.
    pub(crate) fn document(&self, verb: &str) -> Value {
        if let Failure::Refused(problem) = self {
            return problem.document.clone();
        }
        let detail = match self.hint(verb) {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        };
        let mut document = problem_document(self.slug(), &detail);
        if let Failure::Unknown {
            request_id: Some(id),
            ..
        } = self
        {
            document["requestId"] = id.as_str().into();
        }
        document
    }

    fn slug(&self) -> &str {
        match self {
            Failure::Usage(_) => "usage",
            Failure::Home(_) => "home",
            Failure::Config { .. } => "config",
            Failure::Refused(problem) => &problem.slug,
            Failure::Failed(_) => "failed",
            Failure::NoNode { .. } => "no-node",
            Failure::Cut(_) | Failure::Unknown { .. } => "outcome-unknown",
            Failure::Broken(_) => "connection",
            Failure::Protocol(_) => "protocol",
            Failure::Io { .. } => "io",
            Failure::OutputClosed => "output-closed",
        }
    }

    /// Whether the node refused for the reason called `slug`.
    pub(crate) fn is_refusal(&self, slug: &str) -> bool {
        matches!(self, Failure::Refused(problem) if problem.slug == slug)
    }
}

/// A problem document in the form that nodes give it, without the status of a request that was never made.
fn problem_document(slug: &str, detail: &str) -> Value {
    let words = slug.replace('-', " ");
    let mut letters = words.chars();
    let title = letters.next().map_or_else(String::new, |first| {
        first.to_ascii_uppercase().to_string() + letters.as_str()
    });
    serde_json::json!({"type": format!("urn:weft:problem:{slug}"), "title": title, "detail": detail})
}

/// A refusal by the node: the document as it came and the two parts that decide.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    /// The stable name, `grant-spent`.
    pub(crate) slug: String,
    /// The whole document.
    pub(crate) document: Value,
}

impl Problem {
    /// Reads a problem document; anything else becomes one that says so.
    pub(crate) fn parse(status: u16, body: &[u8]) -> Self {
        let document: Value = serde_json::from_slice(body).ok().filter(Value::is_object).unwrap_or_else(|| {
            let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
            serde_json::json!({"type": "about:blank", "title": format!("HTTP status {status}"), "status": status, "detail": text})
        });
        let kind = document["type"].as_str().unwrap_or_default();
        let slug = kind.rsplit(':').next().unwrap_or(kind).to_owned();
        Problem { slug, document }
    }

    /// A refusal that is found out here and is the node's by right, in its words and form.
    pub(crate) fn here(slug: &str, detail: &str) -> Self {
        Problem {
            slug: slug.to_owned(),
            document: problem_document(slug, detail),
        }
    }

    /// The document's text of this name.
    fn text(&self, name: &str) -> Option<&str> {
        self.document
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    }

    fn code(&self) -> u8 {
        let errno = self.document["errno"].as_i64();
        let refused_to_all = || {
            SYSTEM_REFUSALS
                .iter()
                .any(|known| errno == Some(known.raw_os_error().into()))
        };
        match self.slug.as_str() {
            "not-started" if errno == Some(ENOENT) => NOT_FOUND,
            "not-started" if refused_to_all() => WEFT_FAILED,
            "not-started" => NOT_RUNNABLE,
            "internal" | "io" | "actor-failed" | "store-corrupt" | "node-stopping" | "no-space" => {
                WEFT_FAILED
            }
            _ => REFUSED,
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = self
            .text("detail")
            .or_else(|| self.text("title"))
            .unwrap_or("refused without a reason");
        // Details quote labels, ids and paths that others chose.
        out.write_str(&crate::render::visible(words))?;
        if self.slug.starts_with("grant-") {
            write!(out, " ({})", self.slug)
        } else {
            Ok(())
        }
    }
}

/// The exit code of a task that ended, from its record.
pub(crate) fn of_record(record: &Value) -> u8 {
    match record["state"].as_str() {
        Some("timed_out") => TIMED_OUT,
        Some("lost") => WEFT_FAILED,
        _ => of_code(record["exitCode"].as_i64()),
    }
}

/// A process's own code as ours; what cannot be one is weft's failure.
fn of_code(code: Option<i64>) -> u8 {
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(WEFT_FAILED)
}

/// `text` as one word of a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(slug: &str, extra: &Value) -> Failure {
        let mut document =
            json!({"type": format!("urn:weft:problem:{slug}"), "title": "t", "detail": "d"});
        for (key, value) in extra.as_object().into_iter().flatten() {
            document[key] = value.clone();
        }
        Failure::Refused(Problem::parse(400, document.to_string().as_bytes()))
    }

    #[test]
    fn a_command_that_is_missing_and_one_that_cannot_run_differ() {
        assert_eq!(
            problem("not-started", &json!({"errno": 2})).code(),
            NOT_FOUND
        );
        assert_eq!(
            problem("not-started", &json!({"errno": 13})).code(),
            NOT_RUNNABLE
        );
        assert_eq!(problem("not-started", &json!({})).code(), NOT_RUNNABLE);
        assert_eq!(
            problem("not-started", &json!({"errno": 28})).code(),
            WEFT_FAILED
        );
        assert_eq!(problem("no-space", &json!({})).code(), WEFT_FAILED);
        assert_eq!(problem("topic-reserved", &json!({})).code(), REFUSED);
        assert_eq!(problem("internal", &json!({})).code(), WEFT_FAILED);
    }

    #[test]
    fn a_task_s_end_becomes_our_exit_code() {
        assert_eq!(of_record(&json!({"state": "failed", "exitCode": 3})), 3);
        assert_eq!(of_record(&json!({"state": "killed", "exitCode": 143})), 143);
        assert_eq!(
            of_record(&json!({"state": "timed_out", "exitCode": 143})),
            TIMED_OUT
        );
        assert_eq!(
            of_record(&json!({"state": "lost", "exitCode": null})),
            WEFT_FAILED
        );
        assert_eq!(of_record(&json!({"state": "exited", "exitCode": 0})), DONE);
    }

    #[test]
    fn what_is_no_problem_document_still_becomes_a_message() {
        let text = Failure::Refused(Problem::parse(502, b"<html>\x1b]0;x\x07")).to_string();
        assert!(!text.contains('\x1b') && text.contains("<html>"), "{text}");
    }

    #[test]
    fn every_failure_has_a_document_of_one_form() {
        for failure in [
            Failure::Usage("--env x: takes NAME=VALUE".to_owned()),
            Failure::Cut("reset".to_owned()),
            Failure::Failed("no node runs".to_owned()),
            Failure::Refused(Problem::here("not-found", "there is no task x")),
        ] {
            let document = failure.document("weft run");
            let names: Vec<&String> = document.as_object().unwrap().keys().collect();
            assert_eq!(names, ["detail", "title", "type"], "{document}");
            assert!(
                document["detail"]
                    .as_str()
                    .unwrap()
                    .contains(&failure.to_string()),
                "{document}"
            );
        }
    }

    #[test]
    fn what_keeps_a_command_from_running_is_not_taken_for_its_end() {
        let failure = Failure::Home(HomeError::Absent { path: "/x".into() });
        assert_eq!(
            (failure.code(), failure.code_for_command()),
            (REFUSED, WEFT_FAILED)
        );
    }

    #[test]
    fn a_post_that_was_cut_is_looked_for_among_the_events_and_not_the_tasks() {
        let cut = Failure::Cut("reset".to_owned());
        assert!(cut.hint(POST).unwrap().contains("mesh read"));
        assert!(cut.hint("weft run").unwrap().contains("ps --all"));
    }

    #[test]
    fn refusals_of_grants_are_shown_by_name() {
        assert_eq!(
            problem("grant-spent", &json!({})).to_string(),
            "d (grant-spent)"
        );
    }

    #[test]
    fn words_for_a_shell_are_quoted_only_where_they_must_be() {
        assert_eq!(shell_word("/tmp/a-b"), "/tmp/a-b");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
