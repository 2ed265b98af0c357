//! How much may still be written: free space above the floor, looked at seldom while there is plenty.

use std::fs::File;

use crate::limits::shim::{SPACE_LOOK_BYTES_MAX, SPACE_LOOK_BYTES_MIN, SPACE_RETRY_MS};

/// The free space as one writer sees it.
#[derive(Debug)]
pub(crate) struct Space {
    floor: u64,
    /// Bytes that may be written before the next look.
    allowance: u64,
    /// While set, everything is dropped until then.
    full_until: Option<u64>,
}

impl Space {
    pub(crate) const fn new(floor: u64) -> Self {
        Self {
            floor,
            allowance: 0,
            full_until: None,
        }
    }

    /// Whether these bytes may be written now.
    pub(crate) fn admits(&mut self, file: &File, bytes: u64, now: u64) -> bool {
        if self.full_until.is_some_and(|until| now < until) {
            return false;
        }
        if self.full_until.is_none() && bytes <= self.allowance {
            self.allowance -= bytes;
            return true;
        }
        let Some(allowance) = allowance(free_bytes(file), self.floor, bytes) else {
            self.full(now);
            return false;
        };
        self.allowance = allowance;
        self.full_until = None;
        true
    }

    /// The system refused a write for want of space.
    pub(crate) fn full(&mut self, now: u64) {
        self.full_until = Some(now + SPACE_RETRY_MS);
        self.allowance = 0;
    }
}

/// What may be written after `bytes` before the next look; `None` if not even these. Others write as well,
/// so that only a part of what is free is counted on.
fn allowance(free: u64, floor: u64, bytes: u64) -> Option<u64> {
    let above = free.checked_sub(floor)?.checked_sub(bytes)?;
    Some(
        (above / 4)
            .clamp(SPACE_LOOK_BYTES_MIN, SPACE_LOOK_BYTES_MAX)
            .min(above),
    )
}

/// A file system that does not say how much is free is taken for a large one.
fn free_bytes(file: &File) -> u64 {
    rustix::fs::fstatvfs(file).map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_never_counted_on() {
        assert_eq!(allowance(1000, 900, 200), None);
        assert_eq!(allowance(1000, 2000, 1), None);
        assert_eq!(allowance(1000, 900, 40), Some(60));
        assert_eq!(allowance(u64::MAX, 0, 1), Some(SPACE_LOOK_BYTES_MAX));
    }
}
