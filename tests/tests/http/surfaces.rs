//! What monitors and other nodes ask, and the stop of a node as its callers see it.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use weft_tests::eventually;

use super::Scene;

#[test]
fn liveness_and_readiness_need_no_token_and_say_little() {
    let scene = Scene::new();
    let live = scene.tcp().get("/healthz");
    assert_eq!((live.status, &live.body), (200, &json!({"status": "ok"})));
    let ready = scene.tcp().get("/readyz").ok("ready");
    assert_eq!(
        (&ready["status"], &ready["durability"]),
        (&json!("ready"), &json!("fsync"))
    );
    assert_eq!(scene.tcp().get("/metrics").status, 401);
    let metrics = scene.unix().get("/metrics");
    assert_eq!(metrics.status, 200);
    for name in [
        "weft_http_requests_total",
        "weft_tasks_running",
        "weft_mesh_sequence",
        "weft_http_streams",
    ] {
        assert!(metrics.text.contains(name), "{name}: {}", metrics.text);
    }
}

#[test]
fn anybody_with_the_published_keys_can_check_a_grant() {
    let scene = Scene::new();
    let answer = scene.tcp().get("/.well-known/jwks.json");
    assert!(
        answer
            .header("cache-control")
            .is_some_and(|it| it.contains("max-age")),
        "{answer:?}"
    );
    let keys = answer.ok("the keys");
    let list = keys["keys"].as_array().unwrap();
    assert_eq!(list.len(), 1);
    let key = &list[0];
    assert_eq!(
        (&key["kty"], &key["crv"], &key["alg"]),
        (&json!("OKP"), &json!("Ed25519"), &json!("EdDSA"))
    );
    assert!(key.get("d").is_none(), "the private half is shown");
    let x = key["x"].as_str().unwrap();
    let thumbprint = BASE64.encode(Sha256::digest(format!(
        r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#
    )));
    assert_eq!(key["kid"], thumbprint);

    let grant = scene.stage.call(
        "mesh.grant",
        json!({"topic": "builds", "kind": "k", "uses": 3}),
    );
    let token = grant["token"].as_str().unwrap();
    let (head, signature) = token.rsplit_once('.').unwrap();
    let raw: [u8; 32] = BASE64.decode(x).unwrap().try_into().unwrap();
    let signature = Signature::from_slice(&BASE64.decode(signature).unwrap()).unwrap();
    VerifyingKey::from_bytes(&raw)
        .unwrap()
        .verify_strict(head.as_bytes(), &signature)
        .expect("a good signature");
    let part = |at: usize| -> Value {
        serde_json::from_slice(&BASE64.decode(token.split('.').nth(at).unwrap()).unwrap()).unwrap()
    };
    assert_eq!(
        part(0),
        json!({"alg": "EdDSA", "typ": "weft-grant+jwt", "kid": thumbprint})
    );
    let claims = part(1);
    assert_eq!(
        (&claims["topic"], &claims["kind"], &claims["uses"]),
        (&json!("builds"), &json!("k"), &json!(3))
    );
    assert_eq!(claims["jti"], grant["grantId"]);
    assert!(
        claims["aud"].as_str().unwrap().starts_with("weft:mesh:"),
        "{claims}"
    );
    assert_eq!(
        claims["exp"].as_u64().unwrap() * 1000,
        grant["expiresAt"].as_u64().unwrap()
    );
    assert_eq!(
        claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(),
        86_400
    );
    // Keys outlive the node.
    let before = keys.clone();
    scene.node.terminate();
    let _node = scene.stage.node(&[]);
    assert_eq!(
        scene
            .stage
            .client()
            .get("/.well-known/jwks.json")
            .ok("the keys"),
        before
    );
}

#[test]
fn a_node_that_stops_says_so_to_everyone_who_waits() {
    let scene = Scene::new();
    let client = scene.unix();
    let id = weft_tests::tasks::start(
        &client,
        json!({"argv": ["sleep", "60"], "lease": "durable"}),
    );
    let waits: Vec<(&str, Value)> = vec![
        ("mesh.read", json!({"topics": ["builds"], "waitMs": 60_000})),
        ("tasks.wait", json!({"id": id, "timeoutMs": 60_000})),
        ("tasks.read", json!({"id": id, "waitMs": 60_000})),
        (
            "tasks.watch",
            json!({"id": id, "match": "never", "timeoutMs": 60_000}),
        ),
        ("inbox.read", json!({"waitMs": 60_000})),
    ];
    let open = waits.len() + 2;
    let answers = std::thread::scope(|scope| {
        let mut asks: Vec<_> = waits
            .iter()
            .map(|(reference, input)| {
                let client = client.clone();
                scope.spawn(move || (*reference, client.call(reference, input.clone())))
            })
            .collect();
        let topic = client.clone();
        asks.push(
            scope.spawn(move || ("topic", topic.get("/v1/topics/builds/events?waitMs=60000"))),
        );
        let stream = client.clone();
        let (tell, told) = std::sync::mpsc::channel();
        let reader = scope.spawn(move || {
            let mut last = weft_tests::SseEvent::default();
            let ended = stream.stream("/v1/events?topics=builds", |event| {
                let _ = tell.send(());
                last = event;
                true
            });
            ended.map(|()| last)
        });
        told.recv().expect("the stream is open");
        eventually("all are waiting", || {
            let metrics = client.get("/metrics").text;
            let line = metrics
                .lines()
                .find_map(|line| line.strip_prefix("weft_http_requests_open "))?;
            (line.parse::<usize>().ok()? > open).then_some(())
        });
        let (code, log) = scene.node.terminate();
        assert_eq!(code, 0, "{log}");
        let last = reader.join().unwrap().expect("a whole stream");
        assert_eq!(last.name, "end", "{last:?}");
        assert!(last.data.contains("node-stopping"), "{last:?}");
        asks.into_iter()
            .map(|ask| ask.join().unwrap())
            .collect::<Vec<_>>()
    });
    for (what, answer) in answers {
        assert_eq!(
            (answer.status, answer.slug().as_str()),
            (503, "node-stopping"),
            "{what}: {}",
            answer.text
        );
        assert!(answer.header("retry-after").is_some(), "{what}");
    }
    // The task goes on, and the next node has it.
    let task = weft_tests::tasks::record(&scene.stage.client(), &id);
    assert_eq!(task["state"], "running");
}
