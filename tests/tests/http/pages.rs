//! What a page in the user's browser, or a name bound to our address, can send: nothing of it is carried out.

use serde_json::json;
use weft_tests::Raw;

use super::Scene;

/// Every route that changes something.
const CHANGING: &[&str] = &[
    "/v1/call/tasks.run",
    "/v1/topics/builds/events",
    "/v1/tasks",
    "/v1/tasks/t-x/stop",
    "/v1/tasks/t-x/adopt",
    "/v1/tasks/t-x/lease",
    "/v1/external/t-x/adopt",
    "/v1/sessions/cli/inbox/ack",
    "/v1/grants",
    "/v1/residents",
    "/v1/residents/x/pause",
    "/v1/residents/x/resume",
    "/v1/residents/x/tell",
    "/v1/tokens",
];

/// Those of them that only change: they have no GET of their own.
const CHANGING_ONLY: &[&str] = &[
    "/v1/call/tasks.run",
    "/v1/tasks/t-x/stop",
    "/v1/tasks/t-x/adopt",
    "/v1/tasks/t-x/lease",
    "/v1/external/t-x/adopt",
    "/v1/sessions/cli/inbox/ack",
    "/v1/residents/x/pause",
    "/v1/residents/x/resume",
    "/v1/residents/x/tell",
];

/// Sends a request with exactly these header lines.
fn send(scene: &Scene, line: &str, headers: &[String], body: &str) -> Raw {
    let mut lines = vec![format!("{line} HTTP/1.1"), "Connection: close".to_owned()];
    lines.extend_from_slice(headers);
    if !body.is_empty() {
        lines.push(format!("Content-Length: {}", body.len()));
    }
    let head = lines.join("\r\n");
    scene.tcp().raw(format!("{head}\r\n\r\n{body}").as_bytes())
}

#[track_caller]
fn assert_refused(answer: &Raw, what: &str) {
    assert!((400..500).contains(&answer.status), "{what}: {answer:?}");
    assert!(
        answer
            .head
            .contains("content-type: application/problem+json"),
        "{what}: {answer:?}"
    );
    assert!(
        !answer.head.contains("access-control-allow"),
        "{what}: {answer:?}"
    );
    let problem: serde_json::Value =
        serde_json::from_str(&answer.body).expect("a problem document");
    for field in ["type", "title", "status", "detail"] {
        assert!(!problem[field].is_null(), "{what}: no {field}: {problem}");
    }
    assert_eq!(problem["status"], answer.status, "{what}");
}

/// What starts `touch pwned`, as each route would take it.
fn body(scene: &Scene) -> String {
    let file = scene.stage.dir().join("pwned");
    json!({"argv": ["touch", file], "lease": "durable"}).to_string()
}

fn assert_untouched(scene: &Scene) {
    assert!(scene.is_untouched());
    assert!(!scene.stage.dir().join("pwned").exists());
}

/// Header lines with and without a token that may do everything.
fn credentials(scene: &Scene) -> [Option<String>; 2] {
    let token = scene.stage.token(&["admin"]);
    [None, Some(format!("Authorization: Bearer {token}"))]
}

