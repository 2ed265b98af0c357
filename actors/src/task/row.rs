//! A task's row in the store: once it has the end, the row is the truth.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::record::{End, NotifyState, Spec, State};
use super::wire::Lease;
use crate::error::{Error, Result};

/// The tables of this crate's tasks. `open` and `key` have partial indexes, so that starting a node with ten thousand
/// finished tasks reads only those without an announced end.
pub const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS tasks (
  id            TEXT PRIMARY KEY,
  session       TEXT NOT NULL,
  lease         TEXT NOT NULL,
  task_key      TEXT,
  state         TEXT NOT NULL,
  announced     INTEGER NOT NULL DEFAULT 0,
  discard_item  INTEGER NOT NULL DEFAULT 0,
  adopted       INTEGER NOT NULL DEFAULT 0,
  notify_state  TEXT,
  notify_reason TEXT,
  created_at    INTEGER NOT NULL,
  finished_at   INTEGER,
  spec          TEXT NOT NULL,
  ending        TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tasks_by_session ON tasks (session, created_at);
CREATE INDEX IF NOT EXISTS tasks_open ON tasks (id) WHERE announced = 0;
CREATE INDEX IF NOT EXISTS tasks_by_key ON tasks (task_key) WHERE task_key IS NOT NULL;
";

/// One row of `tasks`.
#[derive(Debug, Clone)]
pub struct TaskRow {
    /// What was decided at launch.
    pub spec: Spec,
    /// The owner session now (adoption changes it).
    pub session: String,
    /// The lease now.
    pub lease: Lease,
    /// At most one unfinished task of this key a home.
    pub key: Option<String>,
    /// `Starting` until the end is known; whether it runs is told by its folder.
    pub state: State,
    /// Whether the end was announced; set once, in the transaction that announces it.
    pub announced: bool,
    /// The owner stopped it itself: no inbox item.
    pub discard_item: bool,
    /// Taken over from another session.
    pub adopted: bool,
    /// How far the announcement on the topic is; none without a notify.
    pub notify_state: Option<NotifyState>,
    /// Why there is no event.
    pub notify_reason: Option<String>,
    /// How it ended.
    pub end: Option<End>,
}

const COLUMNS: &str = "session, lease, task_key, state, announced, discard_item, adopted, notify_state, notify_reason, spec, ending";

fn from_row(row: &Row<'_>) -> rusqlite::Result<TaskRow> {
    fn json<T: serde::de::DeserializeOwned>(index: usize, text: &str) -> rusqlite::Result<T> {
        serde_json::from_str(text).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                index,
                rusqlite::types::Type::Text,
                error.into(),
            )
        })
    }
    fn word<T: serde::de::DeserializeOwned>(index: usize, text: String) -> rusqlite::Result<T> {
        serde_json::from_value(serde_json::Value::String(text)).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                index,
                rusqlite::types::Type::Text,
                error.into(),
            )
        })
    }
    Ok(TaskRow {
        session: row.get(0)?,
        lease: word(1, row.get(1)?)?,
        key: row.get(2)?,
        state: word(3, row.get(3)?)?,
        announced: row.get(4)?,
        discard_item: row.get(5)?,
        adopted: row.get(6)?,
        notify_state: row
            .get::<_, Option<String>>(7)?
            .map(|text| word(7, text))
            .transpose()?,
        notify_reason: row.get(8)?,
        spec: json(9, row.get_ref(9)?.as_str()?)?,
        end: row
            .get::<_, Option<String>>(10)?
            .map(|text| json(10, &text))
            .transpose()?,
    })
}

/// The word that stands for `value` in a column.
fn column<T: serde::Serialize>(value: T) -> Result<String> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        other => Err(Error::Internal(format!("{other:?} is no column word"))),
    }
}

fn json_text<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::Internal(format!("a row cannot be written as JSON: {error}")))
}

/// Adds a new task's row.
pub fn insert(sql: &Connection, row: &TaskRow) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO tasks (id, session, lease, task_key, state, adopted, notify_state, created_at, spec)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        row.spec.id,
        row.session,
        column(row.lease)?,
        row.key,
        column(row.state)?,
        row.adopted,
        row.notify_state.map(column).transpose()?,
        row.spec.created_at,
        json_text(&row.spec)?,
    ])?;
    Ok(())
}

/// Takes away the row of a task that never started.
pub fn delete(sql: &Connection, id: &str) -> Result<()> {
    sql.prepare_cached("DELETE FROM tasks WHERE id = ?1")?
        .execute([id])?;
    Ok(())
}

