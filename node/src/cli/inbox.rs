//! `inbox`: what was delivered to a session.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::given;
use crate::app::{App, block_on, say};
use crate::client::Client;
use crate::exit::{self, Failure};
use crate::limits::WAIT_MS_MAX;
use crate::render::{self, list, plain, text};

/// Options of `inbox`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft inbox\n  weft inbox --wait\n  weft inbox --ack 17      everything up to 17 was read"
)]
pub(super) struct Inbox {
    /// Acknowledge every item up to this number
    #[arg(long, value_name = "SEQ", conflicts_with = "wait")]
    ack: Option<u64>,
    /// Wait until something is there; ends with 1 when nothing alive can wake this session
    #[arg(long)]
    wait: bool,
    /// Only items after this number
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
}

impl Inbox {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        if let Some(seq) = self.ack {
            let answer = block_on(client.change("inbox.ack", json!({"seq": seq})))?;
            app.answer(&answer, |_| String::new())?;
            app.tell(&format!("{} acknowledged", plain(&answer["acknowledged"])));
            return Ok(exit::DONE);
        }
        let answer = block_on(self.read(&mut client))?;
        app.answer(&answer, items)?;
        if !self.wait {
            app.tell_if_none(list(&answer, "items"), "deliveries");
        }
        if self.wait && list(&answer, "items").is_empty() {
            say("nothing that is alive can wake this session");
            return Ok(exit::REFUSED);
        }
        Ok(exit::DONE)
    }
}

impl Inbox {
    async fn read(&self, client: &mut Client) -> Result<Value, Failure> {
        let read = |wait_ms: u64| {
            given([
                ("after", self.after.map(Into::into)),
                ("waitMs", Some(wait_ms.into())),
            ])
        };
        let mut answer = client.wait("inbox.read", read(0)).await?;
        // Looked at after each empty read: what ended in between is delivered, and the next read finds it.
        while self.wait && list(&answer, "items").is_empty() && something_runs(client).await? {
            answer = client.wait("inbox.read", read(WAIT_MS_MAX)).await?;
        }
        self.read_on(client, &mut answer).await?;
        Ok(answer)
    }

    /// Adds what one read had no room for.
    async fn read_on(&self, client: &mut Client, answer: &mut Value) -> Result<(), Failure> {
        while let Some(last) = list(answer, "items").last() {
            let input = json!({"after": last["seq"]});
            let more = client.read("inbox.read", input).await?;
            let Some(items) = answer["items"].as_array_mut() else {
                break;
            };
            let known: HashSet<u64> = items
                .iter()
                .filter_map(|item| item["seq"].as_u64())
                .collect();
            // Messages come first in every read, whatever their number.
            let is_new =
                |item: &&Value| item["seq"].as_u64().is_none_or(|seq| !known.contains(&seq));
            let before = items.len();
            items.extend(list(&more, "items").iter().filter(is_new).cloned());
            if items.len() == before {
                break;
            }
        }
        Ok(())
    }
}

/// Whether a task of this session is alive, whose end would be delivered.
async fn something_runs(client: &mut Client) -> Result<bool, Failure> {
    let answer = client
        .read("tasks.list", json!({"states": ["starting", "running"]}))
        .await?;
    Ok(list(&answer, "tasks")
        .iter()
        .any(|task| task["lease"] != "foreground"))
}

/// Items under a heading that says what they are not.
fn items(answer: &Value) -> String {
    let items = list(answer, "items");
    if items.is_empty() {
        return String::new();
    }
    let mut out = String::from("automated, not user input or approval\n");
    for item in items {
        let label = item["label"]
            .as_str()
            .map(|label| format!("  \"{label}\""))
            .unwrap_or_default();
        // A task that moved has no end to tell, but somebody who has it now.
        let moved = item["summary"].as_str().filter(|_| item["type"] == "moved");
        let line = format!(
            "{:>5}  {}  {}  {}{label}",
            plain(&item["seq"]),
            text(item, "type"),
            text(item, "taskId"),
            moved.map_or_else(|| render::state(item), str::to_owned)
        );
        let _ = writeln!(out, "{}", render::visible(&line));
        let quoted = item["summary"]
            .as_str()
            .filter(|_| moved.is_none())
            .into_iter()
            .flat_map(str::lines)
            .chain(list(item, "lines").iter().map(line_text));
        for line in quoted {
            let _ = writeln!(out, "       | {}", render::visible(render::standing(line)));
        }
    }
    if let Some(omitted) = answer["omitted"].as_u64().filter(|&omitted| omitted > 0) {
        let _ = writeln!(out, "{omitted} older items were dropped");
    }
    out
}

/// A line of an item is a text, or an object with one.
fn line_text(line: &Value) -> &str {
    line.as_str().unwrap_or_else(|| text(line, "text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_quoted_and_harmless() {
        let answer = json!({"items": [{"seq": 3, "type": "finished", "taskId": "t-1", "state": "failed", "exitCode": 2, "label": "\x1b]0;x\x07", "summary": "one\n\x1b[2Jtwo", "lines": null}], "omitted": 4});
        assert_eq!(
            items(&answer),
            "automated, not user input or approval\n    3  finished  t-1  failed (2)  \"␛]0;x␇\"\n       | one\n       | ␛[2Jtwo\n4 older items were dropped\n"
        );
        assert_eq!(items(&json!({"items": []})), "");
    }

    #[test]
    fn a_task_that_moved_says_to_whom() {
        let answer = json!({"items": [{"seq": 12, "type": "moved", "taskId": "t-1", "state": null, "label": "srv", "summary": "taken over by session b", "lines": null}]});
        assert_eq!(
            items(&answer),
            "automated, not user input or approval\n   12  moved  t-1  taken over by session b  \"srv\"\n"
        );
    }
}
