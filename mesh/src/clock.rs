//! The system's clock, the default of [`crate::StoreOptions`].

use std::time::{SystemTime, UNIX_EPOCH};

/// Epoch milliseconds; 0 where the clock stands before 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
