//! What the writer knows by heart: the counter and each topic's counts. It is flushed inside every commit and loaded
//! anew after one that failed.

use std::collections::HashMap;

use rusqlite::Connection;

use super::{ledger, trim};
use crate::error::MeshError;
use crate::limits::{RETENTION_AGE_MS, RETENTION_BYTES, RETENTION_COUNT, TOPICS_MAX};
use crate::name::Topic;
use crate::query::Retention;

/// Place of a topic in [`State`]; its row id is one more.
pub(super) type TopicIndex = usize;

/// What changes about a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) kept: u64,
    pub(super) bytes: u64,
    /// Sequence and time of the oldest event kept, 0 when there is none.
    pub(super) first: u64,
    pub(super) first_at: u64,
    /// Sequence of the newest event ever.
    pub(super) last: u64,
    pub(super) trimmed_to: u64,
    /// Events ever.
    pub(super) appended: u64,
    pub(super) retention: Option<Retention>,
}

#[derive(Debug)]
pub(super) struct TopicState {
    pub(super) name: Topic,
    pub(super) counts: Counts,
    is_dirty: bool,
}

#[derive(Debug)]
enum Undo {
    Changed(TopicIndex, Counts),
    Made,
    Default(Retention),
}

#[derive(Debug)]
pub(super) struct State {
    /// The newest sequence given out.
    pub(super) last: u64,
    /// Number of the last commit that changed anything.
    pub(super) commits: u64,
    pub(super) retention: Retention,
    topics: Vec<TopicState>,
    by_name: HashMap<Topic, TopicIndex>,
    /// Topics changed in this commit, each once.
    dirty: Vec<TopicIndex>,
    /// How to take back what happened since a savepoint; nothing is noted outside of one.
    undo: Option<(u64, Vec<Undo>)>,
    /// When the first of the remembered ids may be forgotten, in epoch milliseconds.
    pub(super) forget_ids_at: u64,
    /// When the first of the grants may be forgotten, in epoch milliseconds.
    pub(super) forget_grants_at: u64,
    /// When the next event may be too old, in epoch milliseconds; a look then finds out.
    pub(super) age_due: u64,
    /// Which topic is looked at next though nothing happened to it.
    pub(super) turn: TopicIndex,
}

pub(super) const DEFAULT_RETENTION: Retention = Retention {
    max_age_ms: Some(RETENTION_AGE_MS),
    max_count: Some(RETENTION_COUNT),
    max_bytes: Some(RETENTION_BYTES),
};

