//! Reads of the log, on reader threads. Every read is one snapshot.

use rusqlite::{Connection, OptionalExtension as _, Row};
use serde_json::value::RawValue;

use super::lanes::Lanes;
use super::state::parse_retention;
use crate::error::MeshError;
use crate::event::{Event, Origin, Scheduled};
use crate::limits::{READ_EVENTS_MAX, READ_LOOKED_AT_MAX};
use crate::name::{EventId, Kind, Topic};
use crate::pattern::Pattern;
use crate::query::{Omitted, Page, Query, TopicInfo};

const EVENT: &str = "SELECT sequence, topic, id, kind, poster, recipient, text, data, created_at, external, untrusted, \
    grant_id, due_at, schedule_key, bytes FROM events";

/// A topic as a read sees it.
struct Seen {
    row_id: i64,
    name: Topic,
    kept: u64,
    first: u64,
    last: u64,
    trimmed_to: u64,
    appended: u64,
}

/// Reads a page of events. `epoch` is the store's.
pub(super) fn events(conn: &Connection, query: &Query, epoch: &str) -> Result<Page, MeshError> {
    let snapshot = conn.unchecked_transaction()?;
    let newest: u64 = snapshot
        .prepare_cached("SELECT last FROM log")?
        .query_row([], |row| row.get(0))?;
    let is_foreign = query
        .after
        .epoch
        .as_ref()
        .is_some_and(|theirs| theirs != epoch);
    // A cursor past the newest event was not given out by this store: whoever holds it would wait for nothing.
    if is_foreign || query.after.sequence > newest {
        let oldest = oldest(&snapshot)?;
        return Err(MeshError::Resync {
            epoch: epoch.to_owned(),
            oldest,
        });
    }
    let after = query.after.sequence;
    let topics = matching(&snapshot, &query.patterns, after)?;
    let omitted = topics
        .iter()
        .filter(|topic| topic.trimmed_to > after)
        .map(|topic| omitted(&snapshot, topic, after));
    let omitted = omitted.collect::<Result<Vec<_>, _>>()?;
    let (events, stopped_at) = collect(&snapshot, query, &topics)?;
    Ok(Page {
        events,
        epoch: epoch.to_owned(),
        omitted,
        next: stopped_at.unwrap_or(newest),
        more: stopped_at.is_some(),
    })
}

