//! One task: its plain data, its folder on disk, its machine and actor, and the words spoken with its shim.

pub mod actor;
pub mod announce;
pub mod control;
pub mod folder;
pub mod intake;
pub mod janitor;
pub mod kept;
pub mod launch;
pub mod machine;
pub mod output;
pub mod plan;
pub mod quote;
pub mod record;
pub mod row;
pub mod screen;
pub mod settle;
pub mod unbegun;
pub mod view;
pub mod wire;
