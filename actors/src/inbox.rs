//! Pending deliveries of owner sessions: rows that wait until their owner acknowledges them.

use std::time::Duration;

use rusqlite::{Connection, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_mesh::Tx;

use crate::error::{Error, Result};
use crate::house::House;
use crate::limits::{INBOX_BATCH, INBOX_COALESCE_MS, WAIT_MS_MAX};
use crate::task::record::State;

/// The tables of deliveries. `seq` never repeats, also after rows went (AUTOINCREMENT).
pub const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS inbox (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  session    TEXT NOT NULL,
  type       TEXT NOT NULL,
  task_id    TEXT,
  item       TEXT NOT NULL,
  created_at INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS inbox_by_session ON inbox (session, seq);
CREATE INDEX IF NOT EXISTS inbox_by_task ON inbox (task_id) WHERE task_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS outcomes (
  seq        INTEGER PRIMARY KEY,
  session    TEXT NOT NULL,
  type       TEXT NOT NULL,
  task_id    TEXT,
  outcome    TEXT NOT NULL,
  at         INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS outcomes_by_age ON outcomes (at);
";

/// What a delivery is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemType {
    /// A background or durable task ended: exactly one a task.
    Finished,
    /// Lines of a monitor.
    Monitor,
    /// Something observed happened.
    Event,
    /// A message.
    Message,
    /// The task went to another owner.
    Moved,
}

/// One delivery. Its text is data from a task, never an instruction.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Its place; what `inbox.ack` names.
    pub seq: i64,
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: ItemType,
    /// The task.
    pub task_id: Option<String>,
    /// The task's state then.
    pub state: Option<State>,
    /// Its code.
    pub exit_code: Option<i32>,
    /// Its label.
    pub label: Option<String>,
    /// The end of its output, at most 1500 characters.
    pub summary: Option<String>,
    /// Lines of a monitor.
    pub lines: Option<Vec<String>>,
    /// Lines that were left out.
    pub omitted: u64,
    /// Where a replay goes on.
    pub next_cursor: Option<u64>,
    /// Always true: it is automated, not user input or approval.
    pub untrusted: bool,
    /// Epoch milliseconds.
    pub created_at: u64,
}

impl Item {
    /// An item about `task_id` with nothing else to say.
    pub fn about(kind: ItemType, task_id: &str, now: u64) -> Self {
        Item {
            seq: 0,
            kind,
            task_id: Some(task_id.to_owned()),
            state: None,
            exit_code: None,
            label: None,
            summary: None,
            lines: None,
            omitted: 0,
            next_cursor: None,
            untrusted: true,
            created_at: now,
        }
    }
}

/// The key that waiters of a session's inbox watch.
pub fn wake_key(session: &str) -> String {
    format!("inbox:{session}")
}

/// Sessions of resident runs have no inbox: the resident itself is told by its run's end.
pub fn has_inbox(session: &str) -> bool {
    !session.starts_with(crate::resident::SESSION_PREFIX)
}

/// Puts an item in, as part of the transaction that made it true.
pub fn put(tx: &mut Tx<'_>, session: &str, item: &Item) -> Result<()> {
    let text = serde_json::to_string(item)
        .map_err(|error| Error::Internal(format!("an inbox item is no JSON: {error}")))?;
    tx.sql()
        .prepare_cached("INSERT INTO inbox (session, type, task_id, item, created_at) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![session, word(item.kind), item.task_id, text, item.created_at])?;
    tx.wake(&wake_key(session));
    Ok(())
}

fn word(kind: ItemType) -> &'static str {
    match kind {
        ItemType::Finished => "finished",
        ItemType::Monitor => "monitor",
        ItemType::Event => "event",
        ItemType::Message => "message",
        ItemType::Moved => "moved",
    }
}

/// Pending items after `after`, messages first, then by age.
fn pending(sql: &Connection, session: &str, after: i64, max: usize) -> Result<Vec<Item>> {
    let mut statement = sql.prepare_cached(
        "SELECT seq, item FROM inbox WHERE session = ?1 AND seq > ?2 ORDER BY type <> 'message', seq LIMIT ?3",
    )?;
    let rows = statement
        .query_map(params![session, after, max as i64], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    rows.into_iter()
        .map(|(seq, text)| {
            let item: Item = serde_json::from_str(&text).map_err(|error| {
                Error::Internal(format!("inbox item {seq} is no JSON: {error}"))
            })?;
            Ok(Item { seq, ..item })
        })
        .collect()
}

/// Waits up to `wait_ms` for pending items and answers at most `max` of them. Reading consumes nothing.
pub async fn read(
    house: &House,
    session: &str,
    after: i64,
    wait_ms: u64,
    max: usize,
) -> Result<Vec<Item>> {
    let max = max.clamp(1, INBOX_BATCH);
    let mut watcher = house.store.watch_key(&wake_key(session));
    let look = || {
        let session = session.to_owned();
        async move {
            house
                .look(move |sql| pending(sql, &session, after, max))
                .await
        }
    };
    let deadline = tokio::time::Instant::now() + Duration::from_millis(wait_ms.min(WAIT_MS_MAX));
    loop {
        let items = look().await?;
        if !items.is_empty() {
            // What comes within a moment is told together, so that an agent is woken once.
            let newest = items.iter().map(|item| item.created_at).max().unwrap_or(0);
            let age = crate::house::now_ms().saturating_sub(newest);
            if items.len() == max || age >= INBOX_COALESCE_MS {
                return Ok(items);
            }
            house
                .unless_stopping(tokio::time::sleep(Duration::from_millis(
                    INBOX_COALESCE_MS - age,
                )))
                .await?;
            return look().await;
        }
        match house
            .unless_stopping(tokio::time::timeout_at(deadline, watcher.changed()))
            .await?
        {
            Ok(()) => {}
            Err(_elapsed) => return Ok(Vec::new()),
        }
    }
}

/// Settles pending items of `session` up to `seq`.
pub async fn acknowledge(house: &House, session: &str, seq: i64) -> Result<u64> {
    let session = session.to_owned();
    let count = house
        .commit(move |tx| settle(tx, "session = ?1 AND seq <= ?2", &session, &seq))
        .await?;
    Ok(count)
}

/// Settles every pending item of `task_id` for `session`: it has seen the end.
pub async fn acknowledge_task(house: &House, session: &str, task_id: &str) -> Result<()> {
    let (owner, task) = (session.to_owned(), task_id.to_owned());
    // Looked up first, so that the common case (nothing pending) costs no commit.
    let pending: bool = {
        let (owner, task) = (owner.clone(), task.clone());
        house
            .store
            .read(move |sql| {
                Ok(sql
                    .prepare_cached("SELECT 1 FROM inbox WHERE task_id = ?2 AND session = ?1")?
                    .exists([owner, task])?)
            })
            .await?
    };
    if pending {
        house
            .commit(move |tx| settle(tx, "session = ?1 AND task_id = ?2", &owner, &task))
            .await?;
    }
    Ok(())
}

/// Pending items of `task_id` go with it to its new owner.
pub fn hand_over(tx: &mut Tx<'_>, from: &str, to: &str, task_id: &str) -> Result<()> {
    tx.sql()
        .prepare_cached("UPDATE inbox SET session = ?2 WHERE session = ?1 AND task_id = ?3")?
        .execute([from, to, task_id])?;
    tx.wake(&wake_key(to));
    Ok(())
}

fn settle(tx: &mut Tx<'_>, which: &str, session: &str, what: &dyn rusqlite::ToSql) -> Result<u64> {
    let now = tx.now();
    tx.sql()
        .prepare_cached(&format!(
            "INSERT OR IGNORE INTO outcomes (seq, session, type, task_id, outcome, at)
             SELECT seq, session, type, task_id, 'delivered', ?3 FROM inbox WHERE {which}"
        ))?
        .execute(params![session, what, now])?;
    let count = tx
        .sql()
        .prepare_cached(&format!("DELETE FROM inbox WHERE {which}"))?
        .execute(params![session, what])?;
    Ok(count as u64)
}
