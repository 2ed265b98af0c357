//! `weft mesh post`: its exit codes, where its token comes from, and where it never goes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::json;
use weft_tests::stage::{finish, finish_with_input};
use weft_tests::{Client, Stage};

use super::{mint, token, used};

#[test]
fn the_token_comes_from_a_file_stdin_or_the_environment() {
    let stage = Stage::new();
    let client = stage.client();
    let grant = mint(&stage, 3);
    let file = stage.dir().join("grant.jwt");
    std::fs::write(&file, format!("{}\n", token(&grant))).unwrap();
    let path = file.to_str().unwrap();

    let posted = stage.json([
        "--json",
        "mesh",
        "post",
        "--token-file",
        path,
        "--data",
        r#"{"n":1}"#,
    ]);
    let fields = [
        "ok", "id", "sequence", "topic", "kind", "grantId", "usesLeft",
    ];
    assert!(
        fields.iter().all(|field| posted.get(field).is_some()),
        "{posted}"
    );
    assert_eq!(posted.as_object().unwrap().len(), fields.len(), "{posted}");
    assert_eq!(
        (&posted["ok"], &posted["topic"], &posted["usesLeft"]),
        (&json!(true), &json!("builds"), &json!(2))
    );
    assert_eq!(posted["grantId"], grant["grantId"]);

    let data = stage.dir().join("data.json");
    std::fs::write(&data, r#"{"n":2}"#).unwrap();
    let words = [
        "mesh",
        "post",
        "--token-file",
        "-",
        "--data-file",
        data.to_str().unwrap(),
    ];
    let _ = stage
        .run_with_input(words, &format!("{}\n", token(&grant)))
        .expect_code(0);

    let mut third = stage.weft([
        "mesh",
        "post",
        "--data-file",
        "-",
        "--topic",
        "builds",
        "--kind",
        "k",
    ]);
    third.env("WEFT_MESH_TOKEN", token(&grant));
    let _ = finish_with_input(&mut third, r#"{"n":3}"#).expect_code(0);

    let events = stage.events(&["builds"]);
    let data: Vec<_> = events
        .iter()
        .map(|event| event["data"]["n"].clone())
        .collect();
    assert_eq!(data, [1, 2, 3]);
    assert_eq!(events[2]["kind"], "k");
    let event = &events[0];
    assert_eq!(
        (&event["origin"], &event["untrusted"]),
        (&json!("external"), &json!(true))
    );
    assert_eq!(
        event["from"],
        format!("grant:{}", grant["grantId"].as_str().unwrap())
    );
    assert_eq!(event["grantId"], grant["grantId"]);
    assert_eq!(used(&client, &grant), 3);

    let spent = stage
        .run(["mesh", "post", "--token-file", path])
        .expect_code(1);
    assert!(spent.stderr.contains("grant-spent"), "{spent:?}");
    let spent = stage
        .run(["--json", "mesh", "post", "--token-file", path])
        .expect_code(1);
    let problem: serde_json::Value = serde_json::from_str(&spent.stderr).expect("one document");
    assert_eq!(problem["type"], "urn:weft:problem:grant-spent");
}

#[test]
fn what_makes_no_sense_is_a_usage_error_and_posts_nothing() {
    let stage = Stage::new();
    let client = stage.client();
    let grant = mint(&stage, 1);
    let good = token(&grant).to_owned();
    let cases: &[(&[&str], &str)] = &[
        (&[], ""),
        (&["--token-file", "/nonexistent/token"], ""),
        (&["--token-file", "-"], ""),
        (&["--token-file", "-"], "not a token"),
        (&["--token-file", "-", "--data", "{"], &good),
        (
            &["--token-file", "-", "--data", "1", "--data-file", "x"],
            &good,
        ),
        (
            &["--token-file", "-", "--data-file", "/nonexistent/data"],
            &good,
        ),
        (&["--token-file", "-", "--data-file", "-"], &good),
        (&["--token", "x"], ""),
        (&["--token-file", "-", "word"], &good),
        (
            &["--token-file", "-", "--url", "http://192.0.2.1:7411"],
            &good,
        ),
        (&["--token-file", "-", "--url", "http://10.0.0.1"], &good),
        (
            &["--token-file", "-", "--url", "https://127.0.0.1/x"],
            &good,
        ),
        (&["--token-file", "-", "--url", "ftp://127.0.0.1"], &good),
        (
            &["--token-file", "-", "--url", "http://me:word@127.0.0.1:1"],
            &good,
        ),
        (
            &["--token-file", "-", "--url", "http://127.0.0.1:1/?token=x"],
            &good,
        ),
        (&["--token-file", "-", "--topic", "a\nb"], &good),
        (
            &[
                "--token-file",
                "-",
                "--url",
                "http://127.0.0.1:1",
                "--topic",
                "a b",
            ],
            &good,
        ),
    ];
    for (words, input) in cases {
        // Without the variable that names the home, which `--url` excludes.
        let mut command = stage.weft(["mesh", "post"].iter().chain(*words));
        if words.contains(&"--url") {
            command.env_remove("WEFT_HOME");
        }
        let output = finish_with_input(&mut command, input);
        assert_eq!(output.code, 2, "{words:?}: {output:?}");
        assert_eq!(output.stdout, "", "{words:?}");
        assert!(
            !output.stderr.is_empty() && !output.stderr.contains(&good),
            "{words:?}: {output:?}"
        );
    }
    assert_eq!(used(&client, &grant), 0);
    assert_eq!(stage.events(&[">"]).len(), 0);
}

#[test]
fn a_home_that_is_not_there_is_refused_and_not_made() {
    let stage = Stage::new();
    let grant = mint(&stage, 1);
    let missing = stage.dir().join("no/such/home");
    let words = [
        "--home",
        missing.to_str().unwrap(),
        "mesh",
        "post",
        "--token-file",
        "-",
    ];
    let output = stage.run_with_input(words, token(&grant)).expect_code(1);
    assert!(output.stderr.contains("there is no home"), "{output:?}");
    assert!(!stage.dir().join("no").exists());

    let empty = stage.dir().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let mut command = stage.weft(["mesh", "post", "--token-file", "-"]);
    command.env_remove("WEFT_HOME").current_dir(&empty);
    let output = finish_with_input(&mut command, token(&grant)).expect_code(1);
    assert!(output.stderr.contains("there is no home"), "{output:?}");
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn a_post_by_url_goes_there_and_nowhere_else() {
    let stage = Stage::new();
    let node = stage.node(&["--listen", "127.0.0.1:0"]);
    let client = Client::unix(stage.home());
    let grant = mint(&stage, 1);
    let (proxy, seen) = listener("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    let post = |url: &str| {
        let mut command = stage.weft(["mesh", "post", "--token-file", "-", "--url", url]);
        command.env_remove("WEFT_HOME");
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env(name, &proxy);
        }
        finish_with_input(&mut command, token(&grant))
    };
    // A redirect is a refusal: the token is not carried on.
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {}/v1/topics/builds/events\r\nContent-Length: 0\r\n\r\n",
        node.url()
    );
    let (redirect, asked) = listener(&answer);
    let output = post(&redirect);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(asked.recv().is_ok());
    assert_eq!(used(&client, &grant), 0);

    let output = post(node.url());
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(used(&client, &grant), 1);
    assert!(seen.try_recv().is_err(), "the proxy was asked");

    // Nobody there is a failure with the address in it.
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let output = post(&format!("http://{nobody}"));
    assert!(matches!(output.code, 1 | 125), "{output:?}");
    assert!(output.stderr.contains(&nobody.to_string()), "{output:?}");
}

#[test]
fn the_command_that_comes_with_a_grant_works_as_it_stands() {
    let stage = Stage::new();
    let client = stage.client();
    let minted = stage.json(["--json", "mesh", "grant", "builds", "--kind", "ci.finished"]);
    let line = minted["command"]
        .as_str()
        .unwrap()
        .replace("TOKEN_FILE", "-");
    assert!(!line.contains(token(&minted)), "{line}");
    let program = weft_tests::stage::weft_bin();
    let line = line.replacen("weft", program.to_str().unwrap(), 1);
    let mut shell = std::process::Command::new("/bin/sh");
    stage.environment(&mut shell);
    let _ = finish_with_input(shell.args(["-c", &line]), token(&minted)).expect_code(0);
    assert_eq!(used(&client, &minted), 1);
    assert_eq!(stage.events(&["builds"])[0]["kind"], "ci.finished");

    // Without --json the token alone is on stdout, and lists never show it.
    let plain = stage.run(["mesh", "grant", "builds"]).expect_code(0);
    assert_eq!(plain.stdout.trim().split('.').count(), 3, "{plain:?}");
    for words in [&["mesh", "grants"][..], &["--json", "mesh", "grants"]] {
        let list = stage.run(words).expect_code(0);
        assert!(!list.stdout.contains("eyJ"), "{list:?}");
        assert!(
            list.stdout.contains(minted["grantId"].as_str().unwrap()),
            "{list:?}"
        );
    }
    let id = minted["grantId"].as_str().unwrap();
    let _ = stage.run(["mesh", "revoke", id]).expect_code(0);
    assert_eq!(stage.run(["mesh", "revoke", "g-nobody"]).code, 1);
}

#[test]
fn limits_of_a_grant_are_refused_by_name() {
    let stage = Stage::new();
    let client = stage.client();
    for (input, field) in [
        (json!({"topic": "b", "ttlMs": 59_999}), "ttlMs"),
        (json!({"topic": "b", "ttlMs": 2_592_000_001_u64}), "ttlMs"),
        (json!({"topic": "b", "uses": 0}), "uses"),
        (json!({"topic": "b", "uses": 10_001}), "uses"),
        (json!({"topic": "b", "use": 1}), "use"),
        (json!({"uses": 1}), "topic"),
        (
            json!({"topic": "b", "description": "x".repeat(201)}),
            "description",
        ),
    ] {
        let answer = client.call("mesh.grant", input.clone());
        assert_eq!(
            (answer.status, answer.body["field"].as_str()),
            (422, Some(field)),
            "{input}: {}",
            answer.text
        );
    }
    assert_eq!(
        client
            .call("mesh.grant", json!({"topic": "weft.timing"}))
            .slug(),
        "topic-reserved"
    );
    assert_eq!(
        client.call("mesh.grant", json!({"topic": "b.*"})).slug(),
        "topic-invalid"
    );
    assert_eq!(
        client
            .call("mesh.grant", json!({"topic": "b", "kind": "a b"}))
            .status,
        422
    );
    assert_eq!(
        client.call("mesh.grants", json!({})).ok("mesh.grants")["grants"],
        json!([])
    );
    let twice = json!({"topic": "b", "ttlMs": 60_000, "uses": 10_000, "requestId": "r-1"});
    let (one, two) = (
        client.call("mesh.grant", twice.clone()).ok("one"),
        client.call("mesh.grant", twice).ok("two"),
    );
    assert_eq!(one, two);
    assert_eq!(
        finish(&mut stage.weft(["mesh", "grant", "b", "--uses", "0"])).code,
        1
    );
    assert_eq!(
        finish(&mut stage.weft(["mesh", "grant", "b", "--uses", "many"])).code,
        2
    );
}

/// A server that answers every connection with this, and tells of each.
fn listener(answer: &str) -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    let answer = answer.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            if tell.send(()).is_err() {
                return;
            }
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, told)
}
