//! `weft` keeps commands running and tells everyone who waits, exactly once.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use std::process::ExitCode;

mod app;
mod autostart;
mod cli;
mod cli_node;
mod client;
mod config;
mod demo;
mod duration;
mod exit;
mod foreground;
mod home;
mod http;
mod ids;
mod limits;
mod reaper;
mod remote;
mod render;
mod serve;
mod size;
mod sse;
mod terminal;
mod watch_home;

fn main() -> ExitCode {
    // A shim must stay small: nothing may be made before it, no runtime, no parser, no thread.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "shim")
    {
        weft_actors::shim::main();
    }
    // A node in the background holds nothing of its starter, of whatever language: descriptors are closed while this process
    // owns none yet.
    if std::env::args_os().any(|word| word == "--detached") {
        weft_actors::sys::close_inherited(3);
    }
    ExitCode::from(cli::main())
}
