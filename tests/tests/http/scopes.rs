//! What each scope may do, and what not.

use serde_json::{Value, json};
use weft_tests::{Client, eventually};

use super::Scene;

/// A request, and the scopes of which one is enough. `admin` always is.
struct Right {
    method: &'static str,
    path: &'static str,
    body: Option<Value>,
    scopes: &'static [&'static str],
}

fn right(
    method: &'static str,
    path: &'static str,
    body: Option<Value>,
    scopes: &'static [&'static str],
) -> Right {
    Right {
        method,
        path,
        body,
        scopes,
    }
}

/// The surface, by what it needs. Bodies are such that a caller who is let in changes nothing that matters.
fn surface() -> Vec<Right> {
    vec![
        right("GET", "/v1/tasks", None, &["tasks:read"]),
        right("GET", "/v1/tasks/t-none", None, &["tasks:read"]),
        right("GET", "/v1/tasks/t-none/output", None, &["tasks:read"]),
        right("GET", "/v1/external", None, &["tasks:read"]),
        right(
            "POST",
            "/v1/call/node.status",
            Some(json!({})),
            &["tasks:read"],
        ),
        right(
            "POST",
            "/v1/call/capabilities",
            Some(json!({})),
            &["tasks:read"],
        ),
        right(
            "POST",
            "/v1/call/tasks.wait",
            Some(json!({"id": "t-none"})),
            &["tasks:read"],
        ),
        right(
            "POST",
            "/v1/tasks",
            Some(json!({"argv": ["true"], "lease": "durable"})),
            &["tasks:run"],
        ),
        right(
            "POST",
            "/v1/tasks/t-none/stop",
            Some(json!({})),
            &["tasks:run"],
        ),
        right(
            "POST",
            "/v1/tasks/t-none/adopt",
            Some(json!({})),
            &["tasks:run"],
        ),
        right(
            "POST",
            "/v1/tasks/t-none/lease",
            Some(json!({"lease": "durable"})),
            &["tasks:run"],
        ),
        right("GET", "/v1/topics/builds/events", None, &["mesh:read"]),
        right(
            "POST",
            "/v1/call/mesh.read",
            Some(json!({"topics": ["builds"]})),
            &["mesh:read"],
        ),
        right(
            "POST",
            "/v1/call/mesh.read",
            Some(json!({})),
            &["mesh:read"],
        ),
        right("GET", "/v1/topics", None, &["mesh:read"]),
        right(
            "POST",
            "/v1/topics/builds/events",
            Some(json!({})),
            &["mesh:publish"],
        ),
        right(
            "POST",
            "/v1/call/mesh.publish",
            Some(json!({"topic": "builds"})),
            &["mesh:publish"],
        ),
        right(
            "POST",
            "/v1/call/mesh.publishBatch",
            Some(json!({"events": [{"topic": "builds"}]})),
            &["mesh:publish"],
        ),
        right(
            "POST",
            "/v1/grants",
            Some(json!({"topic": "builds"})),
            &["grants:mint"],
        ),
        right("GET", "/v1/grants", None, &["grants:mint"]),
        right("DELETE", "/v1/grants/g-none", None, &["grants:mint"]),
        right("GET", "/v1/residents", None, &["participants:read"]),
        right(
            "GET",
            "/v1/residents/none/log",
            None,
            &["participants:read"],
        ),
        right(
            "POST",
            "/v1/residents",
            Some(json!({"name": "r", "topics": ["builds"]})),
            &["residents:write"],
        ),
        right("DELETE", "/v1/residents/none", None, &["residents:write"]),
        right(
            "POST",
            "/v1/tokens",
            Some(json!({"scopes": ["tasks:read"]})),
            &[],
        ),
        right("GET", "/v1/tokens", None, &[]),
        right("DELETE", "/v1/tokens/k-none", None, &[]),
    ]
}

#[test]
fn each_scope_may_what_its_name_says_and_no_more() {
    let scene = Scene::new();
    let surface = surface();
    for scope in [
        "admin",
        "mesh:read",
        "mesh:publish",
        "tasks:read",
        "tasks:run",
    ] {
        let client = scene.tcp().bearer(&scene.stage.token(&[scope]));
        for Right {
            method,
            path,
            body,
            scopes,
        } in &surface
        {
            let answer = client
                .send(method, path, body.as_ref().map(Value::to_string))
                .expect("an answer");
            let may = scope == "admin" || scopes.contains(&scope);
            let was_let_in = !matches!(answer.status, 401 | 403);
            assert_eq!(
                was_let_in, may,
                "{scope}: {method} {path}: {} {}",
                answer.status, answer.text
            );
            assert!(
                answer.status < 500,
                "{scope}: {method} {path}: {}",
                answer.text
            );
            if !may {
                assert_eq!(
                    (answer.status, answer.slug().as_str()),
                    (403, "forbidden"),
                    "{method} {path}"
                );
                assert!(
                    answer
                        .header("www-authenticate")
                        .is_some_and(|it| it.contains("insufficient_scope")),
                    "{answer:?}"
                );
            }
        }
    }
    // `admin` may end the node; nobody else.
    for scope in ["mesh:read", "mesh:publish", "tasks:read", "tasks:run"] {
        let client = scene.tcp().bearer(&scene.stage.token(&[scope]));
        assert_eq!(client.call("node.stop", json!({})).status, 403, "{scope}");
    }
    let admin = scene.tcp().bearer(&scene.stage.token(&["admin"]));
    admin.call("node.stop", json!({})).ok("node.stop");
    assert_eq!(scene.node.wait().0, 0);
}

