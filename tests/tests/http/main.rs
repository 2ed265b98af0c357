//! The doors over TCP: who gets in, what each scope may do, and what no request can break.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod pages;
mod requests;
mod scopes;
mod surfaces;

use weft_tests::{Client, Node, Stage};

/// A home whose node listens on TCP.
struct Scene {
    stage: Stage,
    node: Node,
}

impl Scene {
    fn new() -> Self {
        let stage = Stage::new();
        let node = stage.node(&["--listen", "127.0.0.1:0"]);
        Scene { stage, node }
    }

    /// `127.0.0.1:PORT`.
    fn address(&self) -> &str {
        self.node.url().trim_start_matches("http://")
    }

    fn port(&self) -> &str {
        self.address().rsplit(':').next().unwrap()
    }

    fn tcp(&self) -> Client {
        Client::tcp(self.node.url())
    }

    fn unix(&self) -> Client {
        Client::unix(self.stage.home())
    }

    /// Whether no task was ever started here.
    fn is_untouched(&self) -> bool {
        let tasks = self
            .unix()
            .call("tasks.list", serde_json::json!({"all": true}));
        tasks.ok("tasks.list")["tasks"] == serde_json::json!([])
    }
}
