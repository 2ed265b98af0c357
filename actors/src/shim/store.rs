//! One stream's file: every byte at its true offset, a window of them kept.
//!
//! The file may be cut, removed, renamed or replaced by others, and the disk may be full. None of it reaches
//! the task: what cannot be kept is named in `kept` first and then dropped.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, Stat};

use super::space::Space;
use crate::limits::shim::{BLOCK_BYTES, KEEP_SLACK_BYTES_MAX, KEEP_SLACK_PART, LINE_LOOK_BYTES};
use crate::task::folder::{Folder, KEPT};
use crate::task::kept::Ranges;
use crate::task::wire::StreamName;

/// One stream's file, and what is kept of it.
#[derive(Debug)]
pub(crate) struct Store {
    name: StreamName,
    file: File,
    identity: (u64, u64),
    /// Bytes since launch.
    size: u64,
    ranges: Ranges,
    /// Blocks below are punched.
    punched: u64,
    keep: u64,
    space: Space,
    can_punch: bool,
}

/// The file `kept`, which all streams of a task share.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: File,
}

impl KeptFile {
    pub(crate) fn create(folder: &Folder) -> io::Result<Self> {
        let file = folder.create_file(KEPT)?;
        // Written whole once, so that a later write takes no new space.
        for stream in [StreamName::Output, StreamName::Stderr] {
            Ranges::default().write(&file, stream)?;
        }
        Ok(Self { file })
    }

    fn write(&mut self, folder: &Folder, stream: StreamName, ranges: Ranges) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            *self = Self::create(folder)?;
        }
        ranges.write(&self.file, stream)
    }
}

impl Store {
    pub(crate) fn create(
        folder: &Folder,
        name: StreamName,
        keep: u64,
        floor: u64,
    ) -> io::Result<Self> {
        let file = folder.create_file(name.as_str())?;
        Ok(Self {
            name,
            identity: identity_of(&file)?,
            file,
            size: 0,
            ranges: Ranges::default(),
            punched: 0,
            keep,
            space: Space::new(floor),
            can_punch: true,
        })
    }