#[test]
fn a_scope_for_some_topics_covers_those() {
    let scene = Scene::new();
    let client = |scope: &str| scene.tcp().bearer(&scene.stage.token(&[scope]));
    let read = client("mesh:read:builds.*");
    for (pattern, may) in [
        ("builds.a", true),
        ("builds.*", true),
        ("builds", false),
        ("builds.a.b", false),
        ("builds.>", false),
        (">", false),
        ("*", false),
        ("weft.timing", false),
    ] {
        let answer = read.call("mesh.read", json!({"topics": [pattern]}));
        assert_eq!(answer.status == 200, may, "{pattern}: {}", answer.text);
        let path = format!("/v1/events?topics={}", pattern.replace('>', "%3E"));
        let status = stream_status(&read, &path);
        assert_eq!(status == 200, may, "{path}: {status}");
    }
    assert_eq!(
        read.call("mesh.read", json!({"topics": ["builds.a", "other"]}))
            .status,
        403
    );
    assert_eq!(read.call("mesh.read", json!({})).status, 403);
    assert_eq!(read.get("/v1/topics/builds.a/events").status, 200);
    assert_eq!(read.get("/v1/topics/builds/events").status, 403);

    let publish = client("mesh:publish:builds");
    assert_eq!(
        publish.post("/v1/topics/builds/events", &json!({})).status,
        200
    );
    assert_eq!(
        publish
            .post("/v1/topics/builds.a/events", &json!({}))
            .status,
        403
    );
    let batch = json!({"events": [{"topic": "builds"}, {"topic": "other"}]});
    assert_eq!(publish.call("mesh.publishBatch", batch).status, 403);
    let events = scene.stage.events(&[">"]);
    assert_eq!(events.len(), 1);
    assert_eq!(
        (&events[0]["origin"], &events[0]["untrusted"]),
        (&json!("external"), &json!(true))
    );
    assert!(
        events[0]["from"].as_str().unwrap().starts_with("token:k-"),
        "{events:?}"
    );

    // The list shows only what the token covers.
    scene
        .stage
        .call("mesh.publish", json!({"topic": "builds.a"}));
    let topics = read.get("/v1/topics").ok("topics");
    let names: Vec<&Value> = topics["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|topic| &topic["topic"])
        .collect();
    assert_eq!(names, ["builds.a"]);
}

fn stream_status(client: &Client, path: &str) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        client
            .open("GET", path, None)
            .await
            .unwrap()
            .status()
            .as_u16()
    })
}

#[test]
fn a_token_acts_as_its_own_session() {
    let scene = Scene::new();
    let one = scene.tcp().bearer(
        &scene
            .stage
            .token(&["tasks:run", "tasks:read", "sessions:read"]),
    );
    let made = one
        .post("/v1/tasks", &json!({"argv": ["true"], "lease": "durable"}))
        .ok("a task");
    let session = made["session"].as_str().unwrap().to_owned();
    assert!(session.starts_with("token-"), "{session}");
    for answer in [
        one.get("/v1/sessions/cli/inbox"),
        one.clone().session("cli").get("/v1/tasks"),
        one.post(
            "/v1/tasks",
            &json!({"argv": ["true"], "lease": "durable", "session": "cli"}),
        ),
        one.call("inbox.read", json!({"session": "cli"})),
    ] {
        assert_eq!(
            (answer.status, answer.slug().as_str()),
            (403, "forbidden"),
            "{}",
            answer.text
        );
    }
    let items = eventually("the end is delivered", || {
        let items = one
            .get(&format!("/v1/sessions/{session}/inbox"))
            .ok("inbox")["items"]
            .clone();
        (items.as_array()?.len() == 1).then_some(items)
    });
    assert_eq!(items[0]["taskId"], made["id"]);
    let two = scene
        .tcp()
        .bearer(&scene.stage.token(&["tasks:read", "sessions:read"]));
    assert_eq!(
        two.call("inbox.read", json!({})).ok("the other inbox")["items"],
        json!([])
    );
    assert_eq!(
        two.get("/v1/tasks").ok("the other's tasks")["tasks"],
        json!([])
    );
}