#[test]
fn a_page_of_another_origin_starts_nothing() {
    let scene = Scene::new();
    let body = body(&scene);
    let host = format!("Host: {}", scene.address());
    let json = "Content-Type: application/json";
    let types = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "",
    ];
    let own = format!("http://{}", scene.address());
    let origins = [
        "https://evil.example",
        "null",
        "http://127.0.0.1",
        "http://localhost:1",
        "file://",
        "",
    ];
    for credential in credentials(&scene) {
        let with = |more: &[&str]| -> Vec<String> {
            let all = [host.as_str()].into_iter().chain(more.iter().copied());
            all.map(str::to_owned).chain(credential.clone()).collect()
        };
        for kind in types {
            let kind = format!("Content-Type: {kind}");
            for origin in [
                Some("Origin: https://evil.example"),
                Some("Origin: null"),
                None,
            ] {
                let headers = with(
                    &[kind.as_str()]
                        .into_iter()
                        .chain(origin)
                        .collect::<Vec<_>>(),
                );
                assert_refused(
                    &send(&scene, "POST /v1/tasks", &headers, &body),
                    &format!("{headers:?}"),
                );
            }
        }
        for origin in origins {
            let origin = format!("Origin: {origin}");
            for route in CHANGING {
                let headers = with(&[json, &origin]);
                assert_refused(
                    &send(&scene, &format!("POST {route}"), &headers, &body),
                    &format!("{route} {origin}"),
                );
            }
            for route in [
                "/v1/tasks",
                "/v1/events?topics=a",
                "/healthz",
                "/.well-known/jwks.json",
            ] {
                assert_refused(
                    &send(&scene, &format!("GET {route}"), &with(&[&origin]), ""),
                    &format!("{route} {origin}"),
                );
            }
        }
        for site in ["cross-site", "same-site", "none, cross-site"] {
            let site = format!("Sec-Fetch-Site: {site}");
            assert_refused(
                &send(&scene, "POST /v1/tasks", &with(&[json, &site]), &body),
                &site,
            );
        }
        let two = format!("Origin: {own}");
        assert_refused(
            &send(
                &scene,
                "POST /v1/tasks",
                &with(&[json, &two, "Origin: https://evil.example"]),
                &body,
            ),
            "two origins",
        );
        let preflight = with(&[
            "Origin: https://evil.example",
            "Access-Control-Request-Method: POST",
            "Access-Control-Request-Headers: authorization",
        ]);
        for route in CHANGING {
            assert_refused(
                &send(&scene, &format!("OPTIONS {route}"), &preflight, ""),
                route,
            );
        }
    }
    assert_untouched(&scene);
}

#[test]
fn a_name_bound_to_our_address_reads_nothing() {
    let scene = Scene::new();
    let (body, port) = (body(&scene), scene.port().to_owned());
    let evil = [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.evil.example:{port}"),
        format!("evil.example@127.0.0.1:{port}"),
        format!("127.0.0.1:{port}@evil.example"),
        "127.0.0.1".to_owned(),
        "localhost:1".to_owned(),
        "127.0.0.1:+80".to_owned(),
        format!("[::1:{port}"),
        format!("127.1:{port}"),
        String::new(),
    ];
    let routes = [
        "/v1/tasks",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/metrics",
        "/.well-known/jwks.json",
        "/v1/events?topics=a",
        "/",
        "/nowhere",
    ];
    for credential in credentials(&scene) {
        for name in &evil {
            let headers: Vec<String> = [format!("Host: {name}")]
                .into_iter()
                .chain(credential.clone())
                .collect();
            for route in routes {
                let answer = send(&scene, &format!("GET {route}"), &headers, "");
                assert_refused(&answer, &format!("{route} {name:?}"));
                assert!(
                    matches!(answer.status, 400 | 421),
                    "{route} {name:?}: {answer:?}"
                );
            }
            let json = "Content-Type: application/json".to_owned();
            let headers: Vec<String> = headers.into_iter().chain([json]).collect();
            assert_refused(&send(&scene, "POST /v1/tasks", &headers, &body), name);
        }
        let good = format!("Host: 127.0.0.1:{port}");
        let twice: Vec<String> = [good.clone(), good.clone()]
            .into_iter()
            .chain(credential.clone())
            .collect();
        assert_refused(
            &send(&scene, "GET /v1/tasks", &twice, ""),
            "two Host headers",
        );
        let mixed: Vec<String> = [good.clone(), "Host: evil.example".to_owned()]
            .into_iter()
            .chain(credential.clone())
            .collect();
        assert_refused(
            &send(&scene, "GET /v1/tasks", &mixed, ""),
            "two different Host headers",
        );
        let none: Vec<String> = credential.clone().into_iter().collect();
        assert_refused(&send(&scene, "GET /v1/tasks", &none, ""), "no Host header");
        let absolute: Vec<String> = [good].into_iter().chain(credential).collect();
        assert_refused(
            &send(&scene, "GET http://evil.example/v1/tasks", &absolute, ""),
            "another target",
        );
    }
    assert_untouched(&scene);
}

