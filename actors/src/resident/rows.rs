//! Residents in the store: what each is, how far it is, and what became of every event.

use rusqlite::{Connection, OptionalExtension, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_mesh::{Draft, Event, Topic, Tx};

use super::spec::ResidentSpec;
use super::{DEAD_PREFIX, dead_topic, log_key, tell_topic};
use crate::error::{Error, Result};
use crate::limits::{RESIDENT_HOLD_MS, RESIDENT_LOG_KEPT};

/// The tables of residents.
pub const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS residents (
  name        TEXT PRIMARY KEY,
  spec        TEXT NOT NULL,
  enabled     INTEGER NOT NULL,
  cursor      INTEGER NOT NULL,
  epoch       TEXT NOT NULL,
  incarnation TEXT NOT NULL,
  created_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS resident_log (
  n        INTEGER PRIMARY KEY AUTOINCREMENT,
  name     TEXT NOT NULL,
  sequence INTEGER,
  event_id TEXT,
  topic    TEXT,
  attempt  INTEGER NOT NULL,
  task_id  TEXT,
  state    TEXT NOT NULL,
  reason   TEXT,
  at       INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS resident_log_by_name ON resident_log (name, n);
CREATE INDEX IF NOT EXISTS resident_log_by_event ON resident_log (name, sequence);
";

/// One resident.
#[derive(Debug, Clone)]
pub struct ResidentRow {
    /// Its name.
    pub name: String,
    /// What it is.
    pub spec: ResidentSpec,
    /// Not paused.
    pub enabled: bool,
    /// The newest sequence it is done with.
    pub cursor: u64,
    /// The epoch of that cursor.
    pub epoch: String,
    /// A new value whenever a resident of this name is made.
    pub incarnation: String,
    /// Epoch milliseconds.
    pub created_at: u64,
}

/// What became of an event at a resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogState {
    /// Its handler took it.
    Acknowledged,
    /// An attempt failed; another follows.
    Failed,
    /// Given up: it is on `weft.dead.<name>`.
    Dead,
    /// Events that retention took away before the resident saw them.
    Omitted,
}

/// One line of a resident's log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    /// Its place; pass it as `after` to read on.
    pub n: i64,
    /// The event's sequence; for omitted ones the last of them.
    pub sequence: Option<u64>,
    /// The event's id.
    pub event_id: Option<String>,
    /// The event's topic.
    pub topic: Option<String>,
    /// Counted from 1.
    pub attempt: u32,
    /// The run.
    pub task_id: Option<String>,
    /// What became of it.
    pub state: LogState,
    /// Why, where the state does not tell.
    pub reason: Option<String>,
    /// Epoch milliseconds.
    pub at: u64,
}

fn text<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::Internal(format!("a row cannot be written as JSON: {error}")))
}

fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<ResidentRow> {
    let spec = serde_json::from_str(row.get_ref(1)?.as_str()?).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, error.into())
    })?;
    Ok(ResidentRow {
        name: row.get(0)?,
        spec,
        enabled: row.get(2)?,
        cursor: row.get(3)?,
        epoch: row.get(4)?,
        incarnation: row.get(5)?,
        created_at: row.get(6)?,
    })
}

const COLUMNS: &str = "name, spec, enabled, cursor, epoch, incarnation, created_at";

