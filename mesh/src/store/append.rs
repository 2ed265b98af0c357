//! Appending an entry inside a commit, and what its id says about it.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, params};

use super::entry::Entry;
use super::state::{State, row_id};
use crate::error::MeshError;
use crate::event::{Appended, Draft, Event, Origin};
use crate::name::EventId;

/// Times are stored as SQLite's signed integers; one that is far beyond any date stands for ever.
pub(super) fn stored_time(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// What the store remembers of an id.
pub(super) struct IdRecord {
    pub(super) sequence: u64,
    poster: String,
    digest: Vec<u8>,
    created_at: u64,
}

/// Looks an id up, among the events kept and those taken away.
pub(super) fn find_id(conn: &Connection, id: &EventId) -> Result<Option<IdRecord>, MeshError> {
    let read = |row: &Row<'_>| {
        Ok(IdRecord {
            sequence: row.get(0)?,
            poster: row.get(1)?,
            digest: row.get(2)?,
            created_at: row.get(3)?,
        })
    };
    let mut select = conn.prepare_cached(
        "SELECT sequence, poster, digest, created_at FROM events WHERE id = ?1 \
         UNION ALL SELECT sequence, poster, digest, created_at FROM past_ids WHERE id = ?1",
    )?;
    Ok(select.query_row([id.as_str()], read).optional()?)
}

/// Tells whether an entry was stored before. Another event under its id is a conflict, of which nothing is shown.
pub(super) fn find_duplicate(
    conn: &Connection,
    entry: &Entry,
) -> Result<Option<Appended>, MeshError> {
    if entry.is_made {
        return Ok(None);
    }
    let Some(first) = find_id(conn, &entry.id)? else {
        return Ok(None);
    };
    if first.poster != entry.draft.from || first.digest != entry.digest {
        return Err(MeshError::IdConflict {
            id: entry.id.to_string(),
        });
    }
    let event = event(
        entry.draft.clone(),
        entry.id.clone(),
        first.sequence,
        first.created_at,
    );
    Ok(Some(Appended {
        event,
        duplicate: true,
    }))
}

/// The insert of a commit, prepared once.
pub(super) fn prepare_insert(conn: &Connection) -> Result<CachedStatement<'_>, MeshError> {
    Ok(conn.prepare_cached(
        "INSERT INTO events (sequence, topic, nth, id, kind, poster, recipient, text, data, created_at, external, \
         untrusted, grant_id, due_at, schedule_key, bytes, digest, keep_until) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
    )?)
}

/// Stores an entry that is known not to be there, under the next sequence.
pub(super) fn insert(
    conn: &Connection,
    statement: &mut CachedStatement<'_>,
    state: &mut State,
    entry: Entry,
    now: u64,
) -> Result<Appended, MeshError> {
    let Entry {
        draft,
        id,
        bytes,
        digest,
        ..
    } = entry;
    let topic = state.intern(conn, &draft.topic)?;
    let sequence = state.last + 1;
    let nth = state.topic(topic).counts.appended + 1;
    let scheduled = draft.scheduled.as_ref();
    statement.execute(params![
        sequence,
        row_id(topic),
        nth,
        id.as_str(),
        draft.kind.as_str(),
        draft.from,
        draft.to,
        draft.text,
        draft.data.as_ref().map(|data| data.get()),
        stored_time(now),
        draft.origin == Origin::External,
        draft.untrusted,
        draft.grant_id,
        scheduled.map(|scheduled| stored_time(scheduled.due_at)),
        scheduled.and_then(|scheduled| scheduled.key.as_deref()),
        bytes,
        digest,
        draft.keep_id_until.map(stored_time),
    ])?;
    state.last = sequence;
    state.change(topic, |counts| {
        if counts.kept == 0 {
            (counts.first, counts.first_at) = (sequence, now);
        }
        counts.kept += 1;
        counts.bytes += bytes as u64;
        counts.last = sequence;
        counts.appended = nth;
    });
    Ok(Appended {
        event: event(draft, id, sequence, now),
        duplicate: false,
    })
}

fn event(draft: Draft, id: EventId, sequence: u64, created_at: u64) -> Event {
    Event {
        id,
        sequence,
        topic: draft.topic,
        kind: draft.kind,
        from: draft.from,
        to: draft.to,
        text: draft.text,
        data: draft.data,
        created_at,
        origin: draft.origin,
        untrusted: draft.untrusted,
        grant_id: draft.grant_id,
        scheduled: draft.scheduled,
    }
}
