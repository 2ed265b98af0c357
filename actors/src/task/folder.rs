//! A task's folder: the names in it, and every write that must be whole or absent.
//!
//! A folder is held by descriptor. Its files and its socket are reached through that descriptor, so that
//! a long path to the home stands in nobody's way, and a renamed home stays the same one.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use serde::{Serialize, de::DeserializeOwned};

use super::wire::{Receipt, Started};
use crate::limits::shim::RECORD_BYTES_MAX;
use crate::sys;

/// The folders of all tasks, inside the home.
pub const TASKS: &str = "tasks";
/// Argv, cwd, names of the environment, lease and so on, as the node wrote them.
pub const SPEC: &str = "spec.json";
/// A shell line that is too long for one argument, as the node wrote it.
pub const SCRIPT: &str = "script";
/// Held by the living shim.
pub const LOCK: &str = "shim.lock";
/// The control socket.
pub const SOCKET: &str = "shim.sock";
/// Pid and birth of the main process.
pub const STARTED: &str = "started";
/// Which bytes of the streams are kept.
pub const KEPT: &str = "kept";
/// What happened to the task, one JSON object a line.
pub const EVENTS: &str = "events.jsonl";
/// How it ended.
pub const RECEIPT: &str = "receipt.json";
/// A mark that the task is lost: a shim that comes late starts nothing.
pub const LOST: &str = "lost";
/// A mark that the end was announced.
pub const ANNOUNCED: &str = "announced";

/// The path of a task's folder.
pub fn path_of(home: &Path, id: &str) -> PathBuf {
    home.join(TASKS).join(id)
}

/// An open task folder.
#[derive(Debug)]
pub struct Folder {
    dir: OwnedFd,
}

/// What is known of a task by its folder alone.
#[derive(Debug)]
pub enum Probe {
    /// A shim holds the lock.
    Alive,
    /// It ended, and this is how.
    Ended(Box<Receipt>),
    /// The lock is free and, read after taking it, there is no receipt. Without `started` the command
    /// never ran. The folder is marked, so that no shim starts it from now on.
    Lost(Option<Started>),
    /// The lock is free and there is something in the receipt's place that is none. How the task ended cannot be
    /// known any more.
    Damaged(Option<Started>),
}

impl Folder {
    /// Makes a new folder, mode 0700. Fails if the name is taken.
    pub fn create(path: &Path) -> io::Result<Self> {
        rustix::fs::mkdir(path, Mode::RWXU)?;
        Self::open(path)
    }

    /// Opens an existing folder; a symbolic link in its place is refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { dir })
    }

    /// The folder's descriptor.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// A path to a name in this folder that is short whatever the home's path is. It holds in this
    /// process alone, for as long as this folder is open.
    pub fn short_path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }

    /// Opens a file of the folder for reading, never through a symbolic link.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        // NONBLOCK: a fifo put in the file's place must not hang the reader.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(rustix::fs::openat(&self.dir, name, flags, Mode::empty())?.into())
    }

    /// Whether there is a file of this name.
    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Removes a file; a missing one is fine.
    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a JSON record; `None` where there is no such file.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let file = match self.open_file(name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > RECORD_BYTES_MAX {
            return Err(bad_record(name, "it is longer than any record of a task"));
        }
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| bad_record(name, &error.to_string()))
    }

    /// Writes a record so that it is there whole or not at all, mode 0600. It survives the death of this
    /// process at once, and loss of power after [`Folder::sync`].
    pub fn write_json<T: Serialize>(&self, name: &str, record: &T) -> io::Result<()> {
        let text = serde_json::to_vec(record)?;
        let temporary = format!("{name}.new");
        let mut file = self.create_file(&temporary)?;
        let written = file.write_all(&text).and_then(|()| {
            rustix::fs::renameat(&self.dir, &temporary, &self.dir, name).map_err(Into::into)
        });
        if written.is_err() {
            self.remove_file(&temporary)?;
        }
        written
    }

    /// The receipt, if the task has ended.
    pub fn receipt(&self) -> io::Result<Option<Receipt>> {
        self.read_json(RECEIPT)
    }

    /// What the shim wrote when the command started.
    pub fn started(&self) -> io::Result<Option<Started>> {
        self.read_json(STARTED)
    }

    /// Device and inode, which a copy of this folder does not share.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstat(&self.dir)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Whether the processes that `started` tells of were started in this folder, and not in the one it was copied from.
    pub fn is_where_started(&self, started: &Started) -> bool {
        started
            .folder
            .is_none_or(|folder| self.identity().is_ok_and(|own| own == folder))
    }

    /// Marks that the task's end was announced. A second mark changes nothing.
    pub fn mark_announced(&self) -> io::Result<()> {
        self.create_file(ANNOUNCED).map(drop)
    }

    /// Whether the end was announced.
    pub fn is_announced(&self) -> bool {
        self.has(ANNOUNCED)
    }

    /// Takes the shim's lock without waiting; `None` while somebody holds it. It is free again when the
    /// file is dropped.
    pub fn try_lock(&self) -> io::Result<Option<File>> {
        sys::try_lock(&self.dir, Path::new(LOCK))
    }

    /// Tells what became of the task. Not to be asked while the same node is launching a shim in this
    /// folder: the lock is taken for the moment of the look, and a shim that meets it says `busy`.
    pub fn probe(&self) -> io::Result<Probe> {
        if let Ok(Some(receipt)) = self.receipt() {
            return Ok(Probe::Ended(Box::new(receipt)));
        }
        let Some(_lock) = self.try_lock()? else {
            return Ok(Probe::Alive);
        };
        let started = match self.started() {
            Err(error) if is_damage(&error) => Ok(None),
            other => other,
        };
        // Invariant: the receipt is read again under the lock, since the shim may have ended in between, and
        // the mark is set under it, since another may be about to begin.
        match self.receipt() {
            Ok(Some(receipt)) => return Ok(Probe::Ended(Box::new(receipt))),
            Ok(None) => {}
            Err(error) if is_damage(&error) => return Ok(Probe::Damaged(started?)),
            Err(error) => return Err(error),
        }
        self.mark_lost()?;
        Ok(Probe::Lost(started?))
    }

    /// Marks that the task is lost. A second mark changes nothing.
    pub fn mark_lost(&self) -> io::Result<()> {
        self.create_file(LOST).map(drop)
    }

    /// Connects to the living shim's control socket.
    pub fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.short_path(SOCKET))
    }

    /// Makes the names in this folder durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    /// Removes a task's folder with all that is in it.
    pub fn delete(path: &Path) -> io::Result<()> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes or empties a file, mode 0600.
    pub(crate) fn create_file(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Takes disk space now for a record that must be written later, even when the disk is full then.
    pub(crate) fn reserve(&self, name: &'static str, bytes: u64) -> io::Result<Room> {
        let temporary = format!("{name}.room");
        let file = self.create_file(&temporary)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // Blanks hold the place where the file system cannot allocate by itself.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                (&file).write_all(&vec![b' '; bytes as usize])?;
            }
            other => other?,
        }
        Ok(Room {
            file,
            name,
            temporary,
        })
    }
}