/// Reads the event with an id, if it is still kept.
pub(super) fn event(conn: &Connection, id: &EventId) -> Result<Option<Event>, MeshError> {
    let snapshot = conn.unchecked_transaction()?;
    let mut name = snapshot.prepare_cached("SELECT name FROM topics WHERE id = ?1")?;
    let mut select = snapshot.prepare_cached(&format!("{EVENT} WHERE id = ?1"))?;
    let mut rows = select.query([id.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let topic: String = name.query_row([row.get::<_, i64>(1)?], |row| row.get(0))?;
    read_event(row, |_| Some(Topic(topic.as_str().into()))).map(Some)
}

/// The events of a page, and the sequence at which a bound ended it.
fn collect(
    conn: &Connection,
    query: &Query,
    topics: &[Seen],
) -> Result<(Vec<Event>, Option<u64>), MeshError> {
    let after = query.after.sequence;
    let limit = query.limit.clamp(1, READ_EVENTS_MAX);
    let alive = topics
        .iter()
        .filter(|topic| topic.kept > 0 && topic.last > after);
    let mut lanes = Lanes::new(
        conn,
        alive.map(|topic| (topic.row_id, topic.first)),
        after,
        limit,
    );
    let mut select = conn.prepare_cached(&format!("{EVENT} WHERE sequence = ?1"))?;
    let name_of = |row_id: i64| {
        topics
            .iter()
            .find(|topic| topic.row_id == row_id)
            .map(|topic| topic.name.clone())
    };
    let (mut events, mut bytes, mut looked_at, mut stopped_at) = (Vec::new(), 0, 0, after);
    while let Some(sequence) = lanes.next()? {
        if events.len() == limit || looked_at == READ_LOOKED_AT_MAX {
            return Ok((events, Some(stopped_at)));
        }
        looked_at += 1;
        let mut rows = select.query([sequence])?;
        let Some(row) = rows.next()? else { continue };
        if is_wanted(row, &query.kinds)? {
            bytes += row.get::<_, usize>(14)?;
            if bytes > query.max_bytes && !events.is_empty() {
                return Ok((events, Some(stopped_at)));
            }
            events.push(read_event(row, name_of)?);
        }
        stopped_at = sequence;
    }
    Ok((events, None))
}

fn is_wanted(row: &Row<'_>, kinds: &[Kind]) -> Result<bool, MeshError> {
    if kinds.is_empty() {
        return Ok(true);
    }
    let kind = row.get_ref(3)?.as_str().unwrap_or_default();
    Ok(kinds.iter().any(|wanted| wanted.as_str() == kind))
}

fn read_event(row: &Row<'_>, name_of: impl Fn(i64) -> Option<Topic>) -> Result<Event, MeshError> {
    let damaged = |what: &str| MeshError::StoreFailed {
        detail: format!("an event's {what} cannot be read"),
    };
    let data: Option<String> = row.get(7)?;
    let due_at: Option<u64> = row.get(12)?;
    let key: Option<String> = row.get(13)?;
    let is_external: bool = row.get(9)?;
    Ok(Event {
        sequence: row.get(0)?,
        topic: name_of(row.get(1)?).ok_or_else(|| damaged("topic"))?,
        // These were checked when they were made.
        id: EventId(row.get_ref(2)?.as_str().map_err(|_| damaged("id"))?.into()),
        kind: Kind(
            row.get_ref(3)?
                .as_str()
                .map_err(|_| damaged("kind"))?
                .into(),
        ),
        from: row.get(4)?,
        to: row.get(5)?,
        text: row.get(6)?,
        data: data
            .map(RawValue::from_string)
            .transpose()
            .map_err(|_| damaged("data"))?,
        created_at: row.get(8)?,
        origin: if is_external {
            Origin::External
        } else {
            Origin::Local
        },
        untrusted: row.get(10)?,
        grant_id: row.get(11)?,
        scheduled: due_at.map(|due_at| Scheduled { due_at, key }),
    })
}

/// The topics that match and have, or had, something after the cursor.
fn matching(conn: &Connection, patterns: &[Pattern], after: u64) -> Result<Vec<Seen>, MeshError> {
    const COLUMNS: &str =
        "SELECT id, name, kept, first, last, trimmed_to, appended FROM topics WHERE last > ?1";
    let mut found = Vec::new();
    if patterns.iter().all(Pattern::is_exact) {
        let mut select = conn.prepare_cached(&format!("{COLUMNS} AND name = ?2"))?;
        let mut names: Vec<_> = patterns.iter().map(Pattern::as_str).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            found.extend(select.query_row((after, name), read_topic).optional()?);
        }
    } else {
        let mut select = conn.prepare_cached(COLUMNS)?;
        let mut rows = select.query([after])?;
        while let Some(row) = rows.next()? {
            let name = row.get_ref(1)?.as_str().unwrap_or_default();
            if patterns.iter().any(|pattern| pattern.matches_text(name)) {
                found.push(read_topic(row)?);
            }
        }
    }
    Ok(found)
}

fn read_topic(row: &Row<'_>) -> rusqlite::Result<Seen> {
    Ok(Seen {
        row_id: row.get(0)?,
        name: Topic(row.get_ref(1)?.as_str()?.into()),
        kept: row.get(2)?,
        first: row.get(3)?,
        last: row.get(4)?,
        trimmed_to: row.get(5)?,
        appended: row.get(6)?,
    })
}

/// What a topic lost after a cursor. Events are numbered within their topic, so the newest one remembered at or before
/// the cursor tells how many came between it and the oldest kept.
fn omitted(conn: &Connection, topic: &Seen, after: u64) -> Result<Omitted, MeshError> {
    let mut select = conn.prepare_cached(
        "SELECT nth FROM past_ids WHERE topic = ?1 AND sequence <= ?2 ORDER BY sequence DESC LIMIT 1",
    )?;
    let seen: Option<u64> = select
        .query_row((topic.row_id, after), |row| row.get(0))
        .optional()?;
    let gone = topic.appended.saturating_sub(topic.kept);
    Ok(Omitted {
        topic: topic.name.clone(),
        after,
        to: topic.trimmed_to,
        count: gone.saturating_sub(seen.unwrap_or(0)),
    })
}

/// Sequence of the oldest event kept, 0 when there is none.
fn oldest(conn: &Connection) -> Result<u64, MeshError> {
    let oldest: Option<u64> =
        conn.query_row("SELECT min(sequence) FROM events", [], |row| row.get(0))?;
    Ok(oldest.unwrap_or(0))
}

/// All topics, by name.
pub(super) fn topics(conn: &Connection) -> Result<Vec<TopicInfo>, MeshError> {
    let mut select = conn.prepare_cached(
        "SELECT name, kept, bytes, first, last, trimmed_to, retention FROM topics ORDER BY name",
    )?;
    let some = |sequence: u64| (sequence > 0).then_some(sequence);
    let rows = select.query_map([], |row| {
        Ok(TopicInfo {
            topic: Topic(row.get_ref(0)?.as_str()?.into()),
            count: row.get(1)?,
            bytes: row.get(2)?,
            first: some(row.get(3)?),
            last: some(row.get(4)?),
            trimmed_to: row.get(5)?,
            retention: parse_retention(row.get(6)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
