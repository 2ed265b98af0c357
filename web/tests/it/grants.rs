//! Posts with a grant: one use, one event, whoever races.

use serde_json::json;
use tokio::task::JoinSet;

use crate::stage::{Reply, Stage};

const POSTS: usize = 50;

/// Fifty posts at once, each on its own connection, with the id that `id` gives to each.
async fn race(stage: &Stage, token: &str, id: impl Fn(usize) -> String) -> Vec<Reply> {
    let mut posts = JoinSet::new();
    for post in 0..POSTS {
        let (mut client, token, body) = (
            stage.tcp().await,
            token.to_owned(),
            json!({"id": id(post), "text": "done"}),
        );
        posts.spawn(async move { client.publish("builds", Some(&token), &body).await });
    }
    posts.join_all().await
}

fn count(replies: &[Reply], slug: &str) -> usize {
    replies.iter().filter(|reply| reply.slug() == slug).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_posts_with_a_single_use_one_wins() {
    let stage = Stage::open().await;
    let token = stage.grant("builds", 1).await;
    let replies = race(&stage, &token, |post| format!("own-{post}")).await;
    assert_eq!(
        (count(&replies, "ok"), count(&replies, "grant-spent")),
        (1, POSTS - 1)
    );
    let won = replies.iter().find(|reply| reply.slug() == "ok").unwrap();
    assert_eq!(
        (&won.body["ok"], &won.body["usesLeft"]),
        (&json!(true), &json!(0))
    );
    let events = stage.events("builds").await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["id"], won.body["id"]);
    assert_eq!(events[0]["grantId"], won.body["grantId"]);
    assert_eq!(
        (&events[0]["origin"], &events[0]["untrusted"]),
        (&json!("external"), &json!(true))
    );
    assert_eq!(
        events[0]["from"],
        json!(format!("grant:{}", won.body["grantId"].as_str().unwrap()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_posts_of_the_same_event_are_one_and_spend_one_use() {
    let stage = Stage::open().await;
    let token = stage.grant("builds", 1).await;
    let replies = race(&stage, &token, |_| "same".to_owned()).await;
    assert_eq!(count(&replies, "ok"), POSTS);
    assert!(replies.iter().all(
        |reply| reply.body["sequence"] == replies[0].body["sequence"]
            && reply.body["usesLeft"] == 0
    ));
    assert_eq!(stage.events("builds").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_uses_are_three_events() {
    let stage = Stage::open().await;
    let token = stage.grant("builds", 3).await;
    let replies = race(&stage, &token, |post| format!("own-{post}")).await;
    assert_eq!(
        (count(&replies, "ok"), count(&replies, "grant-spent")),
        (3, POSTS - 3)
    );
    assert_eq!(stage.events("builds").await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_post_spends_nothing() {
    let stage = Stage::open().await;
    let made = stage
        .call("mesh.grant", json!({"topic": "builds", "kind": "done"}))
        .await;
    let token = made["token"].as_str().unwrap();
    let mut client = stage.tcp().await;
    let cases = [
        ("other", json!({}), "grant-topic", 403),
        ("weft.timing", json!({}), "grant-topic", 403),
        ("a..b", json!({}), "topic-invalid", 422),
        ("builds", json!({"kind": "begun"}), "grant-kind", 403),
        (
            "builds",
            json!({"id": "completion:t-1"}),
            "id-reserved",
            403,
        ),
        (
            "builds",
            json!({"data": "x".repeat(65 * 1024)}),
            "payload-too-large",
            413,
        ),
        (
            "builds",
            json!({"from": "session:cli"}),
            "invalid-argument",
            422,
        ),
    ];
    for (topic, body, slug, status) in cases {
        let reply = client.publish(topic, Some(token), &body).await;
        assert_eq!(
            (reply.slug(), reply.status),
            (slug, status),
            "{topic} {}",
            reply.text
        );
    }
    let reply = client.publish("builds", Some(token), &json!({})).await;
    assert_eq!(
        (&reply.body["kind"], &reply.body["usesLeft"]),
        (&json!("done"), &json!(0)),
        "{}",
        reply.text
    );
    let reply = client.publish("builds", Some(token), &json!({})).await;
    assert_eq!((reply.slug(), reply.status), ("grant-spent", 410));
    assert_eq!(stage.events("builds").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_grant_is_refused_on_a_connection_that_used_it() {
    let stage = Stage::open().await;
    let made = stage
        .call("mesh.grant", json!({"topic": "builds", "uses": 10}))
        .await;
    let token = made["token"].as_str().unwrap();
    let mut client = stage.unix().await;
    assert_eq!(
        client
            .publish("builds", Some(token), &json!({}))
            .await
            .status,
        200
    );
    stage
        .call("mesh.revoke", json!({"grantId": made["grantId"]}))
        .await;
    let reply = client.publish("builds", Some(token), &json!({})).await;
    assert_eq!((reply.slug(), reply.status), ("grant-revoked", 401));
    assert!(reply.header("www-authenticate").contains("invalid_token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_posters_id_is_a_conflict_and_shows_nothing() {
    let stage = Stage::open().await;
    let token = stage.grant("builds", 10).await;
    let mut client = stage.unix().await;
    let mine = client
        .publish("builds", None, &json!({"id": "one", "text": "private"}))
        .await;
    assert_eq!((mine.status, &mine.body["duplicate"]), (200, &json!(false)));
    let again = client
        .publish("builds", None, &json!({"id": "one", "text": "private"}))
        .await;
    assert_eq!(
        (&again.body["duplicate"], &again.body["sequence"]),
        (&json!(true), &mine.body["sequence"])
    );
    let reply = client
        .publish(
            "builds",
            Some(&token),
            &json!({"id": "one", "text": "private"}),
        )
        .await;
    assert_eq!((reply.slug(), reply.status), ("id-conflict", 409));
    assert!(!reply.text.contains("private"));
}