/// Makes a resident. An identical one that is there is answered with; another of the name is refused.
pub fn create(tx: &mut Tx<'_>, row: &ResidentRow) -> Result<ResidentRow> {
    if let Some(found) = get(tx.sql(), &row.name)? {
        return if found.spec == row.spec {
            Ok(found)
        } else {
            Err(Error::Exists {
                what: "resident",
                id: row.name.clone(),
            })
        };
    }
    tx.sql()
        .prepare_cached("INSERT INTO residents (name, spec, enabled, cursor, epoch, incarnation, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
        .execute(params![row.name, text(&row.spec)?, row.enabled, row.cursor, row.epoch, row.incarnation, row.created_at])?;
    Ok(row.clone())
}

/// The resident of this name.
pub fn get(sql: &Connection, name: &str) -> Result<Option<ResidentRow>> {
    Ok(sql
        .prepare_cached(&format!("SELECT {COLUMNS} FROM residents WHERE name = ?1"))?
        .query_row([name], from_row)
        .optional()?)
}

/// The resident of this name, or a refusal.
pub fn find(sql: &Connection, name: &str) -> Result<ResidentRow> {
    get(sql, name)?.ok_or_else(|| Error::NotFound {
        what: "resident",
        id: name.to_owned(),
    })
}

/// All residents, by name.
pub fn all(sql: &Connection) -> Result<Vec<ResidentRow>> {
    let mut statement =
        sql.prepare_cached(&format!("SELECT {COLUMNS} FROM residents ORDER BY name"))?;
    let rows = statement
        .query_map([], from_row)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(rows)
}

/// Pauses or resumes.
pub fn set_enabled(tx: &mut Tx<'_>, name: &str, enabled: bool) -> Result<ResidentRow> {
    tx.sql()
        .prepare_cached("UPDATE residents SET enabled = ?2 WHERE name = ?1")?
        .execute(params![name, enabled])?;
    find(tx.sql(), name)
}

/// Takes a resident away, with its log. Its running handler goes on to its end and tells nobody.
pub fn remove(tx: &mut Tx<'_>, name: &str) -> Result<ResidentRow> {
    let row = find(tx.sql(), name)?;
    tx.sql()
        .execute("DELETE FROM residents WHERE name = ?1", [name])?;
    tx.sql()
        .execute("DELETE FROM resident_log WHERE name = ?1", [name])?;
    // A new resident of this name must not join the runs of the old one: `;` follows `:` in the order of bytes.
    tx.sql().execute(
        "UPDATE tasks SET task_key = NULL WHERE task_key >= ?1 || ':' AND task_key < ?1 || ';'",
        [format!("resident:{name}")],
    )?;
    Ok(row)
}

/// Failed attempts of an event on record.
pub fn failed_attempts(sql: &Connection, name: &str, sequence: u64) -> Result<u32> {
    Ok(sql
        .prepare_cached("SELECT coalesce(max(attempt), 0) FROM resident_log WHERE name = ?1 AND sequence = ?2 AND state = 'failed'")?
        .query_row(params![name, sequence], |row| row.get(0))?)
}

/// How one attempt went, for [`record`].
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The resident.
    pub name: String,
    /// Its incarnation: an attempt of a resident that was removed and made anew is not recorded.
    pub incarnation: String,
    /// The event.
    pub event: Event,
    /// Counted from 1.
    pub attempt: u32,
    /// What became of it.
    pub state: LogState,
    /// The run.
    pub task_id: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// Records an attempt and, unless it comes again, moves the cursor: one transaction, so that an acknowledged event never comes
/// again and an unacknowledged one is never passed over. A dead one goes to its topic in the same transaction.
pub fn record(tx: &mut Tx<'_>, attempt: &Attempt) -> Result<()> {
    let Some(row) =
        get(tx.sql(), &attempt.name)?.filter(|row| row.incarnation == attempt.incarnation)
    else {
        return Ok(());
    };
    let event = &attempt.event;
    if row.cursor >= event.sequence && row.epoch == tx.epoch() {
        return Ok(());
    }
    // A letter is not lettered again: a failing resident of dead letters would write to itself for ever.
    if attempt.state == LogState::Dead && !event.topic.as_str().starts_with(DEAD_PREFIX) {
        letter(tx, attempt)?;
    }
    add_entry(
        tx,
        &attempt.name,
        &LogEntry {
            n: 0,
            sequence: Some(event.sequence),
            event_id: Some(event.id.to_string()),
            topic: Some(event.topic.to_string()),
            attempt: attempt.attempt,
            task_id: attempt.task_id.clone(),
            state: attempt.state,
            reason: attempt.reason.clone(),
            at: tx.now(),
        },
    )?;
    if attempt.state != LogState::Failed {
        move_cursor(tx, &attempt.name, event.sequence)?;
    }
    Ok(())
}

/// Moves the cursor forward, never back within an epoch.
pub fn move_cursor(tx: &mut Tx<'_>, name: &str, sequence: u64) -> Result<()> {
    let epoch = tx.epoch().to_owned();
    tx.sql()
        .prepare_cached("UPDATE residents SET cursor = ?2, epoch = ?3 WHERE name = ?1 AND (cursor < ?2 OR epoch <> ?3)")?
        .execute(params![name, sequence, epoch])?;
    Ok(())
}

/// Adds a line to the log of `name` and forgets the oldest beyond the bound.
pub fn add_entry(tx: &mut Tx<'_>, name: &str, entry: &LogEntry) -> Result<()> {
    let state = match entry.state {
        LogState::Acknowledged => "acknowledged",
        LogState::Failed => "failed",
        LogState::Dead => "dead",
        LogState::Omitted => "omitted",
    };
    tx.sql()
        .prepare_cached(
            "INSERT INTO resident_log (name, sequence, event_id, topic, attempt, task_id, state, reason, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            name,
            entry.sequence,
            entry.event_id,
            entry.topic,
            entry.attempt,
            entry.task_id,
            state,
            entry.reason,
            entry.at
        ])?;
    tx.sql()
        .prepare_cached(
            "DELETE FROM resident_log WHERE name = ?1 AND n <=
               (SELECT n FROM resident_log WHERE name = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)",
        )?
        .execute(params![name, RESIDENT_LOG_KEPT])?;
    tx.wake(&log_key(name));
    Ok(())
}

