//! `mesh`: events, topics and grants.

use clap::Subcommand;
use serde_json::{Value, json};
use weft_grants::limits::GRANT_TTL_MS;

use super::post::Post;
use super::{given, some_list};
use crate::app::{App, block_on, json_argument, print, print_json, say};
use crate::duration::{self, parse_ms};
use crate::exit::{self, Failure};
use crate::limits::PAGE_EVENTS;
use crate::render::{self, age, list, now_ms, plain, text};
use crate::sse::Message;

/// The verbs of `mesh`.
#[derive(Debug, Subcommand)]
pub(super) enum Mesh {
    /// Put an event on a topic
    Publish(Publish),
    /// Read events by cursor
    Read(ReadEvents),
    /// Follow topics: `builds`, `builds.*`, `>`
    Subscribe(Subscribe),
    /// List topics with what they hold
    Topics,
    /// Mint a grant: a token that lets a process outside post to one topic
    Grant(Grant),
    /// List grants
    Grants,
    /// End a grant
    Revoke {
        /// The grant's id
        id: String,
    },
    /// Post an event with a grant
    Post(Post),
}

/// Options of `publish`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft mesh publish builds --kind started --data '{\"branch\":\"main\"}'\n  weft mesh publish builds --text 'all green'"
)]
pub(super) struct Publish {
    /// The topic
    topic: String,
    /// The kind of event; `message` by default
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// A text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// JSON data; @FILE reads a file, - stdin
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Whom it is for
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Its id; the same id with the same content is one event
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

/// Options of `read`.
#[derive(Debug, clap::Args)]
pub(super) struct ReadEvents {
    /// Topics or patterns; all where none is given
    topics: Vec<String>,
    /// Only events after this cursor: a sequence, or EPOCH-SEQUENCE
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Only these kinds
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// At most this many events, 1 to 1000
    #[arg(long, short = 'n', value_name = "N", default_value_t = PAGE_EVENTS)]
    limit: u64,
    /// Wait this long for a first event
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    wait: Option<u64>,
}

/// Options of `subscribe`.
#[derive(Debug, clap::Args)]
pub(super) struct Subscribe {
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

/// Options of `grant`.
#[derive(Debug, clap::Args)]
pub(super) struct Grant {
    /// The topic it allows to post to
    topic: String,
    /// The one kind it allows
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// How long it holds: 1m to 30d, 24h by default
    #[arg(long, value_name = "TIME", value_parser = duration::between(GRANT_TTL_MS))]
    ttl: Option<u64>,
    /// How many posts it allows, 1 to 10000; one by default
    #[arg(long, value_name = "N")]
    uses: Option<u64>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

impl Mesh {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        match self {
            Mesh::Post(post) => return post.perform(app),
            Mesh::Subscribe(subscribe) => return subscribe.perform(app),
            Mesh::Publish(publish) => publish.perform(app)?,
            Mesh::Read(read) => read.perform(app)?,
            Mesh::Topics => {
                let answer = call(app, "mesh.topics")?;
                app.answer(&answer, topics)?;
            }
            Mesh::Grant(grant) => grant.perform(app)?,
            Mesh::Grants => {
                let answer = call(app, "mesh.grants")?;
                app.answer(&answer, |answer| grants(answer, now_ms()))?;
            }
            Mesh::Revoke { id } => {
                let mut client = app.client()?;
                let answer = block_on(client.change("mesh.revoke", json!({"grantId": id})))?;
                app.answer(&answer, |_| String::new())?;
            }
        }
        Ok(exit::DONE)
    }
}

/// A read without arguments.
fn call(app: &App, reference: &str) -> Result<Value, Failure> {
    let mut client = app.client()?;
    block_on(client.read(reference, json!({})))
}

impl Publish {
    fn perform(self, app: &App) -> Result<(), Failure> {
        let input = given([
            ("topic", Some(self.topic.into())),
            ("kind", self.kind.map(Into::into)),
            ("text", self.text.map(Into::into)),
            (
                "data",
                self.data
                    .map(|data| json_argument("--data", &data))
                    .transpose()?,
            ),
            ("to", self.to.map(Into::into)),
            ("id", self.id.map(Into::into)),
        ]);
        let mut client = app.client()?;
        let event = block_on(client.change("mesh.publish", input))?;
        app.answer(&event, render::event)
    }
}

impl ReadEvents {
    fn perform(self, app: &App) -> Result<(), Failure> {
        let after = self.after.map(|after| {
            after
                .parse::<u64>()
                .map_or_else(|_| Value::from(after.as_str()), Value::from)
        });
        let input = given([
            ("topics", some_list(&self.topics)),
            ("after", after),
            ("kinds", some_list(&self.kind)),
            ("limit", Some(self.limit.into())),
            ("waitMs", self.wait.map(Into::into)),
        ]);
        let mut client = app.client()?;
        let answer = block_on(client.wait("mesh.read", input))?;
        app.answer(&answer, |answer| {
            list(answer, "events").iter().map(render::event).collect()
        })?;
        for gap in list(&answer, "omitted")
            .iter()
            .filter(|_| !app.globals.json)
        {
            say(&format!(
                "{} events of {} are no longer kept",
                plain(&gap["count"]),
                text(gap, "topic")
            ));
        }
        Ok(())
    }
}

impl Grant {
    fn perform(self, app: &App) -> Result<(), Failure> {
        let input = given([
            ("topic", Some(self.topic.into())),
            ("kind", self.kind.map(Into::into)),
            ("ttlMs", self.ttl.map(Into::into)),
            ("uses", self.uses.map(Into::into)),
            ("description", self.description.map(Into::into)),
        ]);
        let mut client = app.client()?;
        let grant = block_on(client.change("mesh.grant", input))?;
        app.answer(&grant, |grant| format!("{}\n", text(grant, "token")))?;
        if !app.globals.json {
            say(&format!(
                "grant {} for {} use(s); post with: {}",
                text(&grant, "grantId"),
                plain(&grant["uses"]),
                text(&grant, "command")
            ));
        }
        Ok(())
    }
}

impl Subscribe {
    /// Follows the stream over ends of connections and nodes, from the last cursor seen.
    fn perform(self, app: &App) -> Result<u8, Failure> {
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
                    if cursor.pass(&message) && show(app, &message)? {
                        left -= 1;
                    }
                }
                if left > 0 && cursor.is_unknown() {
                    // Nothing said where the stream stood, so a new one would silently skip what came between.
                    return Err(Failure::Cut(
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
}

/// Shows a message; true where it was an event.
fn show(app: &App, message: &Message) -> Result<bool, Failure> {
    let value: Value = serde_json::from_str(&message.data)
        .map_err(|error| Failure::Protocol(error.to_string()))?;
    if value.get("sequence").is_none() {
        // A resync, or the last word of a stream.
        let word = if message.name.is_empty() {
            "message"
        } else {
            &message.name
        };
        if app.globals.json {
            print_json(&json!({"stream": word, "data": value}))?;
        } else {
            say(&format!("{word}: {}", plain(&value)));
        }
        return Ok(false);
    }
    if app.globals.json {
        print_json(&value)?;
    } else {
        print(&render::event(&value))?;
    }
    Ok(true)
}

fn topics(answer: &Value) -> String {
    let rows: Vec<Vec<String>> = list(answer, "topics")
        .iter()
        .map(|topic| {
            let numbers =
                ["count", "bytes", "first", "last", "trimmedTo"].map(|name| plain(&topic[name]));
            let mut row = vec![text(topic, "topic").to_owned()];
            row.extend(numbers);
            row
        })
        .collect();
    render::table(
        &["TOPIC", "EVENTS", "BYTES", "FIRST", "LAST", "TRIMMED TO"],
        &rows,
    )
}

fn grants(answer: &Value, now: u64) -> String {
    let rows: Vec<Vec<String>> = list(answer, "grants")
        .iter()
        .map(|grant| {
            vec![
                text(grant, "grantId").to_owned(),
                text(grant, "topic").to_owned(),
                plain(&grant["kind"]),
                format!("{}/{}", plain(&grant["used"]), plain(&grant["uses"])),
                render::validity(grant, now),
                age(&grant["createdAt"], now),
                plain(&grant["description"]),
            ]
        })
        .collect();
    render::table(
        &["GRANT", "TOPIC", "KIND", "USED", "LEFT", "AGE", "FOR"],
        &rows,
    )
}
