//! One folder on disk that is, or is to become, a home.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weft_actors::home::Home;

use super::HomeError;
use super::registry::{Entry, Registry};
use crate::limits::{FORMAT_BYTES_MAX, HOME_ID_CHARS_MAX, ID_BYTES};

/// The permissions of a home.
pub(super) const MODE: u32 = 0o700;

/// What tells a folder from its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The device it lies on.
    pub(super) device: u64,
    /// Its inode.
    pub(super) inode: u64,
}

/// Whether a home was found in a project or named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// In a project: version control must not see it.
    Project,
    /// Wherever a person wants it.
    Named,
}

/// A folder, held open so that what is checked is what is read.
pub(super) struct Folder {
    path: PathBuf,
    descriptor: OwnedFd,
    stat: rustix::fs::Stat,
}

impl Folder {
    /// Opens the folder itself; none where there is nothing, a symbolic link or no folder.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, HomeError> {
        // O_PATH needs no permission, so that a foreign folder can be told from a broken one.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(HomeError::io(path, error)),
        };
        let stat = rustix::fs::fstat(&descriptor).map_err(|error| HomeError::io(path, error))?;
        Ok(Some(Folder {
            path: path.to_owned(),
            descriptor,
            stat,
        }))
    }

    pub(super) fn owner(&self) -> u32 {
        self.stat.st_uid
    }

    pub(super) fn is_ours(&self) -> bool {
        self.stat.st_uid == rustix::process::geteuid().as_raw()
    }

    pub(super) fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    #[allow(
        clippy::unnecessary_cast,
        reason = "the width of these numbers differs between platforms"
    )]
    pub(super) fn mark(&self) -> Mark {
        Mark {
            device: self.stat.st_dev as u64,
            inode: self.stat.st_ino as u64,
        }
    }

    /// The home's id; none where there is no `format.json`.
    pub(super) fn id(&self) -> Result<Option<String>, HomeError> {
        let path = self.path.join("format.json");
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.descriptor, "format.json", flags, Mode::empty()) {
            Ok(file) => fs::File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(HomeError::io(&path, error)),
        };
        let broken = |reason: String| HomeError::Broken {
            path: path.clone(),
            reason,
        };
        if !file
            .metadata()
            .map_err(|error| HomeError::io(&path, error))?
            .is_file()
        {
            return Err(broken("is no file".to_owned()));
        }
        let mut text = Vec::new();
        file.take(FORMAT_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(|error| HomeError::io(&path, error))?;
        match parse_format(&text).map_err(broken)? {
            Format::Ours(id) => Ok(Some(id)),
            Format::Newer(format) => Err(HomeError::Newer {
                path: self.path.clone(),
                format,
            }),
        }
    }
}

/// What a `format.json` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A home of the format we write, and its id.
    Ours(String),
    /// A home of a later format; nothing else in the file can be relied on.
    Newer(u64),
}

/// Reads a `format.json`. The id becomes the name of a folder, so it is checked as one.
pub(super) fn parse_format(text: &[u8]) -> Result<Format, String> {
    let document: Value =
        serde_json::from_slice(text).map_err(|error| format!("is no JSON ({error})"))?;
    let format = document["format"]
        .as_u64()
        .ok_or("has no number `format`")?;
    if format > u64::from(Home::FORMAT) {
        return Ok(Format::Newer(format));
    }
    if format != u64::from(Home::FORMAT) {
        return Err(format!("has format {format}, which no weft wrote"));
    }
    let id = document["home"].as_str().ok_or("has no text `home`")?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if id.is_empty() || id.len() > HOME_ID_CHARS_MAX || !id.bytes().all(plain) {
        return Err(format!(
            "`home` takes 1 to {HOME_ID_CHARS_MAX} characters of a-z 0-9 -"
        ));
    }
    Ok(Format::Ours(id.to_owned()))
}

/// Makes a home at `path`. None where something came to be there meanwhile.
///
/// It is made beside its place and moved there whole, so that nobody ever sees half a home.
pub(super) fn make(
    registry: &Registry,
    path: &Path,
    kind: Kind,
) -> Result<Option<Home>, HomeError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(HomeError::NotAHome {
            path: path.to_owned(),
        });
    };
    let unmade = |source| HomeError::Unmade {
        path: path.to_owned(),
        source,
    };
    if kind == Kind::Named {
        fs::create_dir_all(parent).map_err(unmade)?;
    }
    let parent = parent.canonicalize().map_err(unmade)?;
    let path = parent.join(name);
    let id = new_id(&path)?;
    let draft = parent.join(format!(".{id}.new"));
    let made = fill(&draft, &id, kind).and_then(|mark| {
        registry.enter(
            &id,
            &Entry {
                path: Some(path.clone()),
                mark,
            },
        )?;
        place(&draft, &path)
    });
    if !matches!(made, Ok(true)) {
        // The draft is ours alone: its name is random and its folder private.
        let _ = fs::remove_dir_all(&draft);
        registry.forget(&id);
    }
    match made {
        Ok(placed) => Ok(placed.then(|| registry.home(&path, id))),
        // The draft's name means nothing to a person.
        Err(HomeError::Io {
            path: failed,
            source,
        }) if failed.starts_with(&draft) => Err(HomeError::Unmade { path, source }),
        Err(other) => Err(other),
    }
}

fn fill(draft: &Path, id: &str, kind: Kind) -> Result<Mark, HomeError> {
    fs::DirBuilder::new()
        .mode(MODE)
        .create(draft)
        .map_err(|error| HomeError::io(draft, error))?;
    close_to_others(draft)?;
    if kind == Kind::Project {
        let ignore = draft.join(".gitignore");
        fs::write(&ignore, "*\n").map_err(|error| HomeError::io(&ignore, error))?;
    }
    write_format(draft, id)?;
    Folder::open(draft)?
        .map(|folder| folder.mark())
        .ok_or_else(|| HomeError::NotAHome {
            path: draft.to_owned(),
        })
}

/// Moves the draft to its place; false where another process was faster.
fn place(draft: &Path, path: &Path) -> Result<bool, HomeError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let moved = match renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE) {
        // Some file systems lack the flag. A plain rename onto a folder works only while that is empty.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::rename(draft, path),
        other => other,
    };
    match moved {
        Ok(()) => Ok(true),
        Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(HomeError::io(path, error)),
    }
}

/// Takes all rights of others from a home.
pub(super) fn close_to_others(path: &Path) -> Result<(), HomeError> {
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))
        .map_err(|error| HomeError::io(path, error))
}

/// Writes `format.json` whole or not at all.
pub(super) fn write_format(home: &Path, id: &str) -> Result<(), HomeError> {
    let document = serde_json::json!({"format": Home::FORMAT, "home": id});
    write_whole(
        &home.join("format.json"),
        format!("{document}\n").as_bytes(),
    )
}

/// Writes a private file under another name, syncs it and moves it into place.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), HomeError> {
    let draft = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        fs::File::open(path.parent().unwrap_or(path))?.sync_all()
    };
    write().map_err(|error| HomeError::io(path, error))
}

/// An id that nobody can guess, for the home at `path`.
pub(super) fn new_id(path: &Path) -> Result<String, HomeError> {
    crate::ids::random_hex(ID_BYTES)
        .map(|random| format!("h-{random}"))
        .map_err(|error| HomeError::io(path, error))
}

/// Whether a node holds the home's lock.
pub(super) fn node_runs_in(path: &Path) -> Result<bool, HomeError> {
    let lock = path.join("node.lock");
    let file = match fs::File::open(&lock) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(HomeError::io(&lock, error)),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(HomeError::io(&lock, error)),
    }
}
