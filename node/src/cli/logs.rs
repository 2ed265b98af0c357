//! `logs`: the output of tasks as people read it.

mod view;

use serde_json::Value;
use tokio::sync::mpsc;

use super::given;
use crate::app::{App, block_on, errors_on_terminal, on_terminal};
use crate::client::Client;
use crate::exit::{self, Failure, Problem};
use crate::limits::{LOG_NAME_CHARS_MAX, READ_BYTES_MAX, SHORT_ID_CHARS, WAIT_MS_MAX};
use crate::render::{list, text, visible};
use view::Screen;

/// Pieces of output on their way from the readers to the screen: few, so that a fast task waits in its file.
const PIECES_MAX: usize = 16;

/// Options of `logs`.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
#[command(
    after_help = "Examples:\n  weft logs t-3f\n  weft logs -f t-3f t-91     follow two tasks until both have ended\n  weft logs -n 50 t-3f\n\nThe stderr of a task that keeps its streams apart goes to stderr. A line that a command wrote over, as progress bars do,\nshows its last state."
)]
pub(super) struct Logs {
    /// The ids of tasks, or their beginnings
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Go on until the tasks have ended
    #[arg(long, short)]
    follow: bool,
    /// Only the last lines; of a task that keeps its streams apart, so many of each stream
    #[arg(long, short = 'n', visible_alias = "lines", value_name = "N")]
    tail: Option<u32>,
    /// No names before the lines of several tasks, or of both streams on a terminal
    #[arg(long)]
    no_log_prefix: bool,
    /// The time at which a line was seen before it; lines from before this command have none
    #[arg(long, short)]
    timestamps: bool,
    /// The bytes as they are, control codes included
    #[arg(long)]
    raw: bool,
}

/// One stream of one task.
#[derive(Debug, Clone, Default)]
struct Source {
    id: String,
    label: String,
    stream: String,
    /// What stands before its lines.
    prefix: String,
}

/// A piece of output with the source it is of.
struct Piece {
    source: usize,
    record: Value,
    /// It was there before this command had read so far.
    is_old: bool,
}

impl Logs {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        block_on(async {
            let sources = self.sources(&mut client).await?;
            let (pieces, mut read) = mpsc::channel(PIECES_MAX);
            let mut screen = Screen::new(&self, app, &sources);
            let readers: Vec<_> = sources
                .iter()
                .enumerate()
                .map(|(index, source)| {
                    let input = self.first_read(source);
                    tokio::spawn(read_stream(
                        client.another(),
                        index,
                        input,
                        self.follow,
                        pieces.clone(),
                    ))
                })
                .collect();
            drop(pieces);
            while let Some(piece) = read.recv().await {
                screen.show(&piece)?;
            }
            screen.finish()?;
            for reader in readers {
                reader
                    .await
                    .map_err(|error| Failure::Failed(error.to_string()))??;
            }
            Ok(exit::DONE)
        })
    }

    /// The streams of all tasks. Prefixes are given where there is more than one to tell apart.
    async fn sources(&self, client: &mut Client) -> Result<Vec<Source>, Failure> {
        let mut sources = Vec::new();
        for id in &self.ids {
            // The list changes nothing; a look at the task would acknowledge its end.
            let record = client
                .read("tasks.list", given([("all", Some(true.into()))]))
                .await?;
            let task = pick(list(&record, "tasks"), id)?;
            let full = text(task, "id");
            for stream in list(task, "streams").iter().filter_map(Value::as_str) {
                sources.push(Source {
                    id: full.to_owned(),
                    label: text(task, "label").to_owned(),
                    stream: stream.to_owned(),
                    prefix: String::new(),
                });
            }
        }
        if !self.no_log_prefix {
            let prefixes = prefixes(&sources, on_terminal() && errors_on_terminal());
            for (source, prefix) in sources.iter_mut().zip(prefixes) {
                source.prefix = prefix;
            }
        }
        Ok(sources)
    }

    fn first_read(&self, source: &Source) -> Value {
        given([
            ("id", Some(source.id.as_str().into())),
            ("stream", Some(source.stream.as_str().into())),
            ("lines", self.tail.map(|lines| (-i64::from(lines)).into())),
            ("encoding", self.raw.then(|| "base64".into())),
        ])
    }
}

/// What stands before the lines of each source, in one column: the task where there are several, the stream where a screen shows
/// both.
fn prefixes(sources: &[Source], one_screen: bool) -> Vec<String> {
    let first = sources.first().map(|source| source.id.as_str());
    let many = sources
        .iter()
        .any(|source| Some(source.id.as_str()) != first);
    let names: Vec<String> = sources
        .iter()
        .map(|source| {
            let siblings = sources.iter().filter(|other| other.id == source.id);
            let split = one_screen && siblings.count() > 1;
            let name = if many {
                name(source, sources)
            } else {
                String::new()
            };
            let stream = if split { source.stream.as_str() } else { "" };
            [name.as_str(), stream].join(" ").trim().to_owned()
        })
        .collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    match width.unwrap_or(0) {
        0 => names,
        width => names
            .iter()
            .map(|name| format!("{name:<width$} | "))
            .collect(),
    }
}

