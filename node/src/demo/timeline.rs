//! The lines of the demonstration. Each shows what the node answered, under a name of the contract.

use std::time::Instant;

use serde_json::{Value, json};

use crate::app::{print, print_json};
use crate::duration::human;
use crate::exit::Failure;
use crate::render::{self, list, plain, text, visible, visible_lines};

/// Prints what happens, with the time since the beginning.
pub(super) struct Timeline {
    began: Instant,
    json: bool,
}

impl Timeline {
    pub(super) fn begin(json: bool) -> Self {
        Timeline {
            began: Instant::now(),
            json,
        }
    }

    /// One thing that happened: its name, what the node said, and the words for people.
    pub(super) fn show(&self, what: &str, answer: &Value, words: &str) -> Result<(), Failure> {
        let since = self.began.elapsed().as_millis() as u64;
        if self.json {
            return print_json(&json!({"sinceMs": since, "what": what, "answer": answer}));
        }
        print(&format!("{since:>6} ms  {what:<9}  {}\n", visible(words)))
    }

    pub(super) fn node(&self, status: &Value) -> Result<(), Failure> {
        let urls: Vec<String> = list(status, "http").iter().map(plain).collect();
        let words = format!(
            "{} at {}, epoch {}, durability {}",
            text(status, "node"),
            urls.join(" "),
            text(status, "epoch"),
            text(status, "durability")
        );
        self.show("node", status, &words)
    }

    pub(super) fn task(&self, record: &Value) -> Result<(), Failure> {
        let words = format!(
            "{}  state {}  lease {}  \"{}\"",
            text(record, "id"),
            render::state(record),
            text(record, "lease"),
            render::title(record)
        );
        self.show("task", record, &words)
    }

    pub(super) fn grant(&self, record: &Value) -> Result<(), Failure> {
        let notify = &record["notify"];
        let words = format!(
            "{}  topic {}  kind {}  state {}",
            text(notify, "grantId"),
            text(notify, "topic"),
            text(notify, "kind"),
            text(notify, "state")
        );
        self.show("grant", notify, &words)
    }

    pub(super) fn event(&self, event: &Value) -> Result<(), Failure> {
        self.show("event", event, render::event(event).trim())
    }

    pub(super) fn end(&self, record: &Value) -> Result<(), Failure> {
        let ran = record["finishedAt"]
            .as_u64()
            .unwrap_or(0)
            .saturating_sub(record["startedAt"].as_u64().unwrap_or(0));
        let words = format!(
            "{}  state {}  exit code {}  ran {}",
            text(record, "id"),
            render::state(record),
            plain(&record["exitCode"]),
            human(ran)
        );
        self.show("task", record, &words)
    }

    pub(super) fn resident(&self, entry: &Value) -> Result<(), Failure> {
        let words = format!(
            "{} event {} at attempt {} by task {}",
            text(entry, "state"),
            plain(&entry["sequence"]),
            plain(&entry["attempt"]),
            plain(&entry["taskId"])
        );
        self.show("resident", entry, &words)
    }

    /// What a task printed, set off from the timeline.
    pub(super) fn output(&self, answer: &Value) -> Result<(), Failure> {
        if self.json {
            return print_json(&json!({"what": "output", "answer": answer["output"]}));
        }
        let all: String = list(answer, "output")
            .iter()
            .map(|stream| text(stream, "tail").to_owned())
            .collect();
        all.lines().try_for_each(|line| {
            print(&format!(
                "           {:<9}  | {}\n",
                "",
                visible_lines(line)
            ))
        })
    }
}
