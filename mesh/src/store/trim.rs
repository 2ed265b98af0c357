//! Retention: taking the oldest events of a topic away inside an ordinary commit, a bounded number at a time.

use rusqlite::Connection;

use super::append::stored_time;
use super::ledger;
use super::options::Hold;
use super::state::{Counts, State, TopicIndex, row_id};
use crate::error::MeshError;
use crate::limits::{
    AGE_HELD_MS, AGE_PAUSE_MS, HOLD_MS_MAX, ID_KEPT_MS, TRIM_ROWS_MAX, TRIM_TOPICS_LOOKED_AT,
    VACUUM_PAGES_ABOVE, VACUUM_PAGES_STEP,
};
use crate::query::Retention;

/// Trims the topics this commit changed, a few others in turn, and all whose oldest event is too old once that may be so.
///
/// True when there was more to do than one commit may.
pub(super) fn trim(
    conn: &Connection,
    state: &mut State,
    hold: Option<Hold>,
    now: u64,
) -> Result<bool, MeshError> {
    let mut topics = state.changed().to_vec();
    for _ in 0..TRIM_TOPICS_LOOKED_AT.min(state.len()) {
        state.turn = (state.turn + 1) % state.len();
        topics.push(state.turn);
    }
    let first = topics.iter().filter_map(|topic| due(state, *topic)).min();
    state.age_due = state.age_due.min(first.unwrap_or(u64::MAX));
    let is_due = state.age_due <= now;
    if is_due {
        let is_old = |topic: &TopicIndex| due(state, *topic).is_some_and(|due| due <= now);
        topics.extend((0..state.len()).filter(is_old));
    }
    let mut left = TRIM_ROWS_MAX;
    for topic in topics {
        if is_over(&retention_of(state, topic), &state.topic(topic).counts, now) {
            left -= trim_topic(conn, state, topic, hold, now, left)?;
        }
        if left == 0 {
            return Ok(true);
        }
    }
    if is_due {
        let next = (0..state.len()).filter_map(|topic| due(state, topic)).min();
        // What is too old and stays is held for a reader: it is looked at again, but not without rest.
        let pause = if left == TRIM_ROWS_MAX {
            AGE_HELD_MS
        } else {
            AGE_PAUSE_MS
        };
        state.age_due = next.unwrap_or(u64::MAX).max(now + pause);
    }
    forget(conn, state, now, left)
}

/// When the oldest event of a topic gets too old, where it does at all.
fn due(state: &State, topic: TopicIndex) -> Option<u64> {
    let counts = &state.topic(topic).counts;
    let age = retention_of(state, topic).max_age_ms?;
    // At its very age it stays.
    (counts.kept > 0).then(|| counts.first_at.saturating_add(age).saturating_add(1))
}

/// Forgets what is remembered of ids and grants when its time is over, at most `rows_max` of each.
fn forget(
    conn: &Connection,
    state: &mut State,
    now: u64,
    rows_max: usize,
) -> Result<bool, MeshError> {
    let mut has_more = false;
    if now > state.forget_ids_at {
        has_more |= forget_ids(conn, now, rows_max)? == rows_max;
        state.forget_ids_at = next_id_to_forget(conn)?;
    }
    if now > state.forget_grants_at {
        has_more |= ledger::forget(conn, now, rows_max)? == rows_max;
        state.forget_grants_at = ledger::next_to_forget(conn)?;
    }
    Ok(has_more)
}

fn retention_of(state: &State, topic: TopicIndex) -> Retention {
    state
        .topic(topic)
        .counts
        .retention
        .unwrap_or(state.retention)
}

/// Whether the oldest event of a topic has to go.
fn is_over(retention: &Retention, counts: &Counts, now: u64) -> bool {
    counts.kept > 0
        && (retention.max_count.is_some_and(|max| counts.kept > max)
            || retention.max_bytes.is_some_and(|max| counts.bytes > max)
            || retention
                .max_age_ms
                .is_some_and(|max| counts.first_at.saturating_add(max) < now))
}

/// The head of a topic: what is kept first.
struct Oldest {
    sequence: u64,
    bytes: u64,
    created_at: u64,
}