impl State {
    pub(super) fn load(conn: &Connection) -> Result<Self, MeshError> {
        let (last, commits, retention): (u64, u64, Option<String>) =
            conn.query_row("SELECT last, commits, retention FROM log", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let topics = load_topics(conn)?;
        let by_name = topics
            .iter()
            .enumerate()
            .map(|(index, topic)| (topic.name.clone(), index))
            .collect();
        Ok(Self {
            last,
            commits,
            retention: parse_retention(retention).unwrap_or(DEFAULT_RETENTION),
            topics,
            by_name,
            dirty: Vec::new(),
            undo: None,
            forget_ids_at: trim::next_id_to_forget(conn)?,
            forget_grants_at: ledger::next_to_forget(conn)?,
            age_due: 0,
            turn: 0,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn topic(&self, index: TopicIndex) -> &TopicState {
        &self.topics[index]
    }

    /// Topics changed in this commit.
    pub(super) fn changed(&self) -> &[TopicIndex] {
        &self.dirty
    }

    /// Changes a topic's counts, noting how to take that back.
    pub(super) fn change(&mut self, index: TopicIndex, change: impl FnOnce(&mut Counts)) {
        let topic = &mut self.topics[index];
        if let Some((_, undo)) = &mut self.undo {
            undo.push(Undo::Changed(index, topic.counts));
        }
        change(&mut topic.counts);
        if !topic.is_dirty {
            topic.is_dirty = true;
            self.dirty.push(index);
        }
    }

    pub(super) fn set_default_retention(&mut self, retention: Retention) {
        if let Some((_, undo)) = &mut self.undo {
            undo.push(Undo::Default(self.retention));
        }
        self.retention = retention;
        self.age_due = 0;
    }

    /// The place of a topic, which is made when it is new.
    pub(super) fn intern(
        &mut self,
        conn: &Connection,
        name: &Topic,
    ) -> Result<TopicIndex, MeshError> {
        if let Some(index) = self.by_name.get(name) {
            return Ok(*index);
        }
        let index = self.topics.len();
        if index >= TOPICS_MAX {
            return Err(MeshError::TopicLimit {
                topic: name.to_string(),
                limit: TOPICS_MAX,
            });
        }
        conn.prepare_cached("INSERT INTO topics (id, name) VALUES (?1, ?2)")?
            .execute((row_id(index), name.as_str()))?;
        self.topics.push(TopicState {
            name: name.clone(),
            counts: Counts::default(),
            is_dirty: false,
        });
        self.by_name.insert(name.clone(), index);
        if let Some((_, undo)) = &mut self.undo {
            undo.push(Undo::Made);
        }
        Ok(index)
    }

    /// Begins to note what happens.
    pub(super) fn save(&mut self) {
        self.undo = Some((self.last, Vec::new()));
    }

    /// Forgets what was noted: it stands.
    pub(super) fn keep(&mut self) {
        self.undo = None;
    }

    /// Takes back what happened since [`State::save`].
    pub(super) fn restore(&mut self) {
        let Some((last, undo)) = self.undo.take() else {
            return;
        };
        self.last = last;
        for step in undo.into_iter().rev() {
            match step {
                Undo::Changed(index, counts) => self.topics[index].counts = counts,
                Undo::Default(retention) => self.retention = retention,
                Undo::Made => self.unmake(),
            }
        }
    }

    fn unmake(&mut self) {
        let Some(topic) = self.topics.pop() else {
            return;
        };
        self.by_name.remove(&topic.name);
        let gone = self.topics.len();
        self.dirty.retain(|index| *index != gone);
    }

    /// Writes what changed, as the last thing before the commit.
    pub(super) fn flush(&mut self, conn: &Connection) -> Result<(), MeshError> {
        let mut update = conn.prepare_cached(
            "UPDATE topics SET kept = ?2, bytes = ?3, first = ?4, first_at = ?5, last = ?6, trimmed_to = ?7, appended = ?8 \
             WHERE id = ?1",
        )?;
        for index in &self.dirty {
            let Counts {
                kept,
                bytes,
                first,
                first_at,
                last,
                trimmed_to,
                appended,
                ..
            } = self.topics[*index].counts;
            update.execute((
                row_id(*index),
                kept,
                bytes,
                first,
                first_at,
                last,
                trimmed_to,
                appended,
            ))?;
        }
        self.commits += 1;
        conn.prepare_cached("UPDATE log SET last = ?1, commits = ?2")?
            .execute((self.last, self.commits))?;
        Ok(())
    }

    /// After the commit: nothing is changed any more.
    pub(super) fn settle(&mut self) {
        for index in self.dirty.drain(..) {
            self.topics[index].is_dirty = false;
        }
    }
}

pub(super) fn row_id(index: TopicIndex) -> i64 {
    index as i64 + 1
}

fn load_topics(conn: &Connection) -> Result<Vec<TopicState>, MeshError> {
    let mut select = conn.prepare(
        "SELECT id, name, kept, bytes, first, first_at, last, trimmed_to, appended, retention FROM topics ORDER BY id",
    )?;
    let mut rows = select.query([])?;
    let mut topics = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, name): (i64, String) = (row.get(0)?, row.get(1)?);
        if id != row_id(topics.len()) {
            return Err(MeshError::StoreFailed {
                detail: format!("the topics' numbers have a gap before {id}"),
            });
        }
        let counts = Counts {
            kept: row.get(2)?,
            bytes: row.get(3)?,
            first: row.get(4)?,
            first_at: row.get(5)?,
            last: row.get(6)?,
            trimmed_to: row.get(7)?,
            appended: row.get(8)?,
            retention: parse_retention(row.get(9)?),
        };
        topics.push(TopicState {
            name: name.parse()?,
            counts,
            is_dirty: false,
        });
    }
    Ok(topics)
}

pub(super) fn parse_retention(text: Option<String>) -> Option<Retention> {
    text.and_then(|text| serde_json::from_str(&text).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::schema::TABLES;
    use super::*;

    fn empty() -> (Connection, State) {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(TABLES).unwrap();
        conn.execute(
            "INSERT INTO log (one, epoch, last, commits) VALUES (1, 'e', 0, 0)",
            [],
        )
        .unwrap();
        let state = State::load(&conn).unwrap();
        (conn, state)
    }

    fn append(conn: &Connection, state: &mut State, topic: usize) {
        let topic = state
            .intern(conn, &format!("t{topic}").parse().unwrap())
            .unwrap();
        state.last += 1;
        let sequence = state.last;
        state.change(topic, |counts| {
            counts.kept += 1;
            counts.last = sequence;
        });
    }

    fn picture(state: &State) -> (u64, Retention, Vec<(Topic, Counts)>) {
        let topics = state
            .topics
            .iter()
            .map(|topic| (topic.name.clone(), topic.counts));
        (state.last, state.retention, topics.collect())
    }

    proptest! {
        /// Parts that are undone leave no trace, and what is flushed is what is loaded.
        #[test]
        fn memory_and_file_agree_whatever_is_undone(
            parts in prop::collection::vec((prop::collection::vec(0_usize..5, 0..4), any::<bool>()), 0..12)
        ) {
            let (conn, mut state) = empty();
            for (topics, is_kept) in parts {
                conn.execute_batch("SAVEPOINT part").unwrap();
                state.save();
                let before = picture(&state);
                for topic in topics {
                    append(&conn, &mut state, topic);
                }
                if is_kept {
                    state.keep();
                } else {
                    conn.execute_batch("ROLLBACK TO part").unwrap();
                    state.restore();
                    prop_assert_eq!(picture(&state), before);
                }
                conn.execute_batch("RELEASE part").unwrap();
            }
            state.flush(&conn).unwrap();
            state.settle();
            prop_assert_eq!(picture(&state), picture(&State::load(&conn).unwrap()));
        }
    }
}
