//! Merging the events of many topics into one order, looking at no more of the store than the page needs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rusqlite::Connection;

use crate::error::MeshError;

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
        let mut select = self.conn.prepare_cached(
            "SELECT sequence FROM events WHERE topic = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3",
        )?;
        let mut rows = select.query((lane.topic, lane.after, self.step))?;
        while let Some(row) = rows.next()? {
            lane.fetched.push_back(row.get(0)?);
        }
        Ok(())
    }
}