/// Takes at most `rows_max` events of a topic away and gives their number.
fn trim_topic(
    conn: &Connection,
    state: &mut State,
    topic: TopicIndex,
    hold: Option<Hold>,
    now: u64,
    rows_max: usize,
) -> Result<usize, MeshError> {
    let retention = retention_of(state, topic);
    let held_from = match hold {
        Some(hold) => hold(conn, &state.topic(topic).name, now)?.unwrap_or(u64::MAX),
        None => u64::MAX,
    };
    let oldest = read_oldest(conn, topic, rows_max + 1)?;
    let mut counts = state.topic(topic).counts;
    let mut gone = 0;
    for event in oldest.iter().take(rows_max) {
        (counts.first, counts.first_at) = (event.sequence, event.created_at);
        let is_held =
            event.sequence >= held_from && event.created_at.saturating_add(HOLD_MS_MAX) > now;
        if is_held || !is_over(&retention, &counts, now) {
            break;
        }
        counts.kept -= 1;
        counts.bytes = counts.bytes.saturating_sub(event.bytes);
        counts.trimmed_to = event.sequence;
        gone += 1;
    }
    if gone == 0 {
        return Ok(0);
    }
    (counts.first, counts.first_at) = oldest
        .get(gone)
        .map_or((0, 0), |next| (next.sequence, next.created_at));
    remove(conn, topic, counts.trimmed_to, now)?;
    state.forget_ids_at = next_id_to_forget(conn)?;
    state.change(topic, |current| *current = counts);
    give_back(conn)?;
    Ok(gone)
}

/// Gives some pages back to the file system when many are free. A few stay, since the next events need them.
fn give_back(conn: &Connection) -> Result<(), MeshError> {
    let free: u64 = conn
        .prepare_cached("PRAGMA freelist_count")?
        .query_row([], |row| row.get(0))?;
    if free > VACUUM_PAGES_ABOVE {
        conn.execute_batch(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES_STEP})"))?;
    }
    Ok(())
}

fn read_oldest(
    conn: &Connection,
    topic: TopicIndex,
    limit: usize,
) -> Result<Vec<Oldest>, MeshError> {
    let mut select = conn.prepare_cached(
        "SELECT sequence, bytes, created_at FROM events WHERE topic = ?1 ORDER BY sequence LIMIT ?2",
    )?;
    let rows = select.query_map((row_id(topic), limit), |row| {
        Ok(Oldest {
            sequence: row.get(0)?,
            bytes: row.get(1)?,
            created_at: row.get(2)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Moves the ids of a topic's events up to a sequence to where they are remembered, and deletes the events.
fn remove(conn: &Connection, topic: TopicIndex, to: u64, now: u64) -> Result<(), MeshError> {
    conn.prepare_cached(
        "INSERT INTO past_ids (topic, sequence, nth, id, poster, digest, created_at, keep_until) \
         SELECT topic, sequence, nth, id, poster, digest, created_at, max(created_at + ?3, ifnull(keep_until, 0)) AS keep \
         FROM events WHERE topic = ?1 AND sequence <= ?2 AND max(created_at + ?3, ifnull(keep_until, 0)) >= ?4",
    )?
    .execute((row_id(topic), to, stored_time(ID_KEPT_MS), stored_time(now)))?;
    conn.prepare_cached("DELETE FROM events WHERE topic = ?1 AND sequence <= ?2")?
        .execute((row_id(topic), to))?;
    Ok(())
}

/// When the first of the remembered ids may be forgotten, in epoch milliseconds. Known by heart, so that commits need
/// not look for it.
pub(super) fn next_id_to_forget(conn: &Connection) -> Result<u64, MeshError> {
    let next: Option<u64> =
        conn.query_row("SELECT min(keep_until) FROM past_ids", [], |row| row.get(0))?;
    Ok(next.unwrap_or(u64::MAX))
}

/// Forgets ids whose time is over, at most `rows_max`, and gives their number.
fn forget_ids(conn: &Connection, now: u64, rows_max: usize) -> Result<usize, MeshError> {
    let mut delete = conn.prepare_cached(
        "DELETE FROM past_ids WHERE (topic, sequence) IN \
         (SELECT topic, sequence FROM past_ids WHERE keep_until < ?1 ORDER BY keep_until LIMIT ?2)",
    )?;
    Ok(delete.execute((stored_time(now), rows_max))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_alone_takes_the_oldest_away_and_none_means_no_bound() {
        let counts = Counts {
            kept: 10,
            bytes: 1000,
            first_at: 50,
            ..Counts::default()
        };
        let over = |retention| is_over(&retention, &counts, 100);
        let none = Retention::default();
        assert!(!over(none));
        assert!(
            over(Retention {
                max_count: Some(9),
                ..none
            }) && !over(Retention {
                max_count: Some(10),
                ..none
            })
        );
        assert!(
            over(Retention {
                max_bytes: Some(999),
                ..none
            }) && !over(Retention {
                max_bytes: Some(1000),
                ..none
            })
        );
        assert!(
            over(Retention {
                max_age_ms: Some(49),
                ..none
            }) && !over(Retention {
                max_age_ms: Some(50),
                ..none
            })
        );
        assert!(
            !is_over(
                &Retention {
                    max_count: Some(0),
                    ..none
                },
                &Counts::default(),
                100
            ),
            "nothing to take"
        );
    }
}
