//! Requests that are not what they should be are refused by name, with nothing changed.

use hyper::Method;
use serde_json::json;
use weft_web::limits::BODY_BYTES_MAX;

use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn bad_bodies_are_refused_with_the_field_that_is_wrong() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    let cases: [(&str, &str, &str, u16); 8] = [
        ("/v1/topics/a/events", "{", "invalid-json", 400),
        ("/v1/topics/a/events", "[]", "invalid-argument", 422),
        (
            "/v1/topics/a/events",
            r#"{"kind":"a b"}"#,
            "kind-invalid",
            422,
        ),
        (
            "/v1/topics/a/events",
            r#"{"id":"completion:t-1"}"#,
            "id-reserved",
            403,
        ),
        (
            "/v1/call/mesh.read",
            r#"{"topic":"a"}"#,
            "invalid-argument",
            422,
        ),
        (
            "/v1/call/mesh.read",
            r#"{"limit":1,"limit":2}"#,
            "invalid-argument",
            422,
        ),
        ("/v1/call/no.such", "{}", "unknown-action", 404),
        (
            "/v1/tasks/t-1/stop",
            r#"{"id":"t-2"}"#,
            "invalid-argument",
            422,
        ),
    ];
    for (path, body, slug, status) in cases {
        let reply = client.send(Method::POST, path, &[], body.as_bytes()).await;
        assert_eq!(
            (reply.slug(), reply.status),
            (slug, status),
            "{path} {body}: {}",
            reply.text
        );
        assert_eq!(reply.body["status"], status);
        assert!(!reply.body["detail"].as_str().unwrap().is_empty());
    }
    let reply = client
        .send(Method::POST, "/v1/topics/a/events", &[], br#"{"from":"x"}"#)
        .await;
    assert_eq!(
        (&reply.body["field"], &reply.body["errors"][0]["pointer"]),
        (&json!("from"), &json!("/from"))
    );
    assert!(stage.events("a").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_are_refused_however_they_come() {
    let stage = Stage::open().await;
    let bearer = stage.token(&["admin"]).await;
    let head = format!(
        "POST /v1/topics/a/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {bearer}\r\nContent-Type: application/json\r\nConnection: close\r\n",
        stage.address
    );
    let answer = stage
        .raw(&format!(
            "{head}Content-Length: {}\r\n\r\n",
            BODY_BYTES_MAX + 1
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let answer = stage
        .raw(&format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n{}",
            chunk.repeat(BODY_BYTES_MAX / 0x10000 + 1)
        ))
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 413") && answer.contains("body-too-large"),
        "{answer}"
    );
    let mut client = stage.unix().await;
    let reply = client
        .publish("a", None, &json!({"text": "x".repeat(256 * 1024 + 1)}))
        .await;
    assert_eq!(
        (reply.slug(), reply.status, &reply.body["limit"]),
        ("payload-too-large", 413, &json!(256 * 1024))
    );
    let reply = client
        .publish("a", None, &json!({"text": "x".repeat(256 * 1024)}))
        .await;
    assert_eq!(reply.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_arrives_at_a_client_that_sends_its_whole_body_first() {
    let stage = Stage::open().await;
    let bearer = stage.token(&["admin"]).await;
    for (kind, bytes, status) in [
        ("text/plain", 10, "415"),
        ("text/plain", 2 * BODY_BYTES_MAX, "413"),
        ("application/json", 2 * BODY_BYTES_MAX, "413"),
    ] {
        for _ in 0..10 {
            let answer = stage
                .raw(&format!(
                    "POST /v1/call/mesh.publish HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {bearer}\r\nContent-Type: {kind}\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n{}",
                    stage.address,
                    " ".repeat(bytes)
                ))
                .await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{kind} {bytes}: {answer}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_in_a_path_follow_the_rules_of_names() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    let long = "x".repeat(129);
    let bad = [
        "", "a..b", ".a", "a.", "a.*", "a.%3E", "%20a", "a%20b", "a%09b", "a%0Ab", "%C3%A9", &long,
        "a%2Fb", "%252e",
    ];
    for topic in bad {
        let reply = client.publish(topic, None, &json!({})).await;
        assert_eq!(
            (reply.slug(), reply.status),
            ("topic-invalid", 422),
            "{topic}"
        );
    }
    assert_eq!(
        client.publish("weft.x", None, &json!({})).await.slug(),
        "topic-reserved"
    );
    assert_eq!(
        client.publish("%FF", None, &json!({})).await.slug(),
        "bad-request"
    );
    for topic in ["Weft.x", "a.b", "a%2Eb"] {
        assert_eq!(
            client.publish(topic, None, &json!({})).await.status,
            200,
            "{topic}"
        );
    }
    let topics = client.get("/v1/topics", &[]).await.body;
    let names: Vec<_> = topics["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|topic| topic["topic"].clone())
        .collect();
    assert_eq!(names, ["Weft.x", "a.b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_page_by_cursor_and_refuse_one_of_another_store() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    let empty = client.get("/v1/topics/t/events", &[]).await;
    assert_eq!((empty.status, &empty.body["events"]), (200, &json!([])));
    for text in ["0", "1", "2"] {
        client.publish("t", None, &json!({"text": text})).await;
    }
    let first = client.get("/v1/topics/t/events?limit=2", &[]).await.body;
    assert_eq!(first["events"].as_array().unwrap().len(), 2);
    let epoch = first["epoch"].as_str().unwrap();
    let rest = client
        .get(
            &format!(
                "/v1/topics/t/events?after={epoch}-{}&waitMs=1000",
                first["next"]
            ),
            &[],
        )
        .await
        .body;
    assert_eq!(rest["events"][0]["text"], "2");
    let reply = client.get("/v1/topics/t/events?after=other-1", &[]).await;
    assert_eq!((reply.slug(), reply.status), ("resync", 409));
    assert_eq!(
        (&reply.body["epoch"], &reply.body["oldest"]),
        (&json!(epoch), &json!(1))
    );
    for query in [
        "limit=0",
        "limit=1001",
        "waitMs=300001",
        "waitMs=x",
        "waitMs=-1",
    ] {
        assert_eq!(
            client
                .get(&format!("/v1/topics/t/events?{query}"), &[])
                .await
                .slug(),
            "invalid-argument",
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_first_event() {
    let stage = Stage::open().await;
    let mut waiting = stage.unix().await;
    let wait =
        tokio::spawn(async move { waiting.get("/v1/topics/t/events?waitMs=300000", &[]).await });
    let mut client = stage.unix().await;
    client.publish("other", None, &json!({})).await;
    client.publish("t", None, &json!({"text": "now"})).await;
    assert_eq!(wait.await.unwrap().body["events"][0]["text"], "now");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_makes_a_repeat_the_same_event() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    let key = [("idempotency-key", "k-1")];
    let first = client
        .post("/v1/topics/t/events", &key, &json!({"text": "x"}))
        .await
        .body;
    let again = client
        .post(
            "/v1/call/mesh.publish",
            &key,
            &json!({"topic": "t", "text": "x"}),
        )
        .await
        .body;
    assert_eq!(
        (&again["sequence"], &again["duplicate"]),
        (&first["sequence"], &json!(true))
    );
    let other = client
        .post("/v1/topics/t/events", &key, &json!({"text": "y"}))
        .await;
    assert_eq!((other.slug(), other.status), ("request-id-reused", 422));
    let torn = client
        .post("/v1/topics/t/events", &key, &json!({"requestId": "k-2"}))
        .await;
    assert_eq!(torn.slug(), "invalid-argument");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_on_the_socket_names_its_session() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    let from = client.publish("t", None, &json!({})).await.body["from"].clone();
    assert_eq!(from, "session:cli");
    let reply = client
        .post(
            "/v1/topics/t/events",
            &[("weft-session", "alpha")],
            &json!({}),
        )
        .await;
    assert_eq!(reply.body["from"], "session:alpha");
    let reply = client
        .post(
            "/v1/topics/t/events",
            &[("weft-session", "a b")],
            &json!({}),
        )
        .await;
    assert_eq!(
        (reply.slug(), &reply.body["field"]),
        ("invalid-argument", &json!("Weft-Session"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_says_so() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    let reply = client.get("/v2/tasks", &[]).await;
    assert_eq!((reply.slug(), reply.status), ("no-route", 404));
    let reply = client.send(Method::PUT, "/v1/tasks", &[], b"").await;
    assert_eq!((reply.slug(), reply.status), ("method-not-allowed", 405));
    let mut allowed: Vec<&str> = reply.header("allow").split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    let reply = client.get("/v1/grants/x?y=1", &[]).await;
    assert_eq!(reply.status, 405);
    let reply = client.send(Method::DELETE, "/v1/grants/x", &[], b"").await;
    assert_eq!(reply.status, 404, "{}", reply.text);
    let reply = client.get("/v1/tasks?every=1", &[]).await;
    assert_eq!(
        (reply.slug(), &reply.body["field"]),
        ("invalid-argument", &json!("every"))
    );
}
