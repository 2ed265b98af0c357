//! Homes: whose they are, the one node of each, and what they never give away.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod damage;
mod nodes;
mod secrets;
mod trust;

use std::path::Path;

use weft_tests::{Output, Stage, processes, stage::finish};

/// Runs `weft` in a folder, with no home named.
#[track_caller]
fn weft_in(stage: &Stage, folder: &Path, words: &[&str]) -> Output {
    let mut command = stage.weft(words);
    finish(command.env_remove("WEFT_HOME").current_dir(folder))
}

/// The nodes of a home: processes of this test that hold its lock's place.
fn nodes(stage: &Stage) -> Vec<u32> {
    let mut found: Vec<u32> = stage
        .processes()
        .into_iter()
        .filter(|pid| processes::is_alive(*pid))
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"node")
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
