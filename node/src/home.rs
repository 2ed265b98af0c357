//! Which home a command uses: found or named, made where it is missing, and trusted before anything in it is read.
//!
//! Invariant: nothing of a home that was merely found is used, and nothing is started in it, before `registry.rs`
//! knows it as made here by this user. So a cloned or unpacked folder runs nothing. (Tests: `home/tests.rs`.)

mod folder;
mod registry;
mod search;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use weft_actors::home::Home;

use folder::{Folder, Mark};
use registry::{Entry, Registry};

/// The folder of a home inside a project.
pub(crate) const FOLDER: &str = ".weft";

/// What a person said about the home.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// `--home` or `$WEFT_HOME`; none to search.
    pub(crate) named: Option<PathBuf>,
    /// The parent of the private folders of all homes.
    pub(crate) state_dir: PathBuf,
    /// Where the search ends, besides mount points and other users' folders.
    pub(crate) user_home: Option<PathBuf>,
}

/// Whether a home that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Make it.
    Make,
    /// Refuse: to post into a home that is not there is a mistake in its name.
    Refuse,
}

/// Why a home cannot be used.
#[derive(Debug, Error)]
pub(crate) enum HomeError {
    /// Found, and not known as ours.
    #[error("{} {reason}: this .weft was not made here by you; look at it, then `weft home trust {}`", path.display(), word(path))]
    Untrusted {
        /// The folder.
        path: PathBuf,
        /// What gave it away.
        reason: &'static str,
    },
    /// The folder belongs to another user.
    #[error("{} belongs to another user (uid {owner}); a home is used by its owner only", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Others may look into the home.
    #[error("{} has mode {mode:04o}; a home is 0700: look at it, then `chmod 700 {}`", path.display(), word(path))]
    Open {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A folder that is there and is no home.
    #[error("{} exists and is no home of weft; name a folder that does not exist yet, it is made", path.display())]
    NotAHome {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing is there, and nothing may be made.
    #[error("there is no home {}", path.display())]
    Absent {
        /// The folder.
        path: PathBuf,
    },
    /// Only a folder itself can be trusted.
    #[error("{} is a symbolic link; name the folder itself", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// Written by a later weft.
    #[error("{} has format {format}; this weft knows {} and changes nothing: use a newer weft", path.display(), Home::FORMAT)]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
    /// `format.json` cannot be understood.
    #[error("{}: {reason}; nothing was changed", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The original is still where it was made.
    #[error("{} is a copy of {}; `weft home trust {}` gives it an id and keys of its own", path.display(), original.display(), word(path))]
    Copy {
        /// The copy.
        path: PathBuf,
        /// The home it was copied from.
        original: PathBuf,
    },
    /// A node works in the home that is to get a new id.
    #[error("a node runs in {}; end it with `weft node stop`, then trust the home", path.display())]
    Busy {
        /// The home.
        path: PathBuf,
    },
    /// What a person would trust is no home.
    #[error("{} is no home of weft; name a home, or the folder that holds a .weft", path.display())]
    NothingToTrust {
        /// The folder.
        path: PathBuf,
    },
    /// It is not there and cannot be made.
    #[error("the home {} cannot be made: {source}", path.display())]
    Unmade {
        /// The home.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl HomeError {
    fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        HomeError::Io {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

fn word(path: &Path) -> String {
    crate::exit::shell_word(&path.to_string_lossy())
}

/// The home that `choice` means, made or refused as the rules have it.
pub(crate) fn open(choice: &Choice, cwd: &Path, missing: Missing) -> Result<Home, HomeError> {
    let registry = Registry::new(&choice.state_dir);
    if let Some(named) = &choice.named {
        return open_named(&registry, &cwd.join(named), missing);
    }
    match search::nearest(cwd, choice.user_home.as_deref()) {
        Some(found) => open_found(&registry, &found),
        None if missing == Missing::Refuse => Err(HomeError::Absent {
            path: cwd.join(FOLDER),
        }),
        None => match folder::make(&registry, &cwd.join(FOLDER), folder::Kind::Project)? {
            Some(home) => Ok(home),
            // Another process made it first.
            None => open_found(&registry, &cwd.join(FOLDER)),
        },
    }
}

/// The home in the temporary folder `path`, for a demonstration: made, or refused where something is there.
pub(crate) fn make_new(state_dir: &Path, path: &Path) -> Result<Home, HomeError> {
    folder::make(&Registry::new(state_dir), path, folder::Kind::Named)?.ok_or_else(|| {
        HomeError::NotAHome {
            path: path.to_owned(),
        }
    })
}

fn open_found(registry: &Registry, path: &Path) -> Result<Home, HomeError> {
    let untrusted = |reason| HomeError::Untrusted {
        path: path.to_owned(),
        reason,
    };
    let folder = match Folder::open(path)? {
        Some(folder) => folder,
        None if path.is_symlink() => return Err(untrusted("is a symbolic link")),
        None => {
            return Err(HomeError::NotAHome {
                path: path.to_owned(),
            });
        }
    };
    if !folder.is_ours() {
        return Err(untrusted("belongs to another user"));
    }
    if folder.mode() != folder::MODE {
        return Err(untrusted("is open to others (a home has mode 0700)"));
    }
    let id = folder
        .id()?
        .ok_or_else(|| untrusted("has no format.json"))?;
    match registry.find(&id)? {
        Some(entry) if entry.mark == folder.mark() => Ok(registry.home(path, id)),
        Some(_) => Err(untrusted("is a copy, or was moved")),
        None => Err(untrusted("is not among the homes made here")),
    }
}

/// A person who names a home has decided to use it; what cannot be decided by a name is whose it is, and whether
/// two folders may share one id, its keys and its mark.
fn open_named(registry: &Registry, named: &Path, missing: Missing) -> Result<Home, HomeError> {
    let path = match named.canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Refuse => {
            return Err(HomeError::Absent {
                path: named.to_owned(),
            });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match folder::make(registry, named, folder::Kind::Named)? {
                Some(home) => return Ok(home),
                None => named
                    .canonicalize()
                    .map_err(|error| HomeError::io(named, error))?,
            }
        }
        Err(error) => return Err(HomeError::io(named, error)),
    };
    let folder = Folder::open(&path)?.ok_or_else(|| HomeError::NotAHome { path: path.clone() })?;
    if !folder.is_ours() {
        return Err(HomeError::Foreign {
            path,
            owner: folder.owner(),
        });
    }
    let id = folder
        .id()?
        .ok_or_else(|| HomeError::NotAHome { path: path.clone() })?;
    if folder.mode() != folder::MODE {
        return Err(HomeError::Open {
            path,
            mode: folder.mode(),
        });
    }
    match registry.find(&id)? {
        Some(entry) if entry.mark == folder.mark() => {}
        Some(Entry {
            path: Some(original),
            mark,
        }) if is_still_there(&original, mark) => return Err(HomeError::Copy { path, original }),
        _ => registry.enter(
            &id,
            &Entry {
                path: Some(path.clone()),
                mark: folder.mark(),
            },
        )?,
    }
    Ok(registry.home(&path, id))
}

fn is_still_there(original: &Path, mark: Mark) -> bool {
    matches!(Folder::open(original), Ok(Some(folder)) if folder.mark() == mark)
}

/// What [`trust`] did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trusted {
    /// It was known already.
    Already(Home),
    /// It is known from now on, under this id.
    Now(Home),
}

/// Takes the home at `path`, or in its `.weft`, as the caller's own. A home that comes from elsewhere gets a new id
/// and with it new keys, so that nothing signed for the original holds here.
pub(crate) fn trust(state_dir: &Path, path: &Path) -> Result<Trusted, HomeError> {
    let registry = Registry::new(state_dir);
    let path = if path.join(FOLDER).symlink_metadata().is_ok() {
        path.join(FOLDER)
    } else {
        path.to_owned()
    };
    if path.is_symlink() {
        return Err(HomeError::Link { path });
    }
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(HomeError::Absent { path });
        }
        Err(error) => return Err(HomeError::io(&path, error)),
    };
    let no_home = || HomeError::NothingToTrust { path: path.clone() };
    let folder = Folder::open(&path)?.ok_or_else(no_home)?;
    if !folder.is_ours() {
        return Err(HomeError::Foreign {
            path,
            owner: folder.owner(),
        });
    }
    let id = folder.id()?.ok_or_else(no_home)?;
    let entry = registry.find(&id)?;
    if entry
        .as_ref()
        .is_some_and(|entry| entry.mark == folder.mark())
    {
        folder::close_to_others(&path)?;
        return Ok(Trusted::Already(registry.home(&path, id)));
    }
    if folder::node_runs_in(&path)? {
        return Err(HomeError::Busy { path });
    }
    // The number of a device may differ after a restart of the machine; that alone makes no copy.
    let same = entry.is_some_and(|entry| {
        entry.path.as_deref() == Some(&path) && entry.mark.inode == folder.mark().inode
    });
    let id = if same { id } else { folder::new_id(&path)? };
    folder::close_to_others(&path)?;
    if !same {
        folder::write_format(&path, &id)?;
    }
    registry.enter(
        &id,
        &Entry {
            path: Some(path.clone()),
            mark: folder.mark(),
        },
    )?;
    Ok(Trusted::Now(registry.home(&path, id)))
}