    /// Bytes since launch.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next bytes of the stream. What cannot be written is dropped and disclosed.
    pub(crate) fn append(&mut self, folder: &Folder, kept: &mut KeptFile, bytes: &[u8], now: u64) {
        let is_whole = self.look_outside(folder, kept).is_ok();
        let mut written = 0;
        if is_whole && self.space.admits(&self.file, bytes.len() as u64, now) {
            while written < bytes.len() {
                match self
                    .file
                    .write_at(&bytes[written..], self.size + written as u64)
                {
                    Ok(0) => break,
                    Ok(more) => written += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        self.space.full(now);
                        break;
                    }
                }
            }
        }
        self.size += written as u64;
        if written < bytes.len() {
            self.drop_bytes(folder, kept, (bytes.len() - written) as u64);
        }
        self.release_old(folder, kept);
    }

    /// Leaves the file as a reader after the end wants it: as long as the stream was.
    pub(crate) fn settle(&mut self, folder: &Folder, kept: &mut KeptFile) {
        let is_whole = self.look_outside(folder, kept).is_ok();
        if is_whole && kept.write(folder, self.name, self.ranges).is_ok() {
            // A reader that knows the size from the receipt discloses what a refusal here leaves out.
            let _ = self.file.set_len(self.size);
        }
    }

    /// Sees whether the file was cut or is another one by now, and gives up what is gone.
    fn look_outside(&mut self, folder: &Folder, kept: &mut KeptFile) -> io::Result<()> {
        match rustix::fs::statat(folder.dir(), self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if self.is_ours(&stat) => {
                let length = stat.st_size as u64;
                if length < self.size {
                    self.give_up_all(folder, kept)?;
                } else if length > self.size {
                    // Somebody wrote behind the end: not the task's words.
                    self.file.set_len(self.size)?;
                }
                Ok(())
            }
            _ => self.replace(folder, kept),
        }
    }

    fn is_ours(&self, stat: &Stat) -> bool {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && (stat.st_dev, stat.st_ino) == self.identity
    }

    /// Invariant: the mark is moved before a byte is written above a hole, and before a file is new.
    fn give_up_all(&mut self, folder: &Folder, kept: &mut KeptFile) -> io::Result<()> {
        self.ranges.give_up_below(self.size);
        self.punched = self.size - self.size % BLOCK_BYTES;
        kept.write(folder, self.name, self.ranges)
    }

    /// Begins a new file in the place of one that was removed, renamed or replaced. What stands there now,
    /// a link for instance, is not followed.
    fn replace(&mut self, folder: &Folder, kept: &mut KeptFile) -> io::Result<()> {
        self.give_up_all(folder, kept)?;
        folder.remove_file(self.name.as_str())?;
        self.take(create_new(folder, self.name.as_str())?)
    }

    fn take(&mut self, file: OwnedFd) -> io::Result<()> {
        self.file = file.into();
        self.identity = identity_of(&self.file)?;
        Ok(())
    }

    /// Counts bytes that are not kept. The file grows all the same, by a hole.
    fn drop_bytes(&mut self, folder: &Folder, kept: &mut KeptFile, bytes: u64) {
        let before = self.ranges;
        self.ranges.give_up_end(self.size, self.size + bytes);
        self.size += bytes;
        if kept.write(folder, self.name, self.ranges).is_err() {
            // The file stays short, so that nothing reads as kept; the next drop says it again.
            return;
        }
        let _ = self.file.set_len(self.size);
        if self.ranges.mark > before.mark {
            self.punch(self.ranges.mark);
        }
        if self.ranges.gap_start == before.gap_start && before.gap_end > 0 {
            self.punch_range(before.gap_end, self.ranges.gap_end);
        }
    }

    /// Keeps the window: names what is old first, and then punches it out in whole blocks.
    fn release_old(&mut self, folder: &Folder, kept: &mut KeptFile) {
        let slack = if self.can_punch {
            (self.keep / KEEP_SLACK_PART).min(KEEP_SLACK_BYTES_MAX)
        } else {
            self.keep
        };
        if self.size - self.ranges.mark <= self.keep.saturating_add(slack) {
            return;
        }
        self.ranges.give_up_below(self.size - self.keep);
        if kept.write(folder, self.name, self.ranges).is_err() {
            return;
        }
        if self.can_punch {
            self.punch(self.ranges.mark);
        } else {
            // A refusal leaves the old file, which only holds more than it must.
            let _ = self.move_window(folder);
        }
    }

    fn punch(&mut self, below: u64) {
        let below = below - below % BLOCK_BYTES;
        if below > self.punched {
            self.punch_range(self.punched, below);
            self.punched = below;
        }
    }

    fn punch_range(&mut self, from: u64, to: u64) {
        let (from, to) = (from.next_multiple_of(BLOCK_BYTES), to - to % BLOCK_BYTES);
        if from >= to {
            return;
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) =
            rustix::fs::fallocate(&self.file, mode, from, to - from)
        {
            self.can_punch = false;
        }
    }

    /// Where holes cannot be punched they can mostly be left: copies the window into a new sparse file,
    /// once each time as much was written as is kept.
    fn move_window(&mut self, folder: &Folder) -> io::Result<()> {
        let temporary = format!("{}.new", self.name);
        folder.remove_file(&temporary)?;
        let fresh: File = create_new(folder, &temporary)?.into();
        let mut block = vec![0; LINE_LOOK_BYTES];
        let mut at = self.ranges.mark;
        while at < self.size {
            let wanted = (block.len() as u64).min(self.size - at) as usize;
            let got = self.file.read_at(&mut block[..wanted], at)?;
            if got == 0 {
                break;
            }
            fresh.write_all_at(&block[..got], at)?;
            at += got as u64;
        }
        fresh.set_len(self.size)?;
        rustix::fs::renameat(folder.dir(), &temporary, folder.dir(), self.name.as_str())?;
        self.take(fresh.into())
    }
}

fn create_new(folder: &Folder, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(
        folder.dir(),
        name,
        flags,
        Mode::RUSR | Mode::WUSR,
    )?)
}

fn identity_of(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
