//! A bounded queue from async callers to threads: callers wait when it is full, threads wait when it is empty.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::error::MeshError;

/// Items are weighed in units, so that the bound is one of memory rather than of number.
#[derive(Debug)]
pub(super) struct Queue<T> {
    line: Mutex<Line<T>>,
    arrived: Condvar,
    room: Semaphore,
}

#[derive(Debug)]
struct Line<T> {
    items: VecDeque<(T, u32)>,
    sleepers: usize,
    /// Items that are worth waking a thread for.
    wanted: usize,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(units: usize) -> Self {
        let line = Line {
            items: VecDeque::new(),
            sleepers: 0,
            wanted: 1,
            closed: false,
        };
        Self {
            line: Mutex::new(line),
            arrived: Condvar::new(),
            room: Semaphore::new(units),
        }
    }

    /// Puts an item in line, waiting for room.
    pub(super) async fn push(&self, item: T, units: u32) -> Result<(), MeshError> {
        let room = self
            .room
            .acquire_many(units)
            .await
            .map_err(|_| MeshError::StoreClosed)?;
        room.forget();
        self.enter(item, units)
    }

    /// Puts an item in line at once. The number of threads that block bounds these.
    pub(super) fn push_blocking(&self, item: T) -> Result<(), MeshError> {
        self.enter(item, 0)
    }

    fn enter(&self, item: T, units: u32) -> Result<(), MeshError> {
        let mut line = self.lock();
        if line.closed {
            return Err(MeshError::StoreClosed);
        }
        line.items.push_back((item, units));
        let is_awaited = line.sleepers > 0 && line.items.len() >= line.wanted;
        drop(line);
        if is_awaited {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits for an item. None once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let mut line = self.wait_for_item(Duration::MAX);
        let (item, units) = line.items.pop_front()?;
        drop(line);
        self.room.add_permits(units as usize);
        Some(item)
    }

    /// Waits for items, for `rest` at most, and takes as many as the bounds allow. False once closed and empty.
    ///
    /// Before it takes fewer than `expected` it waits for so many, though not longer than `patience`: those who were
    /// just answered ask again within microseconds, and one flush for all is better than one for the first of them.
    pub(super) fn pop_many(
        &self,
        bounds: (usize, usize),
        expected: usize,
        patience: Duration,
        rest: Duration,
        into: &mut Vec<T>,
    ) -> bool {
        let (items_max, units_max) = bounds;
        self.wait_for_more(expected, patience);
        let mut line = self.wait_for_item(rest);
        let mut taken = 0;
        while into.len() < items_max {
            match line.items.front() {
                Some((_, units)) if into.is_empty() || taken + *units as usize <= units_max => {
                    taken += *units as usize;
                }
                _ => break,
            }
            into.extend(line.items.pop_front().map(|(item, _)| item));
        }
        let is_open = !line.closed;
        drop(line);
        self.room.add_permits(taken);
        is_open || !into.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().items.is_empty()
    }

    /// Refuses all further items. What is in line is still taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.arrived.notify_all();
    }

    fn wait_for_more(&self, expected: usize, patience: Duration) {
        if expected <= 1 {
            return;
        }
        let mut line = self.lock();
        line.wanted = expected;
        line.sleepers += 1;
        let is_short = |line: &mut Line<T>| line.items.len() < expected && !line.closed;
        let waited = self.arrived.wait_timeout_while(line, patience, is_short);
        let (mut line, _) = waited.unwrap_or_else(PoisonError::into_inner);
        line.sleepers -= 1;
        line.wanted = 1;
    }

    /// Waits so long at most.
    fn wait_for_item(&self, rest: Duration) -> MutexGuard<'_, Line<T>> {
        let mut line = self.lock();
        line.sleepers += 1;
        let is_empty = |line: &mut Line<T>| line.items.is_empty() && !line.closed;
        let waited = self.arrived.wait_timeout_while(line, rest, is_empty);
        let (mut line, _) = waited.unwrap_or_else(PoisonError::into_inner);
        line.sleepers -= 1;
        line
    }

    /// Nothing under the lock can leave it half changed, so a poisoned one is still good.
    fn lock(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_batch_ends_at_its_bounds_and_gives_room_back() {
        let queue = Queue::new(10);
        for item in 0..5 {
            queue.push(item, 2).await.unwrap();
        }
        assert_eq!(queue.room.available_permits(), 0);
        let mut batch = Vec::new();
        assert!(queue.pop_many((100, 5), 1, Duration::ZERO, Duration::MAX, &mut batch));
        assert_eq!(batch, [0, 1]);
        batch.clear();
        assert!(queue.pop_many((1, 100), 1, Duration::ZERO, Duration::MAX, &mut batch));
        assert_eq!(batch, [2]);
        assert_eq!(queue.pop(), Some(3));
        assert_eq!(queue.room.available_permits(), 8);
    }

    #[tokio::test]
    async fn a_closed_queue_gives_what_it_has_and_takes_nothing() {
        let queue = Queue::new(10);
        queue.push(1, 1).await.unwrap();
        queue.close();
        assert_eq!(queue.push(2, 1).await, Err(MeshError::StoreClosed));
        assert_eq!(queue.push_blocking(2), Err(MeshError::StoreClosed));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.pop(), None);
        assert!(!queue.pop_many((1, 1), 9, Duration::MAX, Duration::MAX, &mut Vec::new()));
    }

    #[test]
    fn one_item_larger_than_the_bound_is_still_taken() {
        let queue = Queue::new(10);
        queue.push_blocking(1).unwrap();
        queue.lock().items[0].1 = 9;
        let mut batch = Vec::new();
        assert!(queue.pop_many((10, 1), 1, Duration::ZERO, Duration::MAX, &mut batch));
        assert_eq!(batch, [1]);
    }
}