/// Disk space taken for one record.
#[derive(Debug)]
pub(crate) struct Room {
    file: File,
    name: &'static str,
    temporary: String,
}

impl Room {
    /// Writes the record and gives it its name. Durable ones are on stable storage, name included, when
    /// this returns.
    pub(crate) fn settle(&self, folder: &Folder, record: &[u8], durable: bool) -> io::Result<()> {
        use std::os::unix::fs::FileExt as _;
        self.file.write_all_at(record, 0)?;
        self.file.set_len(record.len() as u64)?;
        if durable {
            self.file.sync_all()?;
        }
        rustix::fs::renameat(&folder.dir, &self.temporary, &folder.dir, self.name)?;
        if durable {
            folder.sync()?;
        }
        Ok(())
    }
}

/// Whether a file is there and is not what it should be, as opposed to a system that cannot read it just now.
fn is_damage(error: &io::Error) -> bool {
    let not_a_file = [
        rustix::io::Errno::LOOP,
        rustix::io::Errno::ISDIR,
        rustix::io::Errno::NXIO,
    ];
    error.kind() == io::ErrorKind::InvalidData
        || not_a_file
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn bad_record(name: &str, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the task's file {name} cannot be read: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::wire::Started;

    fn started() -> Started {
        Started {
            pid: 7,
            birth: 9,
            unique: None,
            boot_id: "b".into(),
            pid_ns: 1,
            started_at: 2,
            shim: 6,
            folder: None,
        }
    }

    fn folder() -> (tempfile::TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::create(&root.path().join("t-1")).unwrap();
        (root, folder)
    }

    #[test]
    fn a_record_is_whole_and_leaves_no_temporary_file() {
        let (root, folder) = folder();
        folder.write_json(STARTED, &started()).unwrap();
        assert_eq!(folder.started().unwrap(), Some(started()));
        assert_eq!(
            std::fs::read_dir(root.path().join("t-1")).unwrap().count(),
            1
        );
    }

    #[test]
    fn a_reserved_record_shows_only_when_settled() {
        let (_root, folder) = folder();
        let room = folder.reserve(STARTED, 4096).unwrap();
        assert!(folder.started().unwrap().is_none());
        let text = serde_json::to_vec(&started()).unwrap();
        room.settle(&folder, &text, true).unwrap();
        assert_eq!(folder.started().unwrap(), Some(started()));
    }

    #[test]
    fn a_folder_tells_alive_from_lost() {
        let (root, folder) = folder();
        let other = Folder::open(&root.path().join("t-1")).unwrap();
        let lock = other.try_lock().unwrap().unwrap();
        assert!(matches!(folder.probe().unwrap(), Probe::Alive));
        drop(lock);
        assert!(matches!(folder.probe().unwrap(), Probe::Lost(None)));
        folder.write_json(STARTED, &started()).unwrap();
        assert!(matches!(folder.probe().unwrap(), Probe::Lost(Some(_))));
    }

    #[test]
    fn a_link_in_the_place_of_a_record_is_not_followed() {
        let (root, folder) = folder();
        std::fs::write(root.path().join("elsewhere"), "{}").unwrap();
        std::os::unix::fs::symlink(
            root.path().join("elsewhere"),
            root.path().join("t-1/started"),
        )
        .unwrap();
        assert!(folder.started().is_err());
    }
}