/// What a task is called among others: its label where it is the only one of that label, else with its id.
fn name(source: &Source, among: &[Source]) -> String {
    let label = |source: &Source| -> String {
        visible(
            &source
                .label
                .chars()
                .take(LOG_NAME_CHARS_MAX)
                .collect::<String>(),
        )
    };
    let mut others = among.iter().filter(|other| other.id != source.id);
    let own = label(source);
    if own.is_empty() {
        short_id(source, among)
    } else if others.any(|other| label(other) == own) {
        format!("{own} {}", short_id(source, among))
    } else {
        own
    }
}

/// The beginning of an id that no other shown task shares.
fn short_id(source: &Source, among: &[Source]) -> String {
    let shared = |short: &str| {
        let fits = |other: &&Source| other.id.starts_with(short) && other.id != source.id;
        among.iter().any(|other| fits(&other))
    };
    let short = (SHORT_ID_CHARS..source.id.len())
        .filter_map(|chars| source.id.get(..chars))
        .find(|short| !shared(short));
    visible(short.unwrap_or(&source.id))
}

/// The one task that an id or its beginning means.
fn pick<'a>(tasks: &'a [Value], id: &str) -> Result<&'a Value, Failure> {
    let fits: Vec<&Value> = tasks
        .iter()
        .filter(|task| text(task, "id").starts_with(id))
        .collect();
    match fits.as_slice() {
        [task] => Ok(task),
        [] => Err(Failure::Refused(Problem::here(
            "not-found",
            &format!("there is no task {id}"),
        ))),
        many => tasks
            .iter()
            .find(|task| text(task, "id") == id)
            .ok_or_else(|| {
                let ids: Vec<&str> = many.iter().map(|task| text(task, "id")).collect();
                let detail = format!("{id} could be {}", ids.join(", "));
                Failure::Refused(Problem::here("ambiguous-id", &detail))
            }),
    }
}

/// Reads one stream to its end, or to where it stands.
async fn read_stream(
    mut client: Client,
    source: usize,
    first: Value,
    follow: bool,
    pieces: mpsc::Sender<Piece>,
) -> Result<(), Failure> {
    let mut input = first;
    let mut is_old = true;
    loop {
        let record = client.wait("tasks.read", input.clone()).await?;
        let nothing = is_empty(&record);
        let end = record["eof"] == true || (!follow && nothing);
        if let Some(fields) = input.as_object_mut() {
            fields.remove("lines");
        }
        input["offset"] = record["next"].clone();
        input["max"] = READ_BYTES_MAX.into();
        let piece = Piece {
            source,
            record,
            is_old,
        };
        // What was there before is read first. Only from where nothing more stands does anybody wait, and what comes is new.
        if nothing && follow && is_old {
            is_old = false;
            input["waitMs"] = WAIT_MS_MAX.into();
        }
        let says_something = !nothing || end || piece.record["omittedBytes"] != 0;
        if says_something && pieces.send(piece).await.is_err() || end {
            return Ok(());
        }
    }
}

fn is_empty(record: &Value) -> bool {
    text(record, "text").is_empty() && text(record, "data").is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(id: &str, label: &str, stream: &str) -> Source {
        Source {
            id: id.to_owned(),
            label: label.to_owned(),
            stream: stream.to_owned(),
            prefix: String::new(),
        }
    }

    #[test]
    fn one_stream_needs_no_name() {
        let one = [source("t-abcdefgh1", "build", "output")];
        assert_eq!(prefixes(&one, true), [""]);
    }

    #[test]
    fn both_streams_of_a_task_are_told_apart_on_a_screen_alone() {
        let split = ["stdout", "stderr"].map(|stream| source("t-abcdefgh1", "build", stream));
        assert_eq!(prefixes(&split, true), ["stdout | ", "stderr | "]);
        assert_eq!(prefixes(&split, false), ["", ""]);
    }

    #[test]
    fn tasks_are_called_by_label_or_by_as_much_of_the_id_as_it_takes() {
        let tasks = [
            source("t-abcdefgh1", "build", "output"),
            source("t-abcdefgh2", "", "output"),
            source("t-xbcdefgh3", "\x1b[2Jx", "stdout"),
            source("t-xbcdefgh3", "\x1b[2Jx", "stderr"),
        ];
        assert_eq!(
            prefixes(&tasks, true),
            [
                "build       | ",
                "t-abcdefgh2 | ",
                "␛[2Jx stdout | ",
                "␛[2Jx stderr | "
            ]
            .map(|prefix| format!("{:<12} | ", prefix.trim_end_matches(" | ").trim_end()))
        );
        let same = [
            source("t-abcdefgh1", "build", "output"),
            source("t-bbcdefgh1", "build", "output"),
        ];
        assert_eq!(
            prefixes(&same, false),
            ["build t-abcdef | ", "build t-bbcdef | "]
        );
    }
}
