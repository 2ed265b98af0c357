//! `mesh read`: events by cursor, page after page.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::{given, some_list};
use crate::app::{App, block_on, print};
use crate::client::Client;
use crate::duration::parse_ms;
use crate::exit::Failure;
use crate::limits::{PAGE_EVENTS, WAIT_MS_MAX};
use crate::render::{self, list, now_ms, plain, text};

/// Options of `read`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft mesh read builds\n  weft mesh read 'builds.*' --kind ci.finished -n 20\n  weft mesh read builds --after 1042 --wait 10m"
)]
pub(in crate::cli) struct ReadEvents {
    /// Topics or patterns; all where none is given
    topics: Vec<String>,
    /// Only events after this cursor: a sequence, or EPOCH-SEQUENCE
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Only these kinds
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// At most this many events; without it all there are
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Wait this long for a first event
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    wait: Option<u64>,
}

impl ReadEvents {
    pub(in crate::cli) fn perform(self, app: &App) -> Result<(), Failure> {
        let mut client = app.client()?;
        block_on(self.read(app, &mut client))
    }

    /// Reads to the limit, or to what was there when it was asked: a topic that never rests must not keep it for ever.
    async fn read(&self, app: &App, client: &mut Client) -> Result<(), Failure> {
        let until = Instant::now() + Duration::from_millis(self.wait.unwrap_or(0));
        let mut after = self.after.as_deref().map(cursor);
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut shown = Shown::none(app);
        let mut begun_at = None;
        while left > 0 {
            let wait = until.saturating_duration_since(Instant::now());
            let wait_ms = if begun_at.is_none() {
                wait.as_millis().min(u128::from(WAIT_MS_MAX)) as u64
            } else {
                0
            };
            let page = self
                .page(client, after.as_ref(), left.min(PAGE_EVENTS), wait_ms)
                .await?;
            let events = list(&page, "events");
            left -= events.len() as u64;
            after = Some(format!("{}-{}", text(&page, "epoch"), plain(&page["next"])).into());
            shown.add(&page)?;
            let Some(last) = events.last() else {
                if begun_at.is_none() && Instant::now() < until {
                    continue;
                }
                break;
            };
            if last["createdAt"].as_u64() > Some(*begun_at.get_or_insert_with(now_ms)) {
                break;
            }
        }
        shown.end()?;
        if left == 0 && !app.globals.json {
            let more = self.page(client, after.as_ref(), 1, 0).await?;
            if !list(&more, "events").is_empty() {
                let after = after.as_ref().map(plain).unwrap_or_default();
                app.tell(&format!("there are more; go on with --after {after}"));
            }
        }
        app.tell_if_none(&shown.seen, "events");
        Ok(())
    }

    async fn page(
        &self,
        client: &mut Client,
        after: Option<&Value>,
        limit: u64,
        wait_ms: u64,
    ) -> Result<Value, Failure> {
        let input = given([
            ("topics", some_list(&self.topics)),
            ("after", after.cloned()),
            ("kinds", some_list(&self.kind)),
            ("limit", Some(limit.into())),
            ("waitMs", Some(wait_ms.into())),
        ]);
        client.wait("mesh.read", input).await
    }
}

/// A cursor as the action takes it: a number, or `<epoch>-<sequence>`.
fn cursor(text: &str) -> Value {
    text.parse::<u64>()
        .map_or_else(|_| Value::from(text), Value::from)
}

/// What has been printed so far. With `--json` that is the beginning of one document, which is written page by page so that no
/// log is too long for it.
struct Shown<'a> {
    app: &'a App,
    begun: bool,
    /// The first event, if there was one.
    seen: Vec<Value>,
    omitted: Vec<Value>,
    next: Value,
}

impl<'a> Shown<'a> {
    fn none(app: &'a App) -> Self {
        Shown {
            app,
            begun: false,
            seen: Vec::new(),
            omitted: Vec::new(),
            next: Value::Null,
        }
    }

    fn add(&mut self, page: &Value) -> Result<(), Failure> {
        let events = list(page, "events");
        if self.app.globals.json {
            print(&self.more_json(page))?;
        } else {
            print(&events.iter().map(render::event).collect::<String>())?;
        }
        for gap in list(page, "omitted") {
            self.app.tell(&render::gap(gap));
        }
        self.begun = true;
        if self.seen.is_empty() {
            self.seen.extend(events.first().cloned());
        }
        self.omitted.extend_from_slice(list(page, "omitted"));
        self.next = page["next"].clone();
        Ok(())
    }

    /// The next piece of the document.
    fn more_json(&self, page: &Value) -> String {
        let mut piece = String::new();
        if !self.begun {
            piece = format!("{{\"epoch\":{},\"events\":[", page["epoch"]);
        }
        let mut is_first = self.seen.is_empty();
        for event in list(page, "events") {
            if !std::mem::take(&mut is_first) {
                piece.push(',');
            }
            piece.push_str(&event.to_string());
        }
        piece
    }

    fn end(&self) -> Result<(), Failure> {
        if !self.app.globals.json {
            return Ok(());
        }
        let (next, omitted) = (&self.next, json!(self.omitted));
        print(&format!("],\"next\":{next},\"omitted\":{omitted}}}\n"))
    }
}
