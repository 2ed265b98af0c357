//! Requests that are wrong in themselves: fields, bodies, heads, garbage.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};
use weft_tests::{Answer, Client};

use super::Scene;

#[track_caller]
fn assert_problem(answer: &Answer, status: u16, slug: &str) {
    assert_eq!(
        (answer.status, answer.slug().as_str()),
        (status, slug),
        "{}",
        answer.text
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.body["status"], status);
    for field in ["title", "detail"] {
        assert!(
            answer.body[field]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{}",
            answer.text
        );
    }
}

#[test]
fn unknown_and_misused_fields_are_named() {
    let scene = Scene::new();
    let client = scene.unix();
    let cases: &[(&str, &str, Value, &str)] = &[
        (
            "POST",
            "/v1/tasks",
            json!({"argv": ["true"], "cmd": "x"}),
            "cmd",
        ),
        (
            "POST",
            "/v1/tasks",
            json!({"argv": ["true"], "lease": "durable", "timeoutMs": -1}),
            "",
        ),
        ("POST", "/v1/tasks/t-x/stop", json!({"id": "t-y"}), "id"),
        ("POST", "/v1/tasks/t-x/stop", json!({"grace": 1}), "grace"),
        (
            "POST",
            "/v1/topics/builds/events",
            json!({"topic": "other"}),
            "topic",
        ),
        (
            "POST",
            "/v1/topics/builds/events",
            json!({"from": "me"}),
            "from",
        ),
        (
            "POST",
            "/v1/topics/builds/events",
            json!({"sequence": 1}),
            "sequence",
        ),
        (
            "POST",
            "/v1/call/mesh.publish",
            json!({"topic": "a", "untrusted": false}),
            "untrusted",
        ),
        ("POST", "/v1/call/mesh.publish", json!({}), "topic"),
        (
            "POST",
            "/v1/call/mesh.read",
            json!({"waitMs": 300_001}),
            "waitMs",
        ),
        ("POST", "/v1/call/mesh.read", json!({"limit": 0}), "limit"),
        (
            "POST",
            "/v1/call/mesh.read",
            json!({"limit": 1001}),
            "limit",
        ),
        (
            "POST",
            "/v1/call/mesh.read",
            json!({"topics": []}),
            "topics",
        ),
        ("POST", "/v1/call/mesh.topics", json!({"all": true}), "all"),
        (
            "POST",
            "/v1/residents",
            json!({"name": "a b", "topics": ["x"], "handler": {"exec": {"argv": ["true"]}}}),
            "name",
        ),
        (
            "POST",
            "/v1/residents",
            json!({"name": "r", "topics": [], "handler": {"exec": {"argv": ["true"]}}}),
            "topics",
        ),
        (
            "POST",
            "/v1/residents",
            json!({"name": "r", "topics": ["x"], "handler": {"exec": {"argv": []}}}),
            "handler.exec.argv",
        ),
        (
            "POST",
            "/v1/residents",
            json!({"name": "r", "topics": ["x"], "handler": {"exec": {"argv": ["a"]}}, "retries": 101}),
            "retries",
        ),
        (
            "GET",
            "/v1/tasks?everything=true",
            Value::Null,
            "everything",
        ),
        ("GET", "/v1/tasks?all=maybe", Value::Null, "all"),
        ("GET", "/v1/tasks?all=true&all=true", Value::Null, "all"),
        (
            "GET",
            "/v1/topics/builds/events?waitMs=soon",
            Value::Null,
            "waitMs",
        ),
        (
            "GET",
            "/v1/topics/builds/events?waitMs=300001",
            Value::Null,
            "waitMs",
        ),
        (
            "GET",
            "/v1/topics/builds/events?limit=1001",
            Value::Null,
            "limit",
        ),
        ("GET", "/v1/events", Value::Null, "topics"),
        ("GET", "/v1/events?topics=a&from=now", Value::Null, "from"),
        ("GET", "/v1/sessions/cli/inbox?max=9", Value::Null, "max"),
    ];
    for (method, path, body, field) in cases {
        let body = (!body.is_null()).then(|| body.to_string());
        let answer = client.send(method, path, body.clone()).expect("an answer");
        assert_problem(&answer, 422, "invalid-argument");
        if !field.is_empty() {
            assert_eq!(
                answer.body["field"], *field,
                "{method} {path} {body:?}: {}",
                answer.text
            );
            assert!(
                answer.body["detail"].as_str().unwrap().contains(field),
                "{}",
                answer.text
            );
        }
    }
    assert!(scene.is_untouched());
    assert_eq!(scene.stage.events(&[">"]).len(), 0);
}