#[test]
fn our_own_names_work_with_a_token_and_only_with_one() {
    let scene = Scene::new();
    let (port, token) = (scene.port().to_owned(), scene.stage.token(&["tasks:read"]));
    for name in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"] {
        let host = format!("Host: {name}:{port}");
        let bearer = format!("Authorization: Bearer {token}");
        let good = send(&scene, "GET /v1/tasks", &[host.clone(), bearer.clone()], "");
        assert_eq!(good.status, 200, "{host}: {good:?}");
        let origin = format!("Origin: http://{}:{port}", name.to_ascii_lowercase());
        let own = send(&scene, "GET /v1/tasks", &[host.clone(), bearer, origin], "");
        assert_eq!(own.status, 200, "{host}: {own:?}");
        let bare = send(&scene, "GET /v1/tasks", &[host], "");
        assert_eq!(
            (bare.status, bare.slug().as_str()),
            (401, "unauthorized"),
            "{bare:?}"
        );
        assert!(bare.head.contains("www-authenticate: bearer"), "{bare:?}");
    }
}

#[test]
fn looking_changes_nothing() {
    let scene = Scene::new();
    let token = format!("Authorization: Bearer {}", scene.stage.token(&["admin"]));
    let host = format!("Host: {}", scene.address());
    for route in CHANGING_ONLY {
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT"] {
            let answer = send(
                &scene,
                &format!("{method} {route}"),
                &[host.clone(), token.clone()],
                "",
            );
            assert!(
                (400..500).contains(&answer.status),
                "{method} {route}: {answer:?}"
            );
            if method == "GET" {
                assert_refused(&answer, route);
                assert_eq!(answer.status, 405, "{route}");
                assert!(answer.head.contains("allow: post"), "{route}: {answer:?}");
            }
        }
    }
    // A request that looks must not settle a delivery either.
    let client = scene.unix().session("owner");
    let id = weft_tests::tasks::start(&client, json!({"argv": ["true"], "lease": "durable"}));
    weft_tests::tasks::unread_end(&client, &id);
    let head = send(&scene, &format!("HEAD /v1/tasks/{id}"), &[host, token], "");
    assert!(head.status == 405 || head.status == 200, "{head:?}");
    assert_eq!(weft_tests::tasks::inbox(&client, "owner").len(), 1);
}

#[test]
fn a_token_in_the_address_is_refused() {
    let scene = Scene::new();
    let token = scene.stage.token(&["admin"]);
    let host = format!("Host: {}", scene.address());
    for name in ["token", "access_token", "x"] {
        let answer = send(
            &scene,
            &format!("GET /v1/tasks?{name}={token}"),
            std::slice::from_ref(&host),
            "",
        );
        assert_refused(&answer, name);
        assert_eq!(answer.slug(), "token-in-query", "{answer:?}");
        assert!(!answer.body.contains(&token), "{answer:?}");
    }
}

#[test]
fn the_unix_socket_asks_for_no_token_and_takes_no_origin() {
    let scene = Scene::new();
    let client = scene.unix();
    assert_eq!(
        client
            .clone()
            .with("host", "anything.example")
            .get("/v1/tasks")
            .status,
        200
    );
    for origin in ["https://evil.example", "null", "http://localhost"] {
        assert_eq!(
            client
                .clone()
                .with("origin", origin)
                .get("/v1/tasks")
                .slug(),
            "origin-refused",
            "{origin}"
        );
    }
    // A credential that is shown decides alone.
    for header in ["Bearer nonsense", "Basic YTpi", "Bearer "] {
        let answer = client
            .clone()
            .with("authorization", header)
            .get("/v1/tasks");
        assert_eq!(answer.status, 401, "{header}: {}", answer.text);
    }
    assert_eq!(
        client
            .clone()
            .with("weft-session", "a b")
            .get("/v1/tasks")
            .status,
        422
    );
    assert_eq!(client.with("weft-session", "").get("/v1/tasks").status, 422);
}

#[test]
fn an_address_that_others_reach_needs_a_word() {
    let stage = weft_tests::Stage::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7411"] {
        let output = stage.run(["node", "--listen", address]);
        assert_eq!(output.code, 2, "{address}: {output:?}");
        assert!(
            output.stderr.contains("--insecure-listen"),
            "{address}: {output:?}"
        );
    }
    for address in ["localhost:0", "127.0.0.1", "127.0.0.1:99999", ""] {
        assert_eq!(
            stage.run(["node", "--listen", address]).code,
            2,
            "{address}"
        );
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = stage.run(["node", "--listen", &address]);
    assert!(
        output.code != 0 && output.stderr.contains(&address),
        "{output:?}"
    );
    assert!(!stage.answers());
}
