//! Tokens: the verifier decides how they are checked, and each is good for its own routes alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::Method;
use serde_json::{Value, json};
use weft_grants::{AccessClaims, GrantClaims, mint_access, mint_grant};

use crate::stage::{Client, Stage};

fn encoded(json: &str) -> String {
    URL_SAFE_NO_PAD.encode(json)
}

/// A token of the parts of `good` under another header.
fn with_header(good: &str, header: &str) -> String {
    let (_, rest) = good.split_once('.').unwrap();
    format!("{}.{rest}", encoded(header))
}

fn kid(good: &str) -> String {
    let header = URL_SAFE_NO_PAD
        .decode(good.split('.').next().unwrap())
        .unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    header["kid"].as_str().unwrap().to_owned()
}

/// Every way in which a copy of a good grant can be bad.
fn bad_copies(good: &str) -> Vec<String> {
    let kid = kid(good);
    let parts: Vec<&str> = good.split('.').collect();
    let header = |fields: &str| with_header(good, &format!(r#"{{{fields},"kid":"{kid}"}}"#));
    let mut bad = vec![
        header(r#""alg":"none","typ":"weft-grant+jwt""#),
        header(r#""alg":"None","typ":"weft-grant+jwt""#),
        header(r#""alg":"nOnE","typ":"weft-grant+jwt""#),
        header(r#""alg":"HS256","typ":"weft-grant+jwt""#),
        header(r#""alg":"EdDSA","typ":"JWT""#),
        header(r#""alg":"EdDSA","alg":"EdDSA","typ":"weft-grant+jwt""#),
        header(r#""alg":"EdDSA","typ":"weft-grant+jwt","jku":"https://evil.example""#),
        header(r#""alg":"EdDSA","typ":"weft-grant+jwt","crit":["exp"]"#),
        with_header(
            good,
            r#"{"alg":"EdDSA","typ":"weft-grant+jwt","kid":"unknown"}"#,
        ),
        format!("{}.{}", parts[0], parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{good}.{}", parts[2]),
        format!("{good}AA"),
        "x".repeat(9000),
    ];
    for at in [0, parts[0].len() + 2, good.len() - 8] {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        bad.push(String::from_utf8(bytes).unwrap());
    }
    bad
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_copy_is_refused_by_name_and_spends_nothing() {
    let stage = Stage::open().await;
    let good = stage.grant("builds", 1).await;
    let mut client = stage.tcp().await;
    for bad in bad_copies(&good) {
        let reply = client.publish("builds", Some(&bad), &json!({})).await;
        assert!(
            matches!(reply.slug(), "grant-malformed" | "grant-signature"),
            "{bad}: {}",
            reply.text
        );
        assert_eq!(reply.status, 401);
        assert!(reply.header("www-authenticate").starts_with("Bearer "));
        assert!(!reply.text.contains(&bad[..8]), "{}", reply.text);
    }
    assert!(stage.events("builds").await.is_empty());
    assert_eq!(
        client
            .publish("builds", Some(&good), &json!({}))
            .await
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn times_and_addresses_are_checked() {
    let stage = Stage::open().await;
    let now = weft_actors::house::now_ms() / 1000;
    let claims = GrantClaims {
        iss: stage.house.node_id(),
        aud: stage.house.audience(),
        jti: "g-1".into(),
        topic: "builds".into(),
        kind: None,
        eid: None,
        uses: 1,
        iat: now,
        nbf: None,
        exp: now + 3600,
    };
    let cases = [
        (
            GrantClaims {
                exp: now - 60,
                ..claims.clone()
            },
            "grant-expired",
        ),
        (
            GrantClaims {
                iat: now + 600,
                ..claims.clone()
            },
            "grant-early",
        ),
        (
            GrantClaims {
                nbf: Some(now + 600),
                ..claims.clone()
            },
            "grant-early",
        ),
        (
            GrantClaims {
                aud: "weft:mesh:other".into(),
                ..claims.clone()
            },
            "grant-malformed",
        ),
        (
            GrantClaims {
                iss: "n-other".into(),
                ..claims.clone()
            },
            "grant-malformed",
        ),
        // Signed by us, but never entered in the ledger.
        (claims, "grant-revoked"),
    ];
    let mut client = stage.tcp().await;
    for (claims, slug) in cases {
        let token = mint_grant(&stage.house.keys(), &claims);
        let reply = client
            .publish("builds", Some(token.expose()), &json!({}))
            .await;
        assert_eq!((reply.slug(), reply.status), (slug, 401), "{claims:?}");
    }
    assert!(stage.events("builds").await.is_empty());
}

async fn get(client: &mut Client, path: &str, token: &str) -> (String, u16) {
    let reply = client
        .get(path, &[("authorization", &format!("Bearer {token}"))])
        .await;
    (reply.slug().to_owned(), reply.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_token_is_good_for_what_it_says_and_nothing_else() {
    let stage = Stage::open().await;
    let grant = stage.grant("builds", 1).await;
    let reader = stage.token(&["mesh:read:builds", "tasks:read"]).await;
    let writer = stage.token(&["mesh:publish:builds.*"]).await;
    let mut client = stage.tcp().await;
    for path in [
        "/v1/tasks",
        "/v1/topics/builds/events",
        "/v1/events?topics=builds",
        "/metrics",
        "/v1/grants",
    ] {
        assert_eq!(
            get(&mut client, path, &grant).await,
            ("grant-malformed".into(), 401),
            "{path}"
        );
    }
    let reply = client.publish("builds", Some(&reader), &json!({})).await;
    assert_eq!((reply.slug(), reply.status), ("forbidden", 403));
    assert!(
        reply
            .header("www-authenticate")
            .contains("insufficient_scope")
    );
    assert!(
        reply.body["detail"]
            .as_str()
            .unwrap()
            .contains("mesh:publish"),
        "{}",
        reply.text
    );
    assert_eq!(
        get(&mut client, "/v1/topics/builds/events", &reader)
            .await
            .1,
        200
    );
    assert_eq!(
        get(&mut client, "/v1/topics/other/events", &reader).await,
        ("forbidden".into(), 403)
    );
    assert_eq!(
        get(&mut client, "/v1/events?topics=builds,other", &reader).await,
        ("forbidden".into(), 403)
    );
    assert_eq!(get(&mut client, "/v1/tasks", &reader).await.1, 200);
    assert_eq!(
        get(&mut client, "/v1/tokens", &reader).await,
        ("forbidden".into(), 403)
    );
    assert_eq!(
        client
            .publish("builds", Some(&writer), &json!({}))
            .await
            .status,
        403
    );
    let reply = client.publish("builds.x", Some(&writer), &json!({})).await;
    assert_eq!(
        (
            reply.status,
            &reply.body["origin"],
            &reply.body["untrusted"]
        ),
        (200, &json!("external"), &json!(true))
    );
    assert!(reply.body["from"].as_str().unwrap().starts_with("token:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_refused_on_a_connection_that_used_it() {
    let stage = Stage::open().await;
    let made = stage
        .call("tokens.create", json!({"scopes": ["tasks:read"]}))
        .await;
    let token = made["token"].as_str().unwrap();
    let mut client = stage.tcp().await;
    assert_eq!(get(&mut client, "/v1/tasks", token).await.1, 200);
    stage
        .call("tokens.revoke", json!({"tokenId": made["tokenId"]}))
        .await;
    assert_eq!(get(&mut client, "/v1/tasks", token).await.1, 401);
    let now = weft_actors::house::now_ms() / 1000;
    let unknown = AccessClaims {
        iss: stage.house.node_id(),
        aud: stage.house.audience(),
        jti: "a-1".into(),
        sub: "x".into(),
        scope: "admin".into(),
        iat: now,
        nbf: None,
        exp: now + 60,
    };
    let unknown = mint_access(&stage.house.keys(), &unknown);
    assert_eq!(get(&mut client, "/v1/tasks", unknown.expose()).await.1, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_credential_tcp_answers_only_what_is_public() {
    let stage = Stage::open().await;
    let mut client = stage.tcp().await;
    for path in [
        "/v1/tasks",
        "/v1/events?topics=a",
        "/v1/topics/a/events",
        "/metrics",
    ] {
        let reply = client.get(path, &[]).await;
        assert_eq!(
            (reply.slug(), reply.header("www-authenticate")),
            ("unauthorized", "Bearer realm=\"weft\""),
            "{path}"
        );
    }
    assert_eq!(client.publish("a", None, &json!({})).await.status, 401);
    assert_eq!(client.get("/healthz", &[]).await.status, 200);
    let ready = client.get("/readyz", &[]).await;
    assert_eq!(
        (ready.status, &ready.body["durability"]),
        (200, &json!("fsync"))
    );
    let keys = client.get("/.well-known/jwks.json", &[]).await;
    assert_eq!(keys.body, stage.house.keys().jwks());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_is_shown_decides_alone() {
    let stage = Stage::open().await;
    let good = stage.token(&["tasks:read"]).await;
    let bearer = format!("Bearer {good}");
    let mut client = stage.unix().await;
    // On the Unix socket a bad token is no weaker than none would be.
    for bad in ["Bearer x.y.z", "Basic abc", "Bearer"] {
        assert_eq!(
            client
                .get("/v1/tasks", &[("authorization", bad)])
                .await
                .status,
            401,
            "{bad}"
        );
    }
    let both = [
        ("authorization", bearer.as_str()),
        ("authorization", bearer.as_str()),
    ];
    assert_eq!(client.get("/v1/tasks", &both).await.status, 401);
    for query in ["access_token=x", &format!("all={good}"), "token=x"] {
        let reply = client
            .get(&format!("/v1/tasks?{query}"), &[("authorization", &bearer)])
            .await;
        assert_eq!((reply.slug(), reply.status), ("token-in-query", 400));
        assert!(!reply.text.contains(&good));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_shows_a_token_wherever_it_was_put() {
    let stage = Stage::open().await;
    let token = stage.token(&["admin"]).await;
    let mut client = stage.unix().await;
    let bodies = [
        json!({"all": token}),
        json!({(token.as_str()): 1}),
        json!({"all": true, "states": token}),
    ];
    for body in bodies {
        let reply = client.post("/v1/call/tasks.list", &[], &body).await;
        assert_eq!(reply.status, 422);
        assert!(!reply.text.contains(&token[..40]), "{}", reply.text);
    }
    let path = format!("/v1/tasks/{token}");
    let reply = client.send(Method::GET, &path, &[], b"").await;
    assert_eq!(reply.status, 404);
    assert!(!reply.text.contains(&token[..40]), "{}", reply.text);
}
