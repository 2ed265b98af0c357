//! Places where a test may ask for a panic, or for the node's death. Without a setting they cost one look at an empty list.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Names of places and how often each panics.
#[derive(Debug, Clone, Default)]
pub struct FailPoints(Arc<Mutex<HashMap<String, u32>>>);

impl FailPoints {
    /// Reads `name=count,name=count`; what is no such pair is ignored.
    pub fn parse(text: &str) -> Self {
        let points = text
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .filter_map(|(name, count)| Some((name.trim().to_owned(), count.trim().parse().ok()?)))
            .collect();
        FailPoints(Arc::new(Mutex::new(points)))
    }

    /// Panics if `name` is still to fail.
    ///
    /// # Panics
    /// When a test asked for it.
    pub fn hit(&self, name: &str) {
        assert!(!self.is_due(name), "fail point {name}");
    }

    /// Ends this process at once, as `kill -9` does, if `name` is still to fail.
    pub fn die(&self, name: &str) {
        if self.is_due(name) {
            // Without a destructor, an exit handler or a core.
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
    }

    fn is_due(&self, name: &str) -> bool {
        let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match points.get_mut(name).filter(|left| **left > 0) {
            Some(left) => {
                *left -= 1;
                true
            }
            None => false,
        }
    }
}
