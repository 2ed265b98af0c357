//! What an event id is worth: to its owner a safe repeat, to everybody else nothing.

use std::io::Write as _;

use serde_json::{Value, json};
use weft_tests::{Client, Stage, tasks};

use super::forge::Key;
use super::{BUILDS, mint, token, used};

/// A grant for the end of a task as the node would mint it, signed with the home's key.
fn completion_grant(stage: &Stage, task: &Value) -> String {
    let key = Key::of(stage);
    let like = super::forge::claims(token(&mint(stage, 1)));
    let mut claims = like;
    claims["jti"] = task["notify"]["grantId"].clone();
    claims["kind"] = json!("task.completed");
    claims["eid"] = json!(format!("completion:{}", task["id"].as_str().unwrap()));
    key.sign(&key.header().to_string(), &claims)
}

#[test]
fn nobody_announces_the_end_of_a_task_that_runs() {
    let stage = Stage::new();
    let client = stage.client();
    let gate = stage.dir().join("gate");
    let line = format!("until [ -e {} ]; do sleep 0.02; done", gate.display());
    let id = tasks::durable(&client, &line, "builds");
    let wanted = format!("completion:{id}");
    let grant = mint(&stage, 1);

    let tries = [
        client.post(BUILDS, &json!({"id": wanted})),
        client.call("mesh.publish", json!({"topic": "builds", "id": wanted})),
        client.call("mesh.publish", json!({"topic": "other", "id": wanted})),
        client.call(
            "mesh.publishBatch",
            json!({"events": [{"topic": "builds"}, {"topic": "builds", "id": wanted}]}),
        ),
        client
            .clone()
            .bearer(token(&grant))
            .post(BUILDS, &json!({"id": wanted})),
    ];
    for answer in tries {
        assert_eq!(
            (answer.status, answer.slug().as_str()),
            (403, "id-reserved"),
            "{}",
            answer.text
        );
    }
    let beside = client
        .clone()
        .with("idempotency-key", &wanted)
        .post(BUILDS, &json!({}));
    // The key of a request is no id of an event.
    let published = beside.ok("a publish")["id"].clone();
    assert_ne!(published, wanted);
    let output = stage.run(["mesh", "publish", "builds", "--id", &wanted]);
    assert_eq!(output.code, 1, "{output:?}");
    // With the task's own grant in hand it is still too early, and nothing of the grant is spent.
    let stolen = completion_grant(&stage, &tasks::record(&client, &id));
    for body in [json!({}), json!({"id": wanted})] {
        let answer = client.clone().bearer(&stolen).post(BUILDS, &body);
        assert_eq!(
            (answer.status, answer.slug().as_str()),
            (401, "grant-early"),
            "{}",
            answer.text
        );
    }
    assert_eq!(used(&client, &grant), 0);
    let events = stage.events(&["builds", "other"]);
    assert_eq!(
        events.iter().map(|event| &event["id"]).collect::<Vec<_>>(),
        [&published]
    );

    std::fs::write(&gate, "").unwrap();
    assert_eq!(tasks::ended(&client, &id)["exitCode"], 0);
    let event = weft_tests::eventually("the end is announced", || stage.events(&["builds"]).pop());
    assert_eq!(event["id"], wanted);
    assert_eq!(event["data"]["exitCode"], 0);
    // After the end the grant brings the event that is there, and no second one.
    let answer = client.clone().bearer(&stolen).post(BUILDS, &json!({}));
    assert!(
        answer.status == 401 || answer.body["sequence"] == event["sequence"],
        "{}",
        answer.text
    );
    assert_eq!(stage.events(&["builds"]).len(), 2);
}

