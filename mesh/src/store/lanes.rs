//! Merging the events of many topics into one order, looking at no more of the store than the page needs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rusqlite::Connection;

use crate::error::MeshError;

/// Invariant: this is answered from the index alone, so that a read costs what it returns and not what the store holds.
const NEXT: &str =
    "SELECT sequence FROM events WHERE topic = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";

/// Sequences fetched at a time from one of several lanes.
const STEP: usize = 32;

/// One topic after a cursor.
#[derive(Debug)]
struct Lane {
    topic: i64,
    /// Everything up to here was given out or lies before the cursor.
    after: u64,
    fetched: VecDeque<u64>,
}

/// The next event of each topic; a topic is not even looked at before its turn can have come.
///
/// The heap holds, for each lane, a lower bound of its next sequence, and whether that is exact.
#[derive(Debug)]
pub(super) struct Lanes<'a> {
    conn: &'a Connection,
    all: Vec<Lane>,
    heads: BinaryHeap<Reverse<(u64, bool, usize)>>,
    step: usize,
}

impl<'a> Lanes<'a> {
    /// `topics`: the row id of each topic and the sequence of its oldest event. `limit`: events wanted at most.
    pub(super) fn new(
        conn: &'a Connection,
        topics: impl Iterator<Item = (i64, u64)>,
        after: u64,
        limit: usize,
    ) -> Self {
        let (mut all, mut heads) = (Vec::new(), BinaryHeap::new());
        for (topic, first) in topics {
            heads.push(Reverse((first.max(after + 1), false, all.len())));
            all.push(Lane {
                topic,
                after,
                fetched: VecDeque::new(),
            });
        }
        let step = if all.len() == 1 {
            limit
        } else {
            STEP.min(limit)
        };
        Self {
            conn,
            all,
            heads,
            step,
        }
    }

    /// The next sequence in the order of the log.
    pub(super) fn next(&mut self) -> Result<Option<u64>, MeshError> {
        while let Some(Reverse((sequence, is_exact, index))) = self.heads.pop() {
            if is_exact {
                let lane = &mut self.all[index];
                lane.fetched.pop_front();
                lane.after = sequence;
                let (bound, is_known) = lane
                    .fetched
                    .front()
                    .map_or((sequence + 1, false), |next| (*next, true));
                self.heads.push(Reverse((bound, is_known, index)));
                return Ok(Some(sequence));
            }
            self.fetch(index)?;
            if let Some(first) = self.all[index].fetched.front() {
                self.heads.push(Reverse((*first, true, index)));
            }
        }
        Ok(None)
    }

    fn fetch(&mut self, index: usize) -> Result<(), MeshError> {
        let lane = &mut self.all[index];
        let mut select = self.conn.prepare_cached(NEXT)?;
        let mut rows = select.query((lane.topic, lane.after, self.step))?;
        while let Some(row) = rows.next()? {
            lane.fetched.push_back(row.get(0)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_read_costs_what_it_returns_and_not_what_the_store_holds() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(super::super::schema::TABLES).unwrap();
        let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {NEXT}")).unwrap();
        let plan = explain
            .query_map((1, 1, 1), |row| row.get::<_, String>(3))
            .unwrap();
        let plan: Vec<_> = plan.map(Result::unwrap).collect();
        assert_eq!(
            plan,
            ["SEARCH events USING COVERING INDEX events_topic (topic=? AND rowid>?)"]
        );
    }

    /// A log whose events are of the topics given, in order from sequence 1.
    fn log(topics: &[i64]) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE events (sequence INTEGER PRIMARY KEY, topic); CREATE INDEX t ON events (topic)")
            .unwrap();
        for (place, topic) in topics.iter().enumerate() {
            conn.execute("INSERT INTO events VALUES (?1, ?2)", (place + 1, topic))
                .unwrap();
        }
        conn
    }

    proptest! {
        #[test]
        fn the_merge_is_what_a_look_at_everything_would_find(
            topics in prop::collection::vec(0_i64..4, 0..120),
            wanted in prop::collection::btree_set(0_i64..4, 0..4),
            after in 0_u64..130,
            limit in 1_usize..50,
        ) {
            let conn = log(&topics);
            let all = (1..).zip(&topics);
            let first = |topic| all.clone().find(|(_, other)| *other == topic).map(|(sequence, _)| sequence);
            let present = wanted.iter().filter_map(|topic| Some((*topic, first(topic)?)));
            let mut lanes = Lanes::new(&conn, present, after, limit);
            let mut found = Vec::new();
            while let Some(sequence) = lanes.next().unwrap() {
                found.push(sequence);
            }
            let expected = all.clone().filter(|(sequence, topic)| *sequence > after && wanted.contains(topic));
            prop_assert_eq!(found, expected.map(|(sequence, _)| sequence).collect::<Vec<_>>());
        }
    }
}
