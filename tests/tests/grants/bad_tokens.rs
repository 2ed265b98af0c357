//! What is no grant is refused by name at every door, changes nothing, spends nothing and is repeated nowhere.

use std::path::Path;

use serde_json::{Value, json};
use weft_tests::{Client, Node, Stage, eventually};

use super::forge::Key;
use super::tables::{
    Bad, FORM_OR_SIGNATURE, FORM_SCOPE, bad, of_algorithm, of_claims, of_header, of_text, turned,
};
use super::{BUILDS, mint, token, used};

/// A node that listens, a good grant of one use for `builds` and kind `done`, and the home's key.
struct Scene {
    stage: Stage,
    node: Node,
    grant: Value,
    key: Key,
}

impl Scene {
    fn new() -> Self {
        let stage = Stage::new();
        let node = stage.node(&["--listen", "127.0.0.1:0"]);
        let grant = stage.call("mesh.grant", json!({"topic": "builds", "kind": "done"}));
        let key = Key::of(&stage);
        Scene {
            stage,
            node,
            grant,
            key,
        }
    }

    fn doors(&self) -> [Client; 2] {
        [
            Client::unix(self.stage.home()),
            Client::tcp(self.node.url()),
        ]
    }

    /// Posts with the token at both doors of HTTP; each must refuse it by one of the names.
    #[track_caller]
    fn refuse(&self, bad: &Bad) {
        for door in self.doors() {
            let answer = door.bearer(&bad.token).post(BUILDS, &json!({"data": 1}));
            assert!(
                matches!(answer.status, 401 | 403),
                "{}: {} {}",
                bad.what,
                answer.status,
                answer.text
            );
            assert!(
                bad.slugs.contains(&answer.slug().as_str()),
                "{}: {}",
                bad.what,
                answer.text
            );
            assert_shows_none(&answer.text, &bad.token, &bad.what);
        }
    }

    /// Posts with the token by the command line.
    #[track_caller]
    fn refuse_by_command(&self, bad: &Bad) {
        let words = [
            "mesh",
            "post",
            "--topic",
            "builds",
            "--token-file",
            "-",
            "--data",
            "1",
        ];
        let output = self.stage.run_with_input(words, &bad.token);
        assert_eq!(output.code, 1, "{}: {output:?}", bad.what);
        assert_eq!(output.stdout, "", "{}", bad.what);
        assert!(
            bad.slugs.iter().any(|slug| output.stderr.contains(slug)),
            "{}: {}",
            bad.what,
            output.stderr
        );
        assert_shows_none(&output.stderr, &bad.token, &bad.what);
    }

    /// Nothing happened, the good token still works once, and no part of a token is anywhere.
    fn settle(self, shown: &[Bad]) {
        let client = Client::unix(self.stage.home());
        assert_eq!(self.stage.events(&[">"]).len(), 0);
        assert_eq!(used(&client, &self.grant), 0);
        let good = Client::tcp(self.node.url()).bearer(token(&self.grant));
        good.post(BUILDS, &json!({})).ok("the good token");
        assert_eq!(good.post(BUILDS, &json!({})).slug(), "grant-spent");
        assert_eq!(self.stage.events(&["builds"]).len(), 1);
        let log = self.node.terminate().1;
        for bad in shown {
            assert_shows_none(&log, &bad.token, &format!("the log, {}", bad.what));
        }
        assert_shows_none(&log, token(&self.grant), "the log, the good token");
        assert_in_no_file(self.stage.dir(), token(&self.grant));
    }
}

/// Asserts that the parts of a token which are worth something, its signature and its claims, do not stand in a text.
#[track_caller]
fn assert_shows_none(text: &str, token: &str, what: &str) {
    for part in token.split('.').skip(1).filter(|part| part.len() > 16) {
        assert!(!text.contains(part), "{what}: a token is shown: {text}");
    }
}

#[track_caller]
fn assert_in_no_file(folder: &Path, token: &str) {
    let secret = token.rsplit('.').next().unwrap().as_bytes();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert_in_no_file(&entry.path(), token);
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            let found = bytes.windows(secret.len()).any(|window| window == secret);
            assert!(!found, "the token stands in {}", entry.path().display());
        }
    }
}

#[test]
fn no_other_algorithm_passes() {
    let scene = Scene::new();
    let list = of_algorithm(&scene.key, token(&scene.grant));
    for bad in &list {
        scene.refuse(bad);
    }
    for bad in list.iter().step_by(3) {
        scene.refuse_by_command(bad);
    }
    scene.settle(&list);
}

#[test]
fn no_header_chooses_how_it_is_checked() {
    let scene = Scene::new();
    let list = of_header(&scene.key, token(&scene.grant));
    for bad in &list {
        scene.refuse(bad);
    }
    for bad in list.iter().step_by(3) {
        scene.refuse_by_command(bad);
    }
    scene.settle(&list);
}

#[test]
fn no_other_claims_and_no_other_time_pass() {
    let scene = Scene::new();
    let list = of_claims(&scene.key, token(&scene.grant));
    for bad in &list {
        scene.refuse(bad);
    }
    for bad in &list {
        scene.refuse_by_command(bad);
    }
    scene.settle(&list);
}

#[test]
fn no_cut_or_lengthened_text_passes() {
    let scene = Scene::new();
    let list = of_text(token(&scene.grant));
    for bad in &list {
        scene.refuse(bad);
    }
    // What the header of a request cannot hold has another refusal of its own on the command line.
    list.iter()
        .filter(|bad| bad.token.len() < 8192)
        .for_each(|bad| scene.refuse_by_command(bad));
    scene.settle(&list);
}