#[test]
fn a_call_that_waits_ends_when_its_token_is_revoked() {
    let scene = Scene::new();
    let task = scene.stage.call(
        "tasks.run",
        json!({"argv": ["sleep", "1000"], "lease": "durable"}),
    );
    let id = task["id"].as_str().unwrap();
    let output = format!("/v1/tasks/{id}/output?waitMs=60000");
    for round in 0..5 {
        let topic = format!("a{round}");
        let events = format!("/v1/topics/{topic}/events?waitMs=60000");
        let waits: [(&str, &str, Option<String>); 4] = [
            ("GET", &events, None),
            ("GET", &output, None),
            (
                "POST",
                "/v1/call/tasks.wait",
                Some(json!({"id": id, "timeoutMs": 60_000}).to_string()),
            ),
            (
                "POST",
                "/v1/call/mesh.read",
                Some(json!({"topics": [topic], "waitMs": 60_000}).to_string()),
            ),
        ];
        let made = scene
            .stage
            .call("tokens.create", json!({"scopes": ["admin"]}));
        let client = scene.tcp().bearer(made["token"].as_str().unwrap());
        client.get("/v1/tasks").ok("the token is good");
        std::thread::scope(|scope| {
            let asked: Vec<_> = waits
                .iter()
                .map(|(method, path, body)| {
                    let client = client.clone();
                    scope.spawn(move || client.send(method, path, body.clone()).unwrap())
                })
                .collect();
            scene
                .stage
                .call("tokens.revoke", json!({"tokenId": made["tokenId"]}));
            // Nobody is told what happens afterwards, whether his call came before the end of its token or after it.
            scene.stage.call("mesh.publish", json!({"topic": topic}));
            for ask in asked {
                let answer = ask.join().unwrap();
                assert_eq!(
                    (answer.status, answer.slug().as_str()),
                    (401, "token-revoked"),
                    "{}",
                    answer.text
                );
            }
        });
    }
}

#[test]
fn a_token_ends_by_revoke_with_what_it_has_open() {
    let scene = Scene::new();
    let made = scene.stage.call(
        "tokens.create",
        json!({"scopes": ["mesh:read"], "name": "reader"}),
    );
    let client = scene.tcp().bearer(made["token"].as_str().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    let stream = client.clone();
    let follower = std::thread::spawn(move || {
        let mut last = weft_tests::SseEvent::default();
        stream
            .stream("/v1/events?topics=a", |event| {
                let _ = tell.send(());
                last = event;
                true
            })
            .map(|()| last)
    });
    told.recv().expect("the stream is open");
    scene
        .stage
        .call("tokens.revoke", json!({"tokenId": made["tokenId"]}));
    let farewell = follower.join().expect("no panic").expect("a whole stream");
    assert_eq!(farewell.name, "end", "{farewell:?}");
    assert!(farewell.data.contains("token-revoked"), "{farewell:?}");
    let answer = client.get("/v1/topics");
    assert_eq!(
        (answer.status, answer.slug().as_str()),
        (401, "token-revoked"),
        "{}",
        answer.text
    );
    let tokens = scene.stage.call("tokens.list", json!({}));
    assert!(!tokens.to_string().contains("eyJ"), "{tokens}");
    assert_eq!(scene.stage.run(["token", "revoke", "k-nobody"]).code, 1);
}

#[test]
fn no_token_makes_a_wider_or_longer_one() {
    let scene = Scene::new();
    let made = scene.stage.call(
        "tokens.create",
        json!({"scopes": ["admin"], "ttlMs": 120_000}),
    );
    let admin = scene.tcp().bearer(made["token"].as_str().unwrap());
    let child = admin
        .call(
            "tokens.create",
            json!({"scopes": ["mesh:read"], "ttlMs": 31_536_000_000_u64}),
        )
        .ok("a child");
    assert!(
        child["expiresAt"].as_u64() <= made["expiresAt"].as_u64(),
        "{child}"
    );
    for (input, field) in [
        (json!({"scopes": []}), "scopes"),
        (json!({"scopes": ["mesh:write"]}), "scopes"),
        (json!({"scopes": ["tasks:read:x"]}), "scopes"),
        (json!({"scopes": ["mesh:read:a.>.b"]}), "scopes"),
        (json!({"scopes": ["admin"], "ttlMs": 59_999}), "ttlMs"),
        (
            json!({"scopes": ["admin"], "ttlMs": 31_536_000_001_u64}),
            "ttlMs",
        ),
        (json!({"scope": "admin"}), "scope"),
    ] {
        let answer = scene.unix().call("tokens.create", input.clone());
        assert_eq!(
            (answer.status, answer.body["field"].as_str()),
            (422, Some(field)),
            "{input}: {}",
            answer.text
        );
    }
    let output = scene
        .stage
        .run([
            "token",
            "create",
            "--scope",
            "tasks:run",
            "--scope",
            "mesh:read",
        ])
        .expect_code(0);
    assert_eq!(output.stdout.trim().split('.').count(), 3);
    assert!(
        output.stderr.contains("run code here: tasks:run"),
        "{output:?}"
    );
}
