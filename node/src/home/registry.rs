//! The homes that weft made here for this user: one private folder each, outside of any project.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weft_actors::home::Home;

use super::HomeError;
use super::folder::{MODE, Mark, write_whole};

/// The registry in one user's state folder.
pub(super) struct Registry {
    /// `…/homes`, private; one folder an id.
    homes: PathBuf,
}

/// What is known of a home besides its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Where it was made; none where the path is no text.
    #[serde(default)]
    pub(super) path: Option<PathBuf>,
    /// What tells it from its copies.
    #[serde(flatten)]
    pub(super) mark: Mark,
}

impl Registry {
    pub(super) fn new(state_dir: &Path) -> Self {
        Registry {
            homes: state_dir.join("homes"),
        }
    }

    /// The folders of the home `id` at `root`.
    pub(super) fn home(&self, root: &Path, id: String) -> Home {
        Home {
            root: root.to_owned(),
            state: self.homes.join(&id),
            id,
        }
    }

    /// What is known of the home `id`.
    pub(super) fn find(&self, id: &str) -> Result<Option<Entry>, HomeError> {
        let file = self.entry_path(id);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(HomeError::io(&file, error)),
        };
        check_private(&self.homes)?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| HomeError::Broken {
                path: file,
                reason: format!("is no entry of a home ({error})"),
            })
    }

    /// Remembers a home.
    pub(super) fn enter(&self, id: &str, entry: &Entry) -> Result<(), HomeError> {
        let folder = self.homes.join(id);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(MODE)
            .create(&folder)
            .map_err(|error| HomeError::io(&folder, error))?;
        check_private(&self.homes)?;
        check_private(&folder)?;
        // JSON holds text only; a path that is none is left out, it is needed for messages alone.
        let path = entry.path.clone().filter(|path| path.to_str().is_some());
        let entry = Entry {
            path,
            mark: entry.mark,
        };
        let text = serde_json::to_vec(&entry)
            .map_err(|error| HomeError::io(&folder, io::Error::other(error)))?;
        write_whole(&self.entry_path(id), &text)
    }

    /// Forgets a home that was never used.
    pub(super) fn forget(&self, id: &str) {
        let _ = fs::remove_dir_all(self.homes.join(id));
    }

    fn entry_path(&self, id: &str) -> PathBuf {
        self.homes.join(id).join("home.json")
    }
}

/// Refuses a folder of keys that others may read or write.
fn check_private(path: &Path) -> Result<(), HomeError> {
    let facts = fs::symlink_metadata(path).map_err(|error| HomeError::io(path, error))?;
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(HomeError::Foreign {
            path: path.to_owned(),
            owner: facts.uid(),
        });
    }
    if facts.mode() & 0o077 != 0 {
        return Err(HomeError::Open {
            path: path.to_owned(),
            mode: facts.mode() & 0o7777,
        });
    }
    Ok(())
}
