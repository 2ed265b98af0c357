//! The stage of the end-to-end tests: a home of its own for each test, the real `weft` at work in it, and nothing left behind.
//!
//! Tests go through the public doors only: the command line, the HTTP surface, and files whose names the contract gives. They wait
//! for conditions with [`eventually`], which fails after a bound that a slow machine does not reach.

#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking, and says where"
)]

pub mod http;
pub mod moved_clock;
pub mod processes;
pub mod stage;
pub mod tasks;

pub use http::{Answer, Client, Raw, SseEvent};
pub use moved_clock::MovedClock;
pub use stage::{Node, Output, Stage, eventually};
