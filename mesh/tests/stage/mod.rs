//! The stage of the store's tests: a home in a temporary folder.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use weft_mesh::{Draft, Kind, Query, Store, StoreOptions};

/// The clock of these tests.
pub(crate) const NOW_MS: u64 = 1_800_000_000_000;

pub(crate) struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("weft.db")
    }

    pub(crate) fn mark(&self) -> PathBuf {
        self.folder.path().join("keys/mark")
    }

    pub(crate) fn options(&self) -> StoreOptions {
        let mut options = StoreOptions::new(self.path(), self.mark());
        options.now = || NOW_MS;
        options.free_floor = Some(0);
        options
    }

    pub(crate) fn open(&self) -> Store {
        Store::open(self.options()).unwrap()
    }
}

pub(crate) fn draft(topic: &str) -> Draft {
    Draft::new(topic.parse().unwrap(), Kind::default(), "session:cli")
}

/// A draft with something changed.
pub(crate) fn changed(mut draft: Draft, change: impl FnOnce(&mut Draft)) -> Draft {
    change(&mut draft);
    draft
}

pub(crate) fn query(patterns: &[&str], after: u64) -> Query {
    Query::new(
        patterns
            .iter()
            .map(|pattern| pattern.parse().unwrap())
            .collect(),
        after,
    )
}

/// Waits for a condition that other threads bring about.
pub(crate) async fn eventually(condition: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "it never came to pass"
        );
        tokio::task::yield_now().await;
    }
}
