//! Tells when the home is removed or moved away under the node.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use tokio::sync::oneshot;
use tracing::warn;
use weft_actors::home::Home;

/// Ends when the home at this path is no longer the one that it was at the first poll.
pub(crate) async fn gone(home: &Home) {
    let (tell, told) = oneshot::channel();
    let home = home.clone();
    // A thread of its own that waits in the kernel; it goes with the process.
    std::thread::spawn(move || match watch(&home) {
        Ok(()) => drop(tell.send(())),
        Err(error) => {
            warn!(%error, "the home cannot be watched; its removal would not be noticed");
        }
    });
    if told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Device and inode of lock and socket. Without its lock a node is no longer the home's; without its socket nobody can reach it,
/// and another node is to take its place.
fn identity(home: &Home) -> io::Result<[(u64, u64); 2]> {
    let of = |path: std::path::PathBuf| {
        std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
    };
    Ok([of(home.node_lock())?, of(home.socket())?])
}

fn watch(home: &Home) -> io::Result<()> {
    let inotify = init(CreateFlags::CLOEXEC)?;
    let events = WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF;
    add_watch(&inotify, &home.root, events)?;
    let before = identity(home)?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&inotify, &mut buffer);
    // Looked at after the watch stands, and again after every event; what the event says does not matter.
    while identity(home).ok() == Some(before) {
        reader.next()?;
    }
    Ok(())
}
