//! A person's terminal, for as long as a task's terminal is passed through to it.

pub(crate) mod attach;
pub(crate) mod keys;
mod picture;
pub(crate) mod raw;
pub(crate) mod size;
pub(crate) mod typing;