/// The row of exactly this id.
pub fn get(sql: &Connection, id: &str) -> Result<Option<TaskRow>> {
    Ok(sql
        .prepare_cached(&format!("SELECT {COLUMNS} FROM tasks WHERE id = ?1"))?
        .query_row([id], from_row)
        .optional()?)
}

/// Up to `limit` ids that begin with `prefix`.
pub fn ids_with_prefix(sql: &Connection, prefix: &str, limit: usize) -> Result<Vec<String>> {
    // The upper bound is the prefix followed by the highest character: a range over the primary key, never a scan.
    let mut statement = sql.prepare_cached(
        "SELECT id FROM tasks WHERE id >= ?1 AND id < ?1 || char(1114111) LIMIT ?2",
    )?;
    let ids = statement
        .query_map(params![prefix, limit as i64], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(ids)
}

/// The task that holds `key`: an unfinished one, or for weft's own keys (with `:`) any.
pub fn by_key(sql: &Connection, key: &str) -> Result<Option<TaskRow>> {
    let any = key.contains(':');
    Ok(sql
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM tasks WHERE task_key = ?1 AND (?2 OR finished_at IS NULL) ORDER BY created_at DESC LIMIT 1"
        ))?
        .query_row(params![key, any], from_row)
        .optional()?)
}

/// The rows whose end was not announced yet: what a starting node has to look after.
pub fn unannounced(sql: &Connection) -> Result<Vec<TaskRow>> {
    let mut statement =
        sql.prepare_cached(&format!("SELECT {COLUMNS} FROM tasks WHERE announced = 0"))?;
    let rows = statement
        .query_map([], from_row)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(rows)
}

/// The newest `limit` tasks of a session, or of all.
pub fn list(sql: &Connection, session: Option<&str>, limit: usize) -> Result<Vec<TaskRow>> {
    let mut statement = sql.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM tasks WHERE ?1 IS NULL OR session = ?1 ORDER BY created_at DESC, id LIMIT ?2"
    ))?;
    let rows = statement
        .query_map(params![session, limit as i64], from_row)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(rows)
}

/// How many tasks a session, or all, have.
pub fn count(sql: &Connection, session: Option<&str>) -> Result<u64> {
    Ok(sql
        .prepare_cached("SELECT count(*) FROM tasks WHERE ?1 IS NULL OR session = ?1")?
        .query_row([session], |row| row.get(0))?)
}

/// Writes the end and marks it announced. The caller has looked that it was not.
pub fn set_announced(
    sql: &Connection,
    id: &str,
    end: &End,
    notify: Option<(NotifyState, Option<&str>)>,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE tasks SET announced = 1, state = ?2, finished_at = ?3, ending = ?4,
           notify_state = coalesce(?5, notify_state), notify_reason = ?6 WHERE id = ?1",
    )?
    .execute(params![
        id,
        column(end.state)?,
        end.finished_at,
        json_text(end)?,
        notify.map(|(state, _)| column(state)).transpose()?,
        notify.and_then(|(_, reason)| reason),
    ])?;
    Ok(())
}

/// Remembers that the owner itself stopped the task, so that its end is no news.
pub fn set_discard(sql: &Connection, id: &str) -> Result<()> {
    sql.prepare_cached("UPDATE tasks SET discard_item = 1 WHERE id = ?1 AND announced = 0")?
        .execute([id])?;
    Ok(())
}

/// Changes who keeps the task alive.
pub fn set_lease(sql: &Connection, id: &str, lease: Lease) -> Result<()> {
    sql.prepare_cached("UPDATE tasks SET lease = ?2 WHERE id = ?1")?
        .execute(params![id, column(lease)?])?;
    Ok(())
}

/// Gives the task to another owner; an adopted task is durable.
pub fn set_owner(sql: &Connection, id: &str, session: &str) -> Result<()> {
    sql.prepare_cached("UPDATE tasks SET session = ?2, adopted = 1, lease = ?3 WHERE id = ?1")?
        .execute(params![id, session, column(Lease::Durable)?])?;
    Ok(())
}

/// Lets another task take this one's key.
pub fn free_key(sql: &Connection, id: &str) -> Result<()> {
    sql.prepare_cached("UPDATE tasks SET task_key = NULL WHERE id = ?1")?
        .execute([id])?;
    Ok(())
}
