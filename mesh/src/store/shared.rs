//! What the threads of a store and its handles share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::MeshError;
use crate::wake::Registry;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) epoch: Box<str>,
    /// The newest sequence committed.
    pub(super) newest: AtomicU64,
    pub(super) registry: Arc<Registry>,
    has_trouble: AtomicBool,
    trouble: Mutex<Option<MeshError>>,
}

impl Shared {
    pub(super) fn new(epoch: Box<str>, newest: u64) -> Self {
        Self {
            epoch,
            newest: AtomicU64::new(newest),
            registry: Arc::default(),
            has_trouble: AtomicBool::new(false),
            trouble: Mutex::new(None),
        }
    }

    /// Notes why the last commit failed, or that it did not; the latter is nearly free when nothing was noted.
    pub(super) fn set_trouble(&self, trouble: Option<MeshError>) {
        let has_trouble = trouble.is_some();
        if self.has_trouble.swap(has_trouble, Ordering::AcqRel) || has_trouble {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        }
    }

    pub(super) fn trouble(&self) -> Option<MeshError> {
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
