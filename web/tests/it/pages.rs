//! A web page cannot drive the local node.

use hyper::Method;
use serde_json::json;

use crate::stage::Stage;

const CHANGING: &[&str] = &[
    "/v1/call/tasks.run",
    "/v1/tasks/t-1/stop",
    "/v1/tasks/t-1/adopt",
    "/v1/tasks/t-1/lease",
    "/v1/external/t-1/adopt",
    "/v1/sessions/cli/ack",
    "/v1/residents/r/pause",
    "/v1/residents/r/resume",
    "/v1/residents/r/tell",
];

/// Sends a launch as `headers` say, and gives the status and the whole answer.
async fn launch(stage: &Stage, headers: &str) -> (u16, String) {
    let body = r#"{"argv":["touch","pwned"]}"#;
    let length = body.len();
    let request = format!(
        "POST /v1/tasks HTTP/1.1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let answer = stage.raw(&request).await;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    (status, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_page_can_send_is_refused_with_a_problem() {
    let stage = Stage::open().await;
    let token = stage.token(&["admin"]).await;
    let (host, bearer) = (
        format!("Host: {}\r\n", stage.address),
        format!("Authorization: Bearer {token}\r\n"),
    );
    let port = stage.address.port();
    let json = "Content-Type: application/json\r\n";
    let evil = "Origin: https://evil.example\r\n";
    let cases = [
        (format!("{host}Content-Type: text/plain\r\n{evil}"), 403),
        (
            format!("{host}Content-Type: text/plain\r\n{evil}{bearer}"),
            403,
        ),
        (format!("{host}{json}{evil}{bearer}"), 403),
        (format!("{host}{json}Origin: null\r\n{bearer}"), 403),
        (
            format!("{host}{json}Sec-Fetch-Site: cross-site\r\n{bearer}"),
            403,
        ),
        (format!("{host}Content-Type: text/plain\r\n{bearer}"), 415),
        (
            format!("{host}Content-Type: application/x-www-form-urlencoded\r\n{bearer}"),
            415,
        ),
        (
            format!("{host}Content-Type: multipart/form-data; boundary=x\r\n{bearer}"),
            415,
        ),
        (format!("{host}{bearer}"), 415),
        (format!("{host}{json}"), 401),
        (format!("Host: evil.example\r\n{json}{bearer}"), 421),
        (format!("Host: evil.example:{port}\r\n{json}{bearer}"), 421),
        (
            format!("Host: 127.0.0.1.evil.example:{port}\r\n{json}{bearer}"),
            421,
        ),
        (
            format!("Host: localhost.evil.example:{port}\r\n{json}{bearer}"),
            421,
        ),
        (format!("{host}Host: evil.example\r\n{json}{bearer}"), 400),
        (format!("{host}{host}{json}{bearer}"), 400),
        (format!("{json}{bearer}"), 400),
    ];
    for (headers, expected) in cases {
        let (status, answer) = launch(&stage, &headers).await;
        assert_eq!(status, expected, "{headers}");
        assert!(answer.contains("application/problem+json"), "{answer}");
        assert!(
            !answer
                .to_ascii_lowercase()
                .contains("access-control-allow-origin"),
            "{answer}"
        );
        assert!(!answer.contains(&token), "{answer}");
    }
    assert_eq!(
        stage.call("tasks.list", json!({"all": true})).await,
        json!({"tasks": [], "omitted": 0})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_is_refused() {
    let stage = Stage::open().await;
    let host = stage.address;
    for path in ["/v1/tasks", "/v1/call/tasks.run", "/v1/topics/a/events"] {
        let request = format!(
            "OPTIONS {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n"
        );
        let answer = stage.raw(&request).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(
            !answer.to_ascii_lowercase().contains("access-control"),
            "{answer}"
        );
        let mut client = stage.tcp().await;
        let reply = client.send(Method::OPTIONS, path, &[], b"").await;
        assert_eq!(
            (reply.slug(), reply.status),
            ("method-not-allowed", 405),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_changes_nothing() {
    let stage = Stage::open().await;
    let bearer = format!("Bearer {}", stage.token(&["admin"]).await);
    let mut client = stage.tcp().await;
    for path in CHANGING {
        for method in [Method::GET, Method::HEAD] {
            let reply = client
                .send(method.clone(), path, &[("authorization", &bearer)], b"")
                .await;
            assert_eq!(
                (reply.status, reply.header("allow")),
                (405, "POST"),
                "{method} {path}"
            );
            assert_eq!(reply.header("content-type"), "application/problem+json");
        }
    }
    let reply = client
        .send(
            Method::HEAD,
            "/v1/tasks/t-1",
            &[("authorization", &bearer)],
            b"",
        )
        .await;
    assert_eq!(reply.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_names_work_and_every_route_asks_for_them() {
    let stage = Stage::open().await;
    let bearer = format!("Bearer {}", stage.token(&["tasks:read"]).await);
    let port = stage.address.port();
    let mut client = stage.tcp().await;
    for host in ["127.0.0.1", "localhost", "[::1]", "build.lan"] {
        let host = format!("{host}:{port}");
        let reply = client
            .get("/v1/tasks", &[("host", &host), ("authorization", &bearer)])
            .await;
        assert_eq!(reply.status, 200, "{host}: {}", reply.text);
    }
    for path in [
        "/healthz",
        "/readyz",
        "/.well-known/jwks.json",
        "/metrics",
        "/openapi.json",
        "/nothing",
    ] {
        let reply = client.get(path, &[("host", "evil.example")]).await;
        assert_eq!(
            (reply.slug(), reply.status),
            ("host-refused", 421),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unix_socket_takes_no_origin() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    let reply = client
        .get("/v1/tasks", &[("origin", "http://localhost")])
        .await;
    assert_eq!((reply.slug(), reply.status), ("origin-refused", 403));
    assert_eq!(
        client
            .get("/v1/tasks", &[("host", "whatever")])
            .await
            .status,
        200
    );
}
