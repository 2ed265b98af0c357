//! `mesh subscribe`: the stream of events, over every end that nobody asked for.

use serde_json::{Value, json};

use crate::app::{App, block_on, print, print_json};
use crate::exit::{self, Failure, Problem};
use crate::render::{self, list, text};
use crate::sse::Message;

/// Options of `subscribe`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Subscribe {
    /// Topics or patterns
    #[arg(required = true)]
    topics: Vec<String>,
    /// Begin after this cursor; without it with what is new
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// End after this many events
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
}

impl Subscribe {
    /// Follows the stream over ends of connections and nodes, from the last cursor seen.
    pub(in crate::cli) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        block_on(async {
            let mut left = self.count.unwrap_or(u64::MAX);
            let mut cursor = Cursor {
                after: self.after,
                last_id: None,
            };
            while left > 0 {
                let mut events = client
                    .events(
                        &self.topics,
                        cursor.after.as_deref(),
                        cursor.last_id.as_deref(),
                    )
                    .await?;
                if cursor.is_unknown() {
                    cursor.after.clone_from(&events.from);
                }
                while left > 0
                    && let Some(message) = events.next().await?
                {
                    if !cursor.pass(&message) {
                        continue;
                    }
                    match show(app, &message)? {
                        Shown::Event => left -= 1,
                        Shown::Word => {}
                        Shown::Stop => {
                            app.tell(&cursor.farewell());
                            // Whoever counts has not got all that was asked for.
                            let is_all = self.count.is_none();
                            return Ok(if is_all { exit::DONE } else { exit::REFUSED });
                        }
                    }
                }
                if left > 0 && cursor.is_unknown() {
                    // Nothing said where the stream stood, so a new one would silently skip what came between.
                    return Err(Failure::Broken(
                        "the stream ended before its first cursor".to_owned(),
                    ));
                }
            }
            Ok(exit::DONE)
        })
    }
}

/// Where a stream of events stands.
struct Cursor {
    after: Option<String>,
    last_id: Option<String>,
}

impl Cursor {
    /// Moves past a message; false where it only moves the cursor.
    fn pass(&mut self, message: &Message) -> bool {
        if !message.id.is_empty() {
            self.last_id = Some(message.id.clone());
        }
        !message.data.is_empty()
    }

    fn is_unknown(&self) -> bool {
        self.after.is_none() && self.last_id.is_none()
    }

    fn farewell(&self) -> String {
        let stopped = "the node was stopped";
        match self.last_id.as_ref().or(self.after.as_ref()) {
            Some(cursor) => format!("{stopped}; go on with --after {cursor}"),
            None => stopped.to_owned(),
        }
    }
}

/// What a message was.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Event,
    /// The stream goes on elsewhere than a reader would think.
    Word,
    /// Somebody stopped the node: starting another would undo that.
    Stop,
}

/// Shows a message.
fn show(app: &App, message: &Message) -> Result<Shown, Failure> {
    let value: Value = serde_json::from_str(&message.data)
        .map_err(|error| Failure::Protocol(error.to_string()))?;
    let is_event = value.get("sequence").is_some();
    if app.globals.json {
        let of_stream = || json!({"stream": message.name, "data": value});
        print_json(&if is_event { value.clone() } else { of_stream() })?;
    } else if is_event {
        print(&render::event(&value))?;
    }
    match message.name.as_str() {
        _ if is_event => Ok(Shown::Event),
        "end" => {
            let problem = Problem::parse(503, message.data.as_bytes());
            if problem.slug == "node-stopping" {
                Ok(Shown::Stop)
            } else {
                Err(Failure::Refused(problem))
            }
        }
        "resync" => {
            for line in resync(&value) {
                app.tell(&line);
            }
            Ok(Shown::Word)
        }
        _ => Ok(Shown::Word),
    }
}

/// What a cursor that could not be followed means to a reader.
fn resync(value: &Value) -> Vec<String> {
    let gaps = list(value, "omitted");
    if gaps.is_empty() {
        let epoch = text(value, "epoch");
        return vec![format!(
            "the cursor is of another store than this one ({epoch}); going on from its oldest event"
        )];
    }
    gaps.iter().map(render::gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resync_is_told_in_sentences() {
        let gaps =
            json!({"epoch": "e", "omitted": [{"topic": "t", "after": 0, "to": 6, "count": 6}]});
        assert_eq!(resync(&gaps), ["6 events of t are no longer kept"]);
        let told = resync(&json!({"epoch": "e", "omitted": []}));
        assert!(told[0].contains("another store"), "{told:?}");
    }

    #[test]
    fn a_farewell_says_where_to_go_on() {
        let mut cursor = Cursor {
            after: None,
            last_id: None,
        };
        assert_eq!(cursor.farewell(), "the node was stopped");
        cursor.after = Some("e-3".to_owned());
        let heartbeat = Message {
            id: "e-7".to_owned(),
            ..Message::default()
        };
        assert!(!cursor.pass(&heartbeat));
        assert!(cursor.farewell().ends_with("--after e-7"));
    }
}
