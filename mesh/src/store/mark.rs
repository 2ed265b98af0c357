//! The mark beside the keys: which store was last seen here, and how far it was.
//!
//! A store that is not the file the mark names, or not as far, was replaced or put back from a copy; it goes on in a
//! new epoch, so that old cursors and grants are refused instead of meaning something else.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::MeshError;

/// Fits one sector, so that it is rewritten in place: an old or a new mark is found after any crash, never a mixture.
const MARK_BYTES: usize = 256;

/// What the mark says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seen {
    pub(super) epoch: String,
    pub(super) sequence: u64,
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Seen {
    /// Whether a store with this epoch, newest sequence and file is the one seen, gone on or not.
    pub(super) fn is_of(&self, epoch: &str, sequence: u64, file: (u64, u64)) -> bool {
        self.epoch == epoch && self.sequence <= sequence && (self.device, self.inode) == file
    }
}

/// Device and inode of a file.
pub(super) fn identity(path: &Path) -> Result<(u64, u64), MeshError> {
    let about =
        std::fs::metadata(path).map_err(|error| MeshError::io("looking at", path, &error))?;
    Ok((about.dev(), about.ino()))
}

/// Where the store lies. SQLite would go on writing a file that was deleted or cut, and acknowledge what nobody can find again.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    log_path: PathBuf,
    /// Device and inode.
    pub(super) file: (u64, u64),
    /// The write-ahead log as the last commit left it, from which it only grows or is written anew in place.
    log: Option<Look>,
}

/// What one look at a file tells.
#[derive(Debug, Clone, Copy)]
struct Look {
    file: (u64, u64),
    bytes: u64,
}

impl Look {
    fn at(path: &Path) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        Some(Look {
            file: (about.dev(), about.ino()),
            bytes: about.len(),
        })
    }
}

impl Place {
    pub(super) fn new(path: &Path, file: (u64, u64)) -> Self {
        let mut log_path = path.as_os_str().to_owned();
        log_path.push("-wal");
        Self {
            path: path.to_owned(),
            log_path: log_path.into(),
            file,
            log: None,
        }
    }

    /// Refuses when the store is not as the last commit left it. Costs two system calls, of about a microsecond each.
    pub(super) fn check(&self) -> Result<(), MeshError> {
        let is_whole =
            Look::at(&self.path).is_some_and(|now| now.file == self.file && now.bytes > 0);
        let has_log = self.log.is_none_or(|before| {
            Look::at(&self.log_path)
                .is_some_and(|now| now.file == before.file && now.bytes >= before.bytes)
        });
        if is_whole && has_log {
            return Ok(());
        }
        Err(MeshError::StoreGone {
            path: self.path.clone(),
        })
    }

    /// As [`Place::check`], after a commit and before anybody hears of it; remembers the log as it is now.
    pub(super) fn check_committed(&mut self) -> Result<(), MeshError> {
        self.check()?;
        self.log = Look::at(&self.log_path);
        Ok(())
    }

    /// Forgets the log, which another connection may have made anew.
    pub(super) fn forget_log(&mut self) {
        self.log = None;
    }
}

/// The open mark. Its lock keeps a second process from writing the same store.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    path: PathBuf,
}

impl Mark {
    /// Opens and locks the mark, and tells what it says; nothing when it is new or unreadable.
    pub(super) fn open(path: &Path) -> Result<(Self, Option<Seen>), MeshError> {
        if let Some(parent) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(|error| MeshError::io("making the folder", parent, &error))?;
        }
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path);
        let mut file = opened.map_err(|error| MeshError::io("opening the mark", path, &error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(MeshError::StoreLocked {
                    path: path.to_owned(),
                });
            }
            Err(errno) => return Err(MeshError::io("locking the mark", path, &errno.into())),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .map_err(|error| MeshError::io("reading the mark", path, &error))?;
        let seen = serde_json::from_slice(&text).ok();
        Ok((
            Self {
                file,
                path: path.to_owned(),
            },
            seen,
        ))
    }

    /// Rewrites the mark, unsynced: after a power loss it may be behind the store, which is harmless, but since it is
    /// written after the commit it can never be ahead.
    pub(super) fn write(&self, seen: &Seen) -> Result<(), MeshError> {
        let mut text = serde_json::to_vec(seen).map_err(|error| MeshError::StoreFailed {
            detail: error.to_string(),
        })?;
        text.resize(MARK_BYTES, b' ');
        self.file
            .write_all_at(&text, 0)
            .map_err(|error| MeshError::io("writing the mark", &self.path, &error))
    }

    /// Puts the mark on stable storage.
    pub(super) fn sync(&self) -> Result<(), MeshError> {
        self.file
            .sync_all()
            .map_err(|error| MeshError::io("syncing the mark", &self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(sequence: u64) -> Seen {
        Seen {
            epoch: "abc".to_owned(),
            sequence,
            device: 1,
            inode: 2,
        }
    }

    #[test]
    fn a_store_is_the_one_seen_when_it_is_the_same_file_and_as_far() {
        assert!(seen(5).is_of("abc", 5, (1, 2)));
        assert!(seen(5).is_of("abc", 6, (1, 2)));
        assert!(!seen(5).is_of("abc", 4, (1, 2)), "an older copy");
        assert!(!seen(5).is_of("abd", 5, (1, 2)), "another store");
        assert!(!seen(5).is_of("abc", 5, (1, 3)), "a copied file");
    }

    #[test]
    fn a_mark_is_found_again_and_locks_out_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/mark");
        let (mark, before) = Mark::open(&path).unwrap();
        assert_eq!(before, None);
        mark.write(&seen(u64::MAX)).unwrap();
        mark.write(&seen(7)).unwrap();
        assert!(matches!(
            Mark::open(&path),
            Err(MeshError::StoreLocked { .. })
        ));
        drop(mark);
        assert_eq!(Mark::open(&path).unwrap().1, Some(seen(7)));
        std::fs::write(&path, "{\"epoch\":").unwrap();
        assert_eq!(Mark::open(&path).unwrap().1, None);
    }
}
