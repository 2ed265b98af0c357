//! `logs`: the output of tasks as people read it.

use std::io::Write as _;

use serde_json::Value;
use tokio::sync::mpsc;

use super::given;
use crate::app::{App, block_on, colour, print_bytes, print_json, say};
use crate::client::Client;
use crate::exit::{self, Failure, Problem};
use crate::limits::{READ_BYTES_MAX, WAIT_MS_MAX};
use crate::render::{list, log::Filter, text, visible};

/// Pieces of output on their way from the readers to the screen: few, so that a fast task waits in its file.
const PIECES_MAX: usize = 16;

/// Options of `logs`.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
#[command(
    after_help = "Examples:\n  weft logs t-3f\n  weft logs -f t-3f t-91     follow two tasks until both have ended\n  weft logs -n 50 t-3f"
)]
pub(super) struct Logs {
    /// The ids of tasks, or their beginnings
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Go on until the tasks have ended
    #[arg(long, short)]
    follow: bool,
    /// Only the last lines
    #[arg(long, short = 'n', visible_alias = "lines", value_name = "N")]
    tail: Option<u32>,
    /// No names before the lines of several tasks or streams
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
#[derive(Debug, Clone)]
struct Source {
    id: String,
    stream: String,
    prefix: String,
}

/// A piece of output with the source it is of.
struct Piece {
    source: usize,
    record: Value,
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
                let prefix = if self.ids.len() > 1 {
                    format!("{} | ", visible(full))
                } else {
                    String::new()
                };
                sources.push(Source {
                    id: full.to_owned(),
                    stream: stream.to_owned(),
                    prefix,
                });
            }
        }
        if self.no_log_prefix {
            for source in &mut sources {
                source.prefix.clear();
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
    loop {
        let record = client.wait("tasks.read", input.clone()).await?;
        let end = record["eof"] == true || (!follow && is_empty(&record));
        if let Some(fields) = input.as_object_mut() {
            fields.remove("lines");
        }
        input["offset"] = record["next"].clone();
        input["max"] = READ_BYTES_MAX.into();
        if follow {
            input["waitMs"] = WAIT_MS_MAX.into();
        }
        if pieces.send(Piece { source, record }).await.is_err() || end {
            return Ok(());
        }
    }
}

fn is_empty(record: &Value) -> bool {
    text(record, "text").is_empty() && text(record, "data").is_empty()
}

/// What has been shown so far.
struct Screen<'a> {
    app: &'a App,
    options: &'a Logs,
    views: Vec<View<'a>>,
}

/// One stream on the screen.
struct View<'a> {
    source: &'a Source,
    filter: Filter,
    /// A line that has not ended yet; shown when it has, so that lines of two streams do not mix.
    pending: String,
    /// Whether what comes was written before this command looked.
    first: bool,
}

impl<'a> Screen<'a> {
    fn new(options: &'a Logs, app: &'a App, sources: &'a [Source]) -> Self {
        let views = sources
            .iter()
            .map(|source| View {
                source,
                filter: Filter::new(colour()),
                pending: String::new(),
                first: true,
            })
            .collect();
        Screen {
            app,
            options,
            views,
        }
    }

    fn show(&mut self, piece: &Piece) -> Result<(), Failure> {
        if self.app.globals.json {
            return print_json(&piece.record);
        }
        let view = &mut self.views[piece.source];
        if let Some(omitted) = piece.record["omittedBytes"]
            .as_u64()
            .filter(|&omitted| omitted > 0)
        {
            view.break_line(self.options)?;
            say(&format!(
                "{}[{omitted} bytes are no longer kept]",
                view.source.prefix
            ));
        }
        if self.options.raw {
            return put(view.source, &super::read::decode(&piece.record)?);
        }
        let shown = view.filter.push(text(&piece.record, "text"));
        view.pending.push_str(&shown);
        view.lines(self.options)?;
        view.first = false;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        for view in &mut self.views {
            view.break_line(self.options)?;
            put(view.source, view.filter.finish().as_bytes())?;
        }
        Ok(())
    }
}

impl View<'_> {
    /// Shows the lines that have ended; without names and times before them also the beginning of the next.
    fn lines(&mut self, options: &Logs) -> Result<(), Failure> {
        if self.source.prefix.is_empty() && !options.timestamps {
            return put(self.source, std::mem::take(&mut self.pending).as_bytes());
        }
        let Some(end) = self.pending.rfind('\n') else {
            return Ok(());
        };
        let rest = self.pending.split_off(end + 1);
        let lines = std::mem::replace(&mut self.pending, rest);
        let stamp = self.stamp(options);
        let mut shown = String::new();
        for line in lines.split_inclusive('\n') {
            shown.extend([stamp.as_str(), &self.source.prefix, line]);
        }
        put(self.source, shown.as_bytes())
    }

    fn break_line(&mut self, options: &Logs) -> Result<(), Failure> {
        if !self.pending.is_empty() {
            self.pending.push('\n');
            self.lines(options)?;
        }
        Ok(())
    }

    fn stamp(&self, options: &Logs) -> String {
        match (options.timestamps, self.first) {
            (false, _) => String::new(),
            (true, true) => format!("{:<24}  ", "-"),
            (true, false) => format!("{}  ", crate::render::time::utc(crate::render::now_ms())),
        }
    }
}

/// Standard error of a task goes to ours, so that the two can be told apart here as well.
fn put(source: &Source, bytes: &[u8]) -> Result<(), Failure> {
    if source.stream == "stderr" {
        std::io::stderr()
            .lock()
            .write_all(bytes)
            .map_err(Failure::output)
    } else {
        print_bytes(bytes)
    }
}
