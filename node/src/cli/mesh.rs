//! `mesh`: events, topics and grants.

mod read;
mod subscribe;

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};
use weft_actors::limits::RETAIN_AGE_MS;
use weft_grants::limits::GRANT_TTL_MS;

use super::given;
use super::post::Post;
use crate::app::{App, block_on, json_argument, stdout_file};
use crate::duration;
use crate::exit::{self, Failure, shell_word};
use crate::render::{self, age, list, now_ms, plain, text, time};
use crate::size;
use read::ReadEvents;
use subscribe::Subscribe;

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
    /// Set how much of a topic is kept, or with no topic of all
    Retain(Retain),
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

/// Options of `retain`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft mesh retain builds --age 7d --count 10000\n  weft mesh retain --bytes 1GiB             all topics without a retention of their own\n  weft mesh retain builds --reset           as the default again\n\nThe first bound that is passed takes the oldest events away; readers are told how many. A bound that is not given stays."
)]
pub(super) struct Retain {
    /// The topic; without one, all that have no retention of their own
    topic: Option<String>,
    /// Keep events for this time: 1s to 366d
    #[arg(long, value_name = "TIME", value_parser = duration::between(RETAIN_AGE_MS))]
    age: Option<u64>,
    /// Keep so many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Keep so many bytes of events: 64MiB, 2GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    bytes: Option<u64>,
    /// First forget what was set before
    #[arg(long)]
    reset: bool,
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
                app.tell_if_none(list(&answer, "topics"), "topics");
            }
            Mesh::Retain(retain) => retain.perform(app)?,
            Mesh::Grant(grant) => grant.perform(app)?,
            Mesh::Grants => {
                let answer = call(app, "mesh.grants")?;
                app.answer(&answer, |answer| grants(answer, now_ms()))?;
                app.tell_if_none(list(&answer, "grants"), "grants");
            }
            Mesh::Revoke { id } => {
                let mut client = app.client()?;
                let answer = block_on(client.change("mesh.revoke", json!({"grantId": id})))?;
                app.answer(&answer, |_| String::new())?;
                app.tell(&format!("grant {id} is revoked"));
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

impl Retain {
    fn perform(self, app: &App) -> Result<(), Failure> {
        if self.age.is_none() && self.count.is_none() && self.bytes.is_none() && !self.reset {
            return Err(Failure::Usage(
                "give a bound, --age, --count or --bytes, or --reset".to_owned(),
            ));
        }
        let input = given([
            ("topic", self.topic.map(Into::into)),
            ("maxAgeMs", self.age.map(Into::into)),
            ("maxCount", self.count.map(Into::into)),
            ("maxBytes", self.bytes.map(Into::into)),
            ("reset", self.reset.then_some(true.into())),
        ]);
        let mut client = app.client()?;
        let answer = block_on(client.change("mesh.retain", input))?;
        app.answer(&answer, |answer| {
            let kept = &answer["retention"];
            render::table(
                &["TOPIC", "AGE (MS)", "EVENTS", "BYTES"],
                &[vec![
                    answer["topic"]
                        .as_str()
                        .unwrap_or("(all others)")
                        .to_owned(),
                    plain(&kept["maxAgeMs"]),
                    plain(&kept["maxCount"]),
                    plain(&kept["maxBytes"]),
                ]],
            )
        })
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
        app.tell(&format!(
            "grant {} for {} use(s), until {}",
            text(&grant, "grantId"),
            plain(&grant["uses"]),
            time::utc(grant["expiresAt"].as_u64().unwrap_or(0))
        ));
        for line in how_to_post(text(&grant, "command"), stdout_file()) {
            app.tell(&line);
        }
        Ok(())
    }
}

/// The command that posts with a token that was printed, and how the token gets there: from the file that it was printed into,
/// or by hand.
fn how_to_post(command: &str, printed_into: Option<(PathBuf, u32)>) -> Vec<String> {
    let from =
        |place: &str| command.replace("--token-file TOKEN_FILE", &format!("--token-file {place}"));
    let Some((file, mode)) = printed_into else {
        return vec![format!(
            "post with the token on standard input: {}",
            from("-")
        )];
    };
    let file = shell_word(&file.to_string_lossy());
    let mut lines = vec![format!("post with: {}", from(&file))];
    if mode & 0o077 != 0 {
        lines.push(format!("others may read that file: chmod 600 {file}"));
    }
    lines
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_grant_takes_the_token_from_where_it_went() {
        let command = "weft mesh post --topic builds --token-file TOKEN_FILE --data '{}'";
        let by_hand = how_to_post(command, None);
        assert!(
            by_hand[0].ends_with("--token-file - --data '{}'"),
            "{by_hand:?}"
        );
        let file = how_to_post(command, Some(("/tmp/a b".into(), 0o600)));
        assert_eq!(file.len(), 1, "{file:?}");
        assert!(
            file[0].contains("--token-file '/tmp/a b' --data"),
            "{file:?}"
        );
        assert_eq!(
            how_to_post(command, Some(("/tmp/x".into(), 0o644))).len(),
            2
        );
    }
}