#[test]
fn an_id_belongs_to_its_poster_and_its_content() {
    let stage = Stage::new();
    let client = stage.client();
    let (one, two) = (client.clone().session("one"), client.clone().session("two"));
    let secret =
        json!({"topic": "builds", "id": "mine", "kind": "k", "data": {"secret": "of one"}});
    let first = one.call("mesh.publish", secret.clone()).ok("the first");
    assert_eq!(first["duplicate"], false);
    let again = one
        .call("mesh.publish", secret.clone())
        .ok("the same again");
    assert_eq!(
        (&again["duplicate"], &again["sequence"]),
        (&json!(true), &first["sequence"])
    );

    let grant = mint(&stage, 2);
    let poster = client.clone().bearer(token(&grant));
    let mut other_content = secret.clone();
    other_content["data"] = json!({"secret": "guess"});
    let mut other_topic = secret.clone();
    other_topic["topic"] = json!("elsewhere");
    let conflicts = [
        two.call("mesh.publish", secret),
        one.call("mesh.publish", other_content),
        one.call("mesh.publish", other_topic),
        poster.post(
            BUILDS,
            &json!({"id": "mine", "kind": "k", "data": {"secret": "of one"}}),
        ),
        poster.post(BUILDS, &json!({"id": "mine"})),
    ];
    for answer in conflicts {
        assert_eq!(
            (answer.status, answer.slug().as_str()),
            (409, "id-conflict"),
            "{}",
            answer.text
        );
        assert!(!answer.text.contains("of one"), "{}", answer.text);
    }
    assert_eq!(used(&client, &grant), 0);
    assert_eq!(stage.events(&["builds", "elsewhere"]).len(), 1);
}

#[test]
fn a_batch_with_one_bad_event_appends_none() {
    let stage = Stage::new();
    let client = stage.client();
    let events = |last: Value| json!({"events": [{"topic": "b", "text": "1"}, {"topic": "b", "text": "2"}, last]});
    for (last, slug) in [
        (json!({"topic": "weft.x"}), "topic-reserved"),
        (
            json!({"topic": "b", "text": "x".repeat(256 * 1024 + 1)}),
            "payload-too-large",
        ),
        (json!({"topic": "b", "frm": "x"}), "invalid-argument"),
        (json!({"topic": "b", "id": ""}), "invalid-argument"),
    ] {
        assert_eq!(client.call("mesh.publishBatch", events(last)).slug(), slug);
    }
    let many: Vec<Value> = (0..101).map(|_| json!({"topic": "b"})).collect();
    assert_eq!(
        client
            .call("mesh.publishBatch", json!({"events": many}))
            .status,
        413
    );
    assert_eq!(stage.events(&["b"]).len(), 0);
    client
        .call(
            "mesh.publishBatch",
            events(json!({"topic": "b", "text": "3"})),
        )
        .ok("a good batch");
    let texts: Vec<Value> = stage
        .events(&["b"])
        .iter()
        .map(|event| event["text"].clone())
        .collect();
    assert_eq!(texts, ["1", "2", "3"]);
}

#[test]
fn a_post_repeated_over_a_cut_connection_counts_once() {
    const POSTS: usize = 40;
    let stage = Stage::new();
    let node = stage.node(&["--listen", "127.0.0.1:0"]);
    let client = Client::unix(stage.home());
    let grant = mint(&stage, POSTS as u32);
    let tcp = Client::tcp(node.url());
    let poster = tcp.clone().bearer(token(&grant));
    let host = node.url().trim_start_matches("http://");
    for n in 0..POSTS {
        let body = json!({"id": format!("cut-{n}"), "data": n}).to_string();
        let request = format!(
            "POST {BUILDS} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            token(&grant),
            body.len()
        );
        // Cut somewhere in the last bytes, or right after the last.
        let cut = request.len() - (n % 4) * 5;
        let mut bare = tcp.bare();
        bare.write_all(&request.as_bytes()[..cut]).expect("sent");
        drop(bare);
        let answer = poster
            .post(BUILDS, &serde_json::from_str(&body).unwrap())
            .ok("the repeat");
        assert_eq!(answer["id"], format!("cut-{n}"));
        assert_eq!(answer["usesLeft"], POSTS - n - 1);
    }
    assert_eq!(stage.events(&["builds"]).len(), POSTS);
    assert_eq!(used(&client, &grant), POSTS as u64);

    // The same holds over the death of the node, when every use is spent.
    let before = stage.events(&["builds"]);
    node.kill();
    let _node = stage.node(&[]);
    let poster = client.clone().bearer(token(&grant));
    let answer = poster
        .post(BUILDS, &json!({"id": "cut-0", "data": 0}))
        .ok("after the restart");
    assert_eq!(answer["sequence"], before[0]["sequence"]);
    assert_eq!(answer["usesLeft"], 0);
    assert_eq!(
        poster
            .post(BUILDS, &json!({"id": "cut-0", "data": 1}))
            .slug(),
        "id-conflict"
    );
    assert_eq!(
        poster.post(BUILDS, &json!({"id": "new"})).slug(),
        "grant-spent"
    );
    assert_eq!(stage.events(&["builds"]), before);
}
