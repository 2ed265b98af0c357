//! Places where a test may ask for a panic. Without a setting they cost one look at an empty list.

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
        let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = points.get_mut(name).filter(|left| **left > 0) {
            *left -= 1;
            drop(points);
            panic!("fail point {name}");
        }
    }
}
