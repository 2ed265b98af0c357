//! The way from a working directory to the nearest home.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, makedev, statx};

use super::FOLDER;

/// What the search must know of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Its device.
    pub(super) device: u64,
    /// Its inode.
    pub(super) inode: u64,
    /// Its owner.
    pub(super) owner: u32,
    /// Whether something is mounted here.
    pub(super) mount: bool,
}

impl Place {
    fn of(path: &Path) -> Option<Place> {
        let facts = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
        Some(Place {
            device: makedev(facts.stx_dev_major, facts.stx_dev_minor),
            inode: facts.stx_ino,
            owner: facts.stx_uid,
            mount: facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        })
    }

    fn is(&self, other: &Place) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Whether the search goes on from `place` to `parent`. It never leaves the caller's home directory or a file
/// system, and never looks into what another user could have prepared.
pub(super) fn goes_on(place: &Place, parent: &Place, user_home: Option<&Place>, uid: u32) -> bool {
    !place.mount
        && place.device == parent.device
        && parent.owner == uid
        && !user_home.is_some_and(|home| home.is(place))
}

/// The nearest `.weft` at or above `cwd`, whatever it is: whether it may be used is decided elsewhere.
pub(super) fn nearest(cwd: &Path, user_home: Option<&Path>) -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let user_home = user_home.and_then(Place::of);
    let mut path = cwd;
    loop {
        let candidate = path.join(FOLDER);
        if candidate.symlink_metadata().is_ok() {
            return Some(candidate);
        }
        let parent = path.parent()?;
        let (here, above) = (Place::of(path)?, Place::of(parent)?);
        if !goes_on(&here, &above, user_home.as_ref(), uid) {
            return None;
        }
        path = parent;
    }
}