#[test]
fn what_is_not_there_is_told_apart() {
    let client = Scene::new();
    let client = (client.unix(), client);
    let unix = client.0;
    assert_problem(&unix.get("/v1/nowhere"), 404, "no-route");
    assert_problem(&unix.get("/v1/tasks/t-none"), 404, "not-found");
    assert_problem(&unix.call("tasks.fly", json!({})), 404, "unknown-action");
    assert_problem(
        &unix.post("/v1/residents/none/tell", &json!({"text": "x"})),
        404,
        "not-found",
    );
    let not_allowed = unix.send("DELETE", "/v1/tasks", None).unwrap();
    assert_problem(&not_allowed, 405, "method-not-allowed");
    assert!(
        not_allowed
            .header("allow")
            .is_some_and(|allow| allow.contains("POST"))
    );
    // A topic without events is empty, not missing.
    let page = unix.get("/v1/topics/never/events").ok("an empty topic");
    assert_eq!(
        (&page["events"], &page["omitted"], &page["next"]),
        (&json!([]), &json!([]), &json!(0))
    );
}

#[test]
fn bodies_are_one_json_object() {
    let scene = Scene::new();
    let client = scene.unix();
    let send = |body: &str| {
        client
            .send("POST", "/v1/topics/builds/events", Some(body.to_owned()))
            .expect("an answer")
    };
    for (body, status, slug) in [
        ("{", 400, "invalid-json"),
        ("text=1", 400, "invalid-json"),
        ("{} {}", 400, "invalid-json"),
        ("{\"text\":\"\u{0}\"}", 400, "invalid-json"),
        ("[1]", 422, "invalid-argument"),
        ("1", 422, "invalid-argument"),
        (r#"{"text":1}"#, 422, "invalid-argument"),
        (r#"{"text":"a","text":"b"}"#, 422, "invalid-argument"),
    ] {
        assert_problem(&send(body), status, slug);
    }
    let deep = format!(r#"{{"data":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    assert_problem(&send(&deep), 422, "payload-invalid");
    let bottomless = format!(r#"{{"data":{}"#, "[".repeat(400_000));
    assert_problem(&send(&bottomless), 400, "invalid-json");
    assert_eq!(scene.stage.events(&["builds"]).len(), 0);
    for (kind, encoding) in [
        ("text/plain", ""),
        ("application/json; charset=latin1", ""),
        ("application/json", "gzip"),
    ] {
        let client = client.clone().with("content-type", kind);
        let client = if encoding.is_empty() {
            client
        } else {
            client.with("content-encoding", encoding)
        };
        assert_problem(
            &client
                .send("POST", "/v1/topics/builds/events", Some("{}".into()))
                .unwrap(),
            415,
            "content-type",
        );
    }
    let good = client.with("content-type", "Application/JSON; charset=UTF-8");
    assert_eq!(
        good.send("POST", "/v1/topics/builds/events", Some("{}".into()))
            .unwrap()
            .status,
        200
    );
}

#[test]
fn sizes_are_bounded_and_told() {
    let scene = Scene::new();
    let client = scene.unix();
    let event = |bytes: usize| {
        client.post(
            "/v1/topics/builds/events",
            &json!({"text": "x".repeat(bytes)}),
        )
    };
    assert_eq!(event(256 * 1024).status, 200);
    let over = event(256 * 1024 + 1);
    assert_problem(&over, 413, "payload-too-large");
    assert_eq!(
        (&over.body["limit"], &over.body["size"]),
        (&json!(256 * 1024), &json!(256 * 1024 + 1))
    );

    let token = scene.stage.token(&["admin"]);
    let head = format!(
        "POST /v1/topics/builds/events HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n",
        scene.address()
    );
    let told = scene
        .tcp()
        .raw(format!("{head}Content-Length: 4194305\r\n\r\n").as_bytes());
    assert_eq!(
        (told.status, told.slug().as_str()),
        (413, "body-too-large"),
        "{told:?}"
    );
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..65 {
        chunked.extend_from_slice(format!("10000\r\n{}\r\n", " ".repeat(65_536)).as_bytes());
    }
    let told = scene.tcp().raw(&chunked);
    assert_eq!(
        (told.status, told.slug().as_str()),
        (413, "body-too-large"),
        "{told:?}"
    );

    let long = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\nX: {}\r\n\r\n",
        scene.address(),
        "x".repeat(40_000)
    );
    assert!(matches!(scene.tcp().raw(long.as_bytes()).status, 431 | 0));
    let many = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\n{}\r\n",
        scene.address(),
        "X: y\r\n".repeat(100)
    );
    assert!(matches!(scene.tcp().raw(many.as_bytes()).status, 431 | 0));
    let address = format!(
        "GET /{} HTTP/1.1\r\nHost: {}\r\n\r\n",
        "x".repeat(70_000),
        scene.address()
    );
    assert!(matches!(
        scene.tcp().raw(address.as_bytes()).status,
        414 | 431 | 0
    ));
    assert_eq!(scene.stage.events(&["builds"]).len(), 1);
    assert_eq!(client.get("/healthz").status, 200);
}

/// Bytes that no two rounds share and every run repeats.
fn noise(mut seed: u64, count: usize) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    (0..count).map(|_| next().to_le_bytes()[3]).collect()
}

#[test]
fn garbage_ends_its_own_connection_and_nothing_else() {
    let scene = Scene::new();
    let host = scene.address().to_owned();
    let doors = || [scene.tcp(), scene.unix()];
    let mut garbage: Vec<Vec<u8>> = (1..12).map(|seed| noise(seed, 512)).collect();
    garbage.extend(
        [
            "\r\n\r\n\r\n".to_owned(),
            "GET\r\n\r\n".to_owned(),
            "GET / HTTP/9.9\r\n\r\n".to_owned(),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned(),
            format!("GET /v1/tasks HTTP/1.1\r\nHost: {host}\r\nX\r\n\r\n"),
            format!("GET /v1/tasks HTTP/1.1\r\nHost : {host}\r\n\r\n"),
            format!("POST /v1/tasks HTTP/1.1\r\nHost: {host}\r\nContent-Length: -1\r\n\r\n"),
            format!("POST /v1/tasks HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
            format!("POST /v1/tasks HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\nConnection: close\r\n\r\nZZ\r\n"),
            format!("GET /v1/tasks/%ff%fe HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
            format!("GET /v1/tasks/%zz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
            format!("GET /v1/call/../tokens HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        ]
        .map(String::into_bytes),
    );
    for door in doors() {
        for bytes in &garbage {
            let mut bare = door.bare();
            let _ = bare.write_all(bytes);
            // Whoever sends noise may be waited for; closing our side ends it.
            drop(bare);
        }
        // What begins with letters and is a whole head needs no wait for more.
        let whole = |bytes: &[u8]| bytes[0].is_ascii_uppercase() && bytes.ends_with(b"\r\n\r\n");
        for bytes in garbage.iter().filter(|bytes| whole(bytes)) {
            let answer = door.raw(bytes);
            assert!(
                answer.status == 0 || (400..600).contains(&answer.status),
                "{:?}: {answer:?}",
                String::from_utf8_lossy(bytes)
            );
        }
        assert_eq!(door.get("/healthz").status, 200);
    }
    assert!(scene.is_untouched());
}

#[test]
fn smuggled_requests_are_none() {
    let scene = Scene::new();
    let token = scene.stage.token(&["admin"]);
    let inner = format!(
        "POST /v1/topics/smuggled/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n",
        scene.address()
    );
    let outer = format!(
        "POST /v1/topics/builds/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}",
        scene.address()
    );
    let mut bare = scene.tcp().bare();
    bare.write_all(outer.as_bytes()).unwrap();
    let mut first = [0; 1024];
    let _ = bare.read(&mut first);
    drop(bare);
    // With both lengths the outer one is refused, or closed after; what follows is never a request of its own.
    let probe = scene
        .unix()
        .get("/v1/topics/smuggled/events")
        .ok("the topic");
    assert_eq!(probe["events"], json!([]));
}

#[test]
fn the_same_request_twice_is_one() {
    let scene = Scene::new();
    let client = scene.unix();
    let keyed = |key: &str| client.clone().with("idempotency-key", key);
    let body = json!({"argv": ["true"], "lease": "durable", "label": "once"});
    let one = keyed("key-1").post("/v1/tasks", &body).ok("the first");
    let two = keyed("key-1").post("/v1/tasks", &body).ok("the second");
    assert_eq!(one["id"], two["id"]);
    assert_problem(
        &keyed("key-1").post("/v1/tasks", &json!({"argv": ["false"], "lease": "durable"})),
        422,
        "request-id-reused",
    );
    let mut inside = body.clone();
    inside["requestId"] = json!("key-2");
    let differs = keyed("key-1").post("/v1/tasks", &inside);
    assert_problem(&differs, 422, "invalid-argument");
    assert_eq!(differs.body["field"], "requestId");
    // The key is the caller's own: of another session it is another key.
    let other = keyed("key-1")
        .session("other")
        .post("/v1/tasks", &body)
        .ok("another caller");
    assert_ne!(one["id"], other["id"]);

    let publish = |client: &Client, text: &str| {
        client.post("/v1/topics/builds/events", &json!({"text": text}))
    };
    let first = publish(&keyed("event-1"), "a").ok("an event");
    let again = publish(&keyed("event-1"), "a").ok("the event again");
    assert_eq!(
        (&first["sequence"], &again["duplicate"]),
        (&again["sequence"], &json!(true))
    );
    assert!(matches!(publish(&keyed("event-1"), "b").status, 409 | 422));
    assert_eq!(scene.stage.events(&["builds"]).len(), 1);
    let tasks = client
        .call("tasks.list", json!({"all": true}))
        .ok("tasks.list");
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 2);
    for key in ["", &"k".repeat(500)] {
        let answer = keyed(key).post("/v1/tasks", &body);
        assert_problem(&answer, 422, "invalid-argument");
    }
}

#[test]
fn twice_at_once_is_one_as_well() {
    let scene = Scene::new();
    let client = scene.unix().with("idempotency-key", "at-once");
    let body = json!({"argv": ["true"], "lease": "durable"});
    let ids: Vec<Value> = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| client.post("/v1/tasks", &body).ok("a task")["id"].clone()))
            .collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn data_is_taken_as_deep_as_every_reader_takes_it_and_no_deeper() {
    let scene = Scene::new();
    let client = Client::unix(scene.stage.home());
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let by_post = |depth| {
        let body = format!("{{\"data\":{}}}", nested(depth));
        client.send("POST", "/v1/topics/deep/events", Some(body))
    };
    let by_action = |depth| {
        let body = format!("{{\"topic\":\"deep\",\"data\":{}}}", nested(depth));
        client.send("POST", "/v1/call/mesh.publish", Some(body))
    };
    for deepest in [by_post(100), by_action(100)] {
        let _ = deepest.expect("an answer").ok("a publish");
    }
    for deeper in [by_post(101), by_action(101), by_action(124)] {
        assert_problem(&deeper.expect("an answer"), 422, "payload-invalid");
    }
    let read = scene.stage.run(["--json", "mesh", "read", "deep"]);
    assert_eq!(
        read.expect_code(0).stdout.matches(&nested(100)).count(),
        2,
        "both are read again"
    );
}
