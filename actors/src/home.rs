//! Where a home keeps what: the one place that knows the names of its files.

use std::path::{Path, PathBuf};

/// The folders of one home. Plain paths: making, finding and trusting a home is the business of the program's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// The home itself, absolute: store, socket and task folders.
    pub root: PathBuf,
    /// The private folder of this home outside of any project: keys and the store's mark.
    pub state: PathBuf,
    /// The home's random id, as `format.json` has it.
    pub id: String,
}

impl Home {
    /// The layout of homes this build writes. A home of a newer format is refused.
    pub const FORMAT: u32 = 1;

    /// The node's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.root.join("node.sock")
    }

    /// Held by flock for the node's whole life: one node a home.
    pub fn node_lock(&self) -> PathBuf {
        self.root.join("node.lock")
    }

    /// Held by flock while somebody starts a node, and the record of failed starts.
    pub fn start_lock(&self) -> PathBuf {
        self.root.join("node.start")
    }

    /// Exists while an enabled resident does: a shim that ends without a node then starts one.
    pub fn wake(&self) -> PathBuf {
        self.root.join("wake")
    }

    /// The store.
    pub fn database(&self) -> PathBuf {
        self.root.join("weft.db")
    }

    /// Id and format of the home.
    pub fn format(&self) -> PathBuf {
        self.root.join("format.json")
    }

    /// Settings, optional.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// The parent of all task folders.
    pub fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    /// The folder of one task.
    pub fn task(&self, id: &str) -> PathBuf {
        self.tasks().join(id)
    }

    /// What the store was when it was last known good, kept away from it so that an older copy is recognised.
    pub fn store_mark(&self) -> PathBuf {
        self.state.join("store.mark")
    }

    /// The folder that belongs to whoever made this home: the default working directory of its tasks.
    pub fn project(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }
}
