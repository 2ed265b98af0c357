//! Tasks, shims, owner sessions and residents: what runs, who owns it, and who is told of its end.
//!
//! What a node can do is the list of actions in [`action`]; every door calls one of them. Actors decide and do nothing else:
//! each is a plain machine (`task::machine`, `resident::machine`, `supervise`) in a shell that performs its effects. A task runs
//! under its own [`shim`], a process that outlives the node.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod action;
mod actions;
pub mod caller;
pub mod check;
pub mod completion;
pub mod error;
pub mod failpoint;
pub mod home;
pub mod house;
pub mod inbox;
pub mod limits;
pub mod lines;
pub mod requests;
pub mod resident;
pub mod root;
pub mod screens;
pub mod session;
pub mod shim;
pub mod supervise;
pub mod sys;
pub mod task;
pub mod tokens;
pub mod watch_end;

pub use action::{Ctx, call};
pub use actions::node::status;
pub use caller::{Caller, Identity};
pub use error::{Error, Result};
pub use home::Home;
pub use house::House;

/// The tables of this crate, for the options of the store.
pub fn schema() -> Vec<&'static str> {
    vec![
        task::row::SCHEMA,
        requests::SCHEMA,
        task::intake::SCHEMA,
        inbox::SCHEMA,
        resident::rows::SCHEMA,
        tokens::SCHEMA,
    ]
}
