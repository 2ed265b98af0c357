//! One task: its plain data, its folder on disk and the words spoken with its shim.

pub mod folder;
pub mod kept;
pub mod output;
pub mod wire;
