//! Tasks, shims, owner sessions and residents: what runs, who owns it, and who is told of its end.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod home;
pub mod limits;
pub mod shim;
pub mod sys;
pub mod task;
