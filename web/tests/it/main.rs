//! The routes over real sockets, on a node without tasks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod bodies;
mod grants;
mod pages;
mod stage;
mod stop;
mod streams;
mod tokens;
