//! Many posts at once: a grant counts exactly.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Value, json};
use weft_tests::{Answer, Client, Stage};

use super::{BUILDS, mint, token, used};

/// Posts all bodies at once, each over a connection of its own that is open before the first goes out.
fn post_at_once(client: &Client, token: &str, bodies: &[Value]) -> Vec<io::Result<Answer>> {
    runtime().block_on(async {
        let start = std::sync::Arc::new(tokio::sync::Barrier::new(bodies.len()));
        let posts: Vec<_> = bodies
            .iter()
            .map(|body| {
                let (client, token, body, start) = (
                    client.clone(),
                    token.to_owned(),
                    body.clone(),
                    start.clone(),
                );
                tokio::spawn(async move {
                    let kept = client.keep().await;
                    start.wait().await;
                    kept?.post_as(&token, BUILDS, &body).await
                })
            })
            .collect();
        let mut answers = Vec::new();
        for post in posts {
            answers.push(post.await.expect("no panic"));
        }
        answers
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Bodies with an id each.
fn bodies(count: usize, round: &str) -> Vec<Value> {
    (0..count)
        .map(|n| json!({"id": format!("{round}-{n}"), "data": {"n": n}}))
        .collect()
}

/// How often each outcome came: `ok` or the name of the refusal.
fn outcomes(answers: &[io::Result<Answer>]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        let name = match answer {
            Ok(answer) if answer.status == 200 => "ok".to_owned(),
            Ok(answer) => answer.slug(),
            Err(error) => format!("no answer: {error}"),
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn expect(answers: &[io::Result<Answer>], wanted: &[(&str, usize)]) {
    let wanted: BTreeMap<String, usize> = wanted
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect();
    assert_eq!(outcomes(answers), wanted);
}

#[test]
fn of_fifty_posts_with_one_use_one_wins() {
    let stage = Stage::new();
    let client = stage.client();
    let grant = mint(&stage, 1);
    let answers = post_at_once(&client, token(&grant), &bodies(50, "a"));
    expect(&answers, &[("ok", 1), ("grant-spent", 49)]);
    let events = stage.events(&["builds"]);
    let won = answers
        .iter()
        .flatten()
        .find(|answer| answer.status == 200)
        .unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["id"], won.body["id"]);
    assert_eq!(events[0]["sequence"], won.body["sequence"]);
    assert_eq!(won.body["usesLeft"], 0);
    assert_eq!(used(&client, &grant), 1);
}

#[test]
fn fifty_posts_of_one_id_are_one_event_and_one_use() {
    let stage = Stage::new();
    let client = stage.client();
    let grant = mint(&stage, 1);
    let body = json!({"id": "the-one", "kind": "done", "data": {"ok": true}});
    let answers = post_at_once(&client, token(&grant), &vec![body; 50]);
    expect(&answers, &[("ok", 50)]);
    let events = stage.events(&["builds"]);
    assert_eq!(events.len(), 1);
    for answer in answers.iter().flatten() {
        assert_eq!(answer.body["id"], "the-one");
        assert_eq!(answer.body["sequence"], events[0]["sequence"]);
        assert_eq!(answer.body["usesLeft"], 0);
    }
    assert_eq!(used(&client, &grant), 1);
}

#[test]
fn a_grant_of_three_uses_takes_three_of_fifty() {
    let stage = Stage::new();
    let client = stage.client();
    let grant = mint(&stage, 3);
    let answers = post_at_once(&client, token(&grant), &bodies(50, "c"));
    expect(&answers, &[("ok", 3), ("grant-spent", 47)]);
    assert_eq!(stage.events(&["builds"]).len(), 3);
    assert_eq!(used(&client, &grant), 3);
}

#[test]
fn a_node_killed_amid_the_posts_has_one_event_and_keeps_its_word() {
    for round in 0..4_u64 {
        let stage = Stage::new();
        let node = stage.node(&[]);
        let client = Client::unix(stage.home());
        let grant = mint(&stage, 1);
        let all = bodies(50, "d");
        // Each round kills a little later, from before the first commit to after it.
        let killer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(round * 4));
            node.kill()
        });
        let answers = post_at_once(&client, token(&grant), &all);
        killer.join().expect("the node is gone");
        let told: Vec<Value> = answers
            .iter()
            .flatten()
            .filter(|answer| answer.status == 200)
            .map(|answer| answer.body["id"].clone())
            .collect();
        assert!(told.len() <= 1, "{told:?}");

        let _node = stage.node(&[]);
        let rest: Vec<Value> = all
            .into_iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.is_err())
            .map(|(body, _)| body)
            .collect();
        let again = post_at_once(&client, token(&grant), &rest);
        let won = again.iter().flatten().filter(|answer| answer.status == 200);
        assert!(told.len() + won.count() <= 1 || rest.is_empty());
        let events = stage.events(&["builds"]);
        assert!(events.len() <= 1, "{events:?}");
        assert!(
            told.iter().all(|id| *id == events[0]["id"]),
            "{told:?} {events:?}"
        );
        assert_eq!(used(&client, &grant), events.len() as u64);
    }
}

