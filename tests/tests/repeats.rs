//! Changes that are asked for again with the same request id, since their answer was lost: made once, answered as before.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use serde_json::{Value, json};
use weft_tests::Stage;

#[test]
fn a_request_that_is_repeated_publishes_once_for_its_caller() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let one = json!({"topic": "t", "text": "x", "requestId": "r"});
    let batch = json!({"requestId": "r", "events": [{"topic": "t", "text": "a"}, {"topic": "t", "text": "b"}]});
    let publish = |input: &Value| client.call("mesh.publish", input.clone());
    let publish_batch = |input: &Value| client.call("mesh.publishBatch", input.clone());
    let first = publish(&one).ok("a publish");
    let again = publish(&one).ok("the same");
    assert_eq!(
        (&again["id"], &again["duplicate"]),
        (&first["id"], &json!(true))
    );
    // Another caller's key of the same name is another key.
    let other = client.clone().with("weft-session", "other");
    let theirs = other.call("mesh.publish", one.clone()).ok("another caller");
    assert_eq!(theirs["duplicate"], false);
    let whole = json!({"topic": "t", "text": "y", "requestId": "r"});
    assert_eq!(publish(&whole).slug(), "request-id-reused");

    let batch_key = json!({"requestId": "b", "events": batch["events"]});
    let ids = |answer: &Value| -> Vec<Value> {
        let events = answer["events"].as_array().unwrap();
        events.iter().map(|event| event["id"].clone()).collect()
    };
    let first = ids(&publish_batch(&batch_key).ok("a batch"));
    assert_eq!(ids(&publish_batch(&batch_key).ok("the same")), first);
    for events in [
        json!([{"topic": "t", "text": "a"}]),
        json!([{"topic": "t", "text": "a"}, {"topic": "t", "text": "c"}]),
    ] {
        let answer = publish_batch(&json!({"requestId": "b", "events": events}));
        assert_eq!(answer.slug(), "request-id-reused", "{}", answer.text);
    }
    assert_eq!(stage.events(&["t"]).len(), 4);
}

#[test]
fn a_request_that_is_repeated_makes_one_token() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let input = json!({"scopes": ["tasks:read"], "requestId": "r"});
    let first = client.call("tokens.create", input.clone()).ok("a token");
    let again = client.call("tokens.create", input).ok("the same");
    assert_eq!(first, again);
    let listed = client.call("tokens.list", json!({})).ok("tokens");
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 1);
    let other = json!({"scopes": ["admin"], "requestId": "r"});
    assert_eq!(
        client.call("tokens.create", other).slug(),
        "request-id-reused"
    );
}

#[test]
fn a_post_that_is_repeated_by_its_key_spends_once() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let grant = client
        .call("mesh.grant", json!({"topic": "t", "uses": 2}))
        .ok("a grant");
    let poster = client.bearer(grant["token"].as_str().unwrap());
    let post = |key: &str| {
        let poster = poster.clone().with("idempotency-key", key);
        poster.post("/v1/topics/t/events", &json!({"text": "x"}))
    };
    let (first, again, other) = (post("a"), post("a"), post("b"));
    assert_eq!(first.body["id"], again.body["id"], "{}", again.text);
    assert_ne!(first.body["id"], other.body["id"]);
    assert_eq!(
        [&first, &again, &other].map(|answer| answer.body["usesLeft"].clone()),
        [1, 1, 0]
    );
    assert_eq!(stage.events(&["t"]).len(), 2);
    let changed = poster.with("idempotency-key", "a");
    let changed = changed.post("/v1/topics/t/events", &json!({"text": "y"}));
    assert_eq!(changed.slug(), "request-id-reused", "{}", changed.text);
}

#[test]
fn a_request_that_tells_a_resident_something_else_is_refused() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = stage.client();
    let handler = json!({"exec": {"argv": ["true"]}});
    for name in ["one", "two"] {
        let input = json!({"name": name, "topics": ["never"], "handler": handler});
        client.call("residents.create", input).ok("a resident");
    }
    let tell = |name: &str, text: &str| {
        client.call(
            "residents.tell",
            json!({"name": name, "text": text, "requestId": "r"}),
        )
    };
    let first = tell("one", "x").ok("a message");
    assert_eq!(tell("one", "x").ok("the same"), first);
    for other in [tell("one", "y"), tell("two", "x")] {
        assert_eq!(other.slug(), "request-id-reused", "{}", other.text);
    }
}
