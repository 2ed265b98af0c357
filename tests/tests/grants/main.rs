//! Grants at every door: how often they count, what is no grant, and what an id is worth.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod bad_tokens;
mod forge;
mod ids;
mod post;
mod races;
mod tables;
mod tls;

use serde_json::{Value, json};
use weft_tests::{Client, Stage};

/// Where events of the topic `builds` go.
const BUILDS: &str = "/v1/topics/builds/events";

/// Mints a grant for `builds` with these uses.
#[track_caller]
fn mint(stage: &Stage, uses: u32) -> Value {
    stage.call("mesh.grant", json!({"topic": "builds", "uses": uses}))
}

/// The text of the token of a grant.
fn token(grant: &Value) -> &str {
    grant["token"].as_str().expect("a token")
}

/// How many uses of a grant are spent.
#[track_caller]
fn used(client: &Client, grant: &Value) -> u64 {
    let list = client.call("mesh.grants", json!({})).ok("mesh.grants");
    let grants = list["grants"].as_array().expect("a list of grants");
    let found = grants
        .iter()
        .find(|row| row["grantId"] == grant["grantId"])
        .expect("the ledger has the grant");
    found["used"].as_u64().expect("a count")
}