#[test]
fn a_refused_post_spends_nothing() {
    let stage = Stage::new();
    let client = stage.client();
    let grant = stage.call("mesh.grant", json!({"topic": "builds", "kind": "done"}));
    let poster = client.clone().bearer(token(&grant));
    let refused = [
        (
            poster.post("/v1/topics/other/events", &json!({})),
            403,
            "grant-topic",
        ),
        (
            poster.post(BUILDS, &json!({"kind": "begun"})),
            403,
            "grant-kind",
        ),
        (
            poster.post(BUILDS, &json!({"id": "completion:x"})),
            403,
            "id-reserved",
        ),
        (
            poster.post(BUILDS, &json!({"data": "x".repeat(64 * 1024 + 1)})),
            413,
            "payload-too-large",
        ),
        (
            poster.post(BUILDS, &json!({"from": "me"})),
            422,
            "invalid-argument",
        ),
    ];
    for (answer, status, slug) in refused {
        assert_eq!(
            (answer.status, answer.slug().as_str()),
            (status, slug),
            "{}",
            answer.text
        );
    }
    assert_eq!(used(&client, &grant), 0);
    assert_eq!(stage.events(&["builds", "other"]).len(), 0);
    let event = poster
        .post(BUILDS, &json!({"data": {"ok": true}}))
        .ok("the good post");
    assert_eq!(event["kind"], "done");
    assert_eq!(stage.events(&["builds"])[0]["data"], json!({"ok": true}));
}

#[test]
fn heavy_two_hundred_rounds_of_sixty_four_posts_have_one_winner_each() {
    let stage = Stage::new();
    let client = stage.client();
    runtime().block_on(async {
        let mut connections = Vec::new();
        for _ in 0..64 {
            connections.push(client.keep().await.expect("a connection"));
        }
        let mut minter = client.keep().await.expect("a connection");
        for round in 0..200 {
            let input = json!({"topic": "builds"}).to_string();
            let grant = minter
                .send("POST", "/v1/grants", Some(input))
                .await
                .unwrap();
            let token = grant.ok("mesh.grant")["token"].as_str().unwrap().to_owned();
            let posts: Vec<_> = connections
                .drain(..)
                .enumerate()
                .map(|(n, mut kept)| {
                    let (token, body) = (token.clone(), json!({"data": {"n": n, "round": round}}));
                    tokio::spawn(async move { (kept.post_as(&token, BUILDS, &body).await, kept) })
                })
                .collect();
            let mut answers = Vec::new();
            for post in posts {
                let (answer, kept) = post.await.expect("no panic");
                answers.push(answer);
                connections.push(kept);
            }
            expect(&answers, &[("ok", 1), ("grant-spent", 63)]);
        }
    });
    let events = stage.events(&["builds"]);
    assert_eq!(events.len(), 200);
    for (round, event) in events.iter().enumerate() {
        assert_eq!(event["data"]["round"], round);
    }
}
