//! Reaps the node's children: shims that end, and as process 1 of a container every orphan. Nothing here waits for one child, so
//! no status is taken from anyone.

use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;

/// Reaps for as long as it is polled.
pub(crate) async fn reap() {
    // Registered before the first look: a child that ends in between is seen by one of the two.
    let Ok(mut ended) = signal(SignalKind::child()) else {
        warn!("SIGCHLD cannot be caught; ended shims stay as zombies until this node ends");
        return;
    };
    loop {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        if ended.recv().await.is_none() {
            return;
        }
    }
}