#[test]
fn a_change_of_any_byte_is_seen() {
    let scene = Scene::new();
    let good = token(&scene.grant).to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = Client::unix(scene.stage.home());
    runtime.block_on(async {
        let mut kept = client.keep().await.expect("a connection");
        for at in 0..good.len() {
            let mut bytes = good.clone().into_bytes();
            bytes[at] = if bytes[at] == b'.' {
                b'A'
            } else {
                turned(bytes[at], at % 6)
            };
            let changed = String::from_utf8(bytes).unwrap();
            let answer = kept
                .post_as(&changed, BUILDS, &json!({}))
                .await
                .expect("an answer");
            assert_eq!(answer.status, 401, "byte {at}: {}", answer.text);
            assert!(
                FORM_SCOPE.contains(&answer.slug().as_str()) || answer.slug() == "grant-signature",
                "byte {at}: {}",
                answer.text
            );
        }
    });
    scene.settle(&[]);
}

#[test]
fn grants_that_were_good_are_refused_by_name() {
    let scene = Scene::new();
    let client = Client::unix(scene.stage.home());
    let revoked = mint(&scene.stage, 5);
    let posted = client.clone().bearer(token(&revoked));
    posted
        .post(BUILDS, &json!({"id": "before"}))
        .ok("before the revoke");
    client
        .call("mesh.revoke", json!({"grantId": revoked["grantId"]}))
        .ok("mesh.revoke");
    assert_eq!(posted.post(BUILDS, &json!({})).slug(), "grant-revoked");
    let output = scene
        .stage
        .run_with_input(["mesh", "post", "--token-file", "-"], token(&revoked));
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("grant-revoked"), "{output:?}");
    // Twice is the same as once, and a grant that nobody has is told from one that is revoked.
    client
        .call("mesh.revoke", json!({"grantId": revoked["grantId"]}))
        .ok("a second revoke");
    assert_eq!(
        client
            .call("mesh.revoke", json!({"grantId": "g-nobody"}))
            .slug(),
        "not-found"
    );
    assert_eq!(scene.stage.events(&["builds"]).len(), 1);

    let wrong = Client::tcp(scene.node.url()).bearer(token(&scene.grant));
    assert_eq!(
        wrong.post("/v1/topics/tests/events", &json!({})).slug(),
        "grant-topic"
    );
    assert_eq!(
        wrong.post("/v1/topics/builds.x/events", &json!({})).slug(),
        "grant-topic"
    );
    assert_eq!(
        wrong.post(BUILDS, &json!({"kind": "begun"})).slug(),
        "grant-kind"
    );
    for (words, name) in [
        (["--topic", "tests"], "grant-topic"),
        (["--kind", "begun"], "grant-kind"),
    ] {
        let words = ["mesh", "post", "--token-file", "-"]
            .into_iter()
            .chain(words);
        let output = scene.stage.run_with_input(words, token(&scene.grant));
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.stderr.contains(name), "{output:?}");
    }
    assert_eq!(used(&client, &scene.grant), 0);
}

#[test]
fn a_grant_of_another_home_is_refused() {
    let (scene, other) = (Scene::new(), Stage::new());
    let foreign = bad(
        "of another home",
        token(&mint(&other, 1)).to_owned(),
        FORM_OR_SIGNATURE,
    );
    scene.refuse(&foreign);
    scene.refuse_by_command(&foreign);
    scene.settle(&[foreign]);
}

#[test]
fn a_grant_opens_its_one_route_and_an_access_token_is_no_grant() {
    let scene = Scene::new();
    let client = Client::tcp(scene.node.url());
    let grant = client.clone().bearer(token(&scene.grant));
    for (method, path, body) in [
        ("GET", BUILDS, None),
        ("GET", "/v1/tasks", None),
        ("POST", "/v1/tasks", Some(r#"{"argv":["true"]}"#)),
        (
            "POST",
            "/v1/call/mesh.publish",
            Some(r#"{"topic":"builds"}"#),
        ),
        ("GET", "/v1/events?topics=builds", None),
        ("GET", "/v1/grants", None),
        ("POST", "/v1/grants", Some(r#"{"topic":"builds"}"#)),
        ("GET", "/metrics", None),
    ] {
        let answer = grant
            .send(method, path, body.map(str::to_owned))
            .expect("an answer");
        assert_eq!(
            (answer.status, answer.slug().as_str()),
            (401, "grant-malformed"),
            "{method} {path}: {}",
            answer.text
        );
    }
    let narrow = client.bearer(&scene.stage.token(&["tasks:read", "mesh:read"]));
    let answer = narrow.post(BUILDS, &json!({}));
    assert_eq!(
        (answer.status, answer.slug().as_str()),
        (403, "forbidden"),
        "{}",
        answer.text
    );
    scene.settle(&[]);
}

#[test]
fn a_grant_of_a_store_that_was_replaced_is_revoked() {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let grant = mint(&stage, 1);
    node.terminate();
    eventually("the lock is free", || (!stage.answers()).then_some(()));
    for name in ["weft.db", "weft.db-wal", "weft.db-shm"] {
        let _ = std::fs::remove_file(stage.home().join(name));
    }
    let _node = stage.node(&[]);
    let answer = Client::unix(stage.home())
        .bearer(token(&grant))
        .post(BUILDS, &json!({}));
    assert_eq!(
        (answer.status, answer.slug().as_str()),
        (401, "grant-revoked"),
        "{}",
        answer.text
    );
    assert_eq!(stage.events(&["builds"]).len(), 0);
}
