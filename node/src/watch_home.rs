//! Tells when the home is removed or moved away under the node.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use tokio::io::unix::AsyncFd;
use tracing::warn;
use weft_actors::home::Home;

/// Ends when the home at this path is no longer the one that it was at the first poll.
pub(crate) async fn gone(home: &Home) {
    if let Err(error) = watch(home).await {
        warn!(%error, "the home cannot be watched; its removal would not be noticed");
        std::future::pending().await
    }
}

/// Device and inode of the lock: it lives exactly as long as the home does.
fn identity(home: &Home) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(home.node_lock())?;
    Ok((found.dev(), found.ino()))
}

async fn watch(home: &Home) -> io::Result<()> {
    let inotify = AsyncFd::new(init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?)?;
    let events = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    add_watch(&inotify, &home.root, events)?;
    let before = identity(home)?;
    loop {
        // Looked at after the watch stands, and again after every batch of events.
        if identity(home).ok() != Some(before) {
            return Ok(());
        }
        let mut ready = inotify.readable().await?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(inotify.get_ref(), &mut buffer);
        // What the events say does not matter, only that something went: drain them.
        while reader.next().is_ok() {}
        ready.clear_ready();
    }
}