/// Lines of the log of `name` after `after`.
pub fn entries(sql: &Connection, name: &str, after: i64, limit: usize) -> Result<Vec<LogEntry>> {
    let mut statement = sql.prepare_cached(
        "SELECT n, sequence, event_id, topic, attempt, task_id, state, reason, at
         FROM resident_log WHERE name = ?1 AND n > ?2 ORDER BY n LIMIT ?3",
    )?;
    let rows = statement
        .query_map(params![name, after, limit as i64], |row| {
            let state: String = row.get(6)?;
            Ok(LogEntry {
                n: row.get(0)?,
                sequence: row.get(1)?,
                event_id: row.get(2)?,
                topic: row.get(3)?,
                attempt: row.get(4)?,
                task_id: row.get(5)?,
                state: match state.as_str() {
                    "acknowledged" => LogState::Acknowledged,
                    "failed" => LogState::Failed,
                    "dead" => LogState::Dead,
                    _ => LogState::Omitted,
                },
                reason: row.get(7)?,
                at: row.get(8)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(rows)
}

fn letter(tx: &mut Tx<'_>, attempt: &Attempt) -> Result<()> {
    let event = &attempt.event;
    let id = format!(
        "dead:{}:{}:{}",
        attempt.name, attempt.incarnation, event.sequence
    )
    .parse()?;
    let mut draft = Draft::by_weft(
        dead_topic(&attempt.name).parse()?,
        event.kind.clone(),
        format!("resident:{}", attempt.name),
    )
    .with_id(id)
    .with_data(&serde_json::json!({
        "reason": attempt.reason,
        "attempts": attempt.attempt,
        "event": event,
    }));
    // What was untrusted before is so in the letter.
    draft.untrusted = event.untrusted;
    draft.origin = event.origin;
    tx.append(&draft)?;
    Ok(())
}

/// For retention: the lowest sequence after which an enabled resident may still want events of `topic`.
pub fn hold(sql: &Connection, topic: &Topic, _now: u64) -> rusqlite::Result<Option<u64>> {
    const _: () = assert!(
        RESIDENT_HOLD_MS == 7 * 24 * 3600 * 1000,
        "the mesh heeds a hold for seven days"
    );
    let mut statement =
        sql.prepare_cached("SELECT name, spec, cursor FROM residents WHERE enabled")?;
    let mut rows = statement.query([])?;
    let mut lowest = None;
    while let Some(row) = rows.next()? {
        let (name, spec, cursor): (String, String, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let wants = serde_json::from_str::<ResidentSpec>(&spec).is_ok_and(|spec| {
            spec.topics.iter().any(|pattern| pattern.matches(topic))
                || topic.as_str() == tell_topic(&name)
        });
        if wants {
            let first = cursor + 1;
            lowest = Some(lowest.map_or(first, |lowest: u64| lowest.min(first)));
        }
    }
    Ok(lowest)
}
