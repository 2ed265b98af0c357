//! The floor of free disk space, below which nothing is appended.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::MeshError;
use crate::limits::{FREE_FLOOR_BYTES, FREE_FLOOR_PERCENT, FREE_LOOK_MS};

/// Looks at the free space, but not for every commit.
#[derive(Debug)]
pub(super) struct Floor {
    folder: PathBuf,
    wanted: Option<u64>,
    looked: Option<(Instant, Option<MeshError>)>,
}

impl Floor {
    /// `wanted`: bytes that stay free, none for the default.
    pub(super) fn new(store: &Path, wanted: Option<u64>) -> Self {
        let folder = store
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        Self {
            folder: folder.to_owned(),
            wanted,
            looked: None,
        }
    }

    /// The refusal of all appends, if the disk is nearly full.
    pub(super) fn refusal(&mut self) -> Option<MeshError> {
        if self.wanted == Some(0) {
            return None;
        }
        if let Some((at, found)) = &self.looked
            && at.elapsed() < Duration::from_millis(FREE_LOOK_MS)
        {
            return found.clone();
        }
        let found = self.look();
        self.looked = Some((Instant::now(), found.clone()));
        found
    }

    /// The refusal after a write met the end of the disk.
    pub(super) fn met(&self) -> MeshError {
        let (free, floor) = self.measure().unwrap_or_default();
        MeshError::NoSpace { free, floor }
    }

    fn look(&self) -> Option<MeshError> {
        // Where the file system does not tell, the write itself will.
        let (free, floor) = self.measure()?;
        (free < floor).then_some(MeshError::NoSpace { free, floor })
    }

    fn measure(&self) -> Option<(u64, u64)> {
        let about = rustix::fs::statvfs(&self.folder).ok()?;
        let total = about.f_blocks.saturating_mul(about.f_frsize);
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        Some((free, self.wanted.unwrap_or_else(|| default_floor(total))))
    }
}

fn default_floor(total: u64) -> u64 {
    FREE_FLOOR_BYTES.min(total / 100 * FREE_FLOOR_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_floor_is_small_on_small_disks() {
        assert_eq!(default_floor(1 << 40), 1 << 30);
        assert_eq!(default_floor(8_000_000), 160_000);
    }

    #[test]
    fn a_floor_of_none_never_refuses_and_an_unreachable_one_always() {
        let store = Path::new("/tmp/store");
        assert_eq!(Floor::new(store, Some(0)).refusal(), None);
        let mut unreachable = Floor::new(store, Some(u64::MAX));
        for _ in 0..2 {
            assert_eq!(unreachable.refusal().unwrap().slug(), "no-space");
        }
    }
}
