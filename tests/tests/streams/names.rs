//! One rule for names and one for patterns, at every door.

use serde_json::{Value, json};
use weft_tests::{SseEvent, Stage};

use super::{follow, sequences};

/// Names that no door takes, and why.
fn bad_topics() -> Vec<(String, &'static str)> {
    let mut list: Vec<(String, &'static str)> = [
        "", "a..b", ".a", "a.", ".", "a.*", "a.>", "*", ">", " a", "a b", "a\tb", "a\nb", "é",
        "a/b", "%2e", "a:b", "a,b",
    ]
    .map(|name| (name.to_owned(), "topic-invalid"))
    .into();
    list.push(("x".repeat(129), "topic-invalid"));
    list.extend(["weft", "weft.x", "weft.timing"].map(|name| (name.to_owned(), "topic-reserved")));
    list
}

/// A segment of a path with every byte escaped that is not plain.
fn coded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

#[test]
fn names_are_refused_alike_at_every_door() {
    let stage = Stage::new();
    let client = stage.client();
    for (name, slug) in bad_topics() {
        let by_action = client.call("mesh.publish", json!({"topic": name}));
        assert_eq!(by_action.slug(), slug, "{name:?}: {}", by_action.text);
        let rule = by_action.body["detail"].as_str().unwrap();
        assert!(
            rule.contains("not valid") || rule.contains("reserved"),
            "{name:?}: {rule}"
        );
        let by_path = client.post(&format!("/v1/topics/{}/events", coded(&name)), &json!({}));
        // No name at all is no route.
        assert!(
            by_path.slug() == slug || (name.is_empty() && by_path.status == 404),
            "{name:?}: {}",
            by_path.text
        );
        if !name.contains('\n') && !name.is_empty() && !name.starts_with('-') {
            let output = stage.run(["mesh", "publish", &name]);
            assert_eq!(output.code, 1, "{name:?}: {output:?}");
            assert!(
                output.stderr.contains("not valid") || output.stderr.contains("reserved"),
                "{name:?}: {output:?}"
            );
        }
        assert_eq!(
            client.call("mesh.grant", json!({"topic": name})).slug(),
            slug,
            "{name:?}"
        );
        let notify = json!({"argv": ["true"], "lease": "durable", "notify": {"topic": name}});
        assert!(
            matches!(client.call("tasks.run", notify).status, 403 | 422),
            "{name:?}"
        );
    }
    let topics = stage.call("mesh.topics", json!({}));
    assert_eq!(topics["topics"], json!([]), "a refused name makes no topic");
    let longest = "x".repeat(128);
    for name in ["Weft.x", "a.b", "weftx", "a.weft", "-._", &longest] {
        client.call("mesh.publish", json!({"topic": name})).ok(name);
    }
    assert_eq!(
        client
            .post("/v1/topics/%61%2E%62/events", &json!({}))
            .ok("a coded name")["topic"],
        "a.b"
    );
    assert!(weft_tests::tasks::shims(stage.home()).is_empty());
}

#[test]
fn kinds_and_ids_are_checked_as_well() {
    let stage = Stage::new();
    let client = stage.client();
    for kind in ["", "a b", "é", "a/b", &"k".repeat(65)] {
        assert_eq!(
            client
                .call("mesh.publish", json!({"topic": "a", "kind": kind}))
                .status,
            422,
            "{kind:?}"
        );
        assert_eq!(
            client
                .post("/v1/topics/a/events", &json!({"kind": kind}))
                .slug(),
            "kind-invalid",
            "{kind:?}"
        );
    }
    for id in ["", "a b", "é", &"i".repeat(129)] {
        assert_eq!(
            client
                .post("/v1/topics/a/events", &json!({"id": id}))
                .slug(),
            "id-invalid",
            "{id:?}"
        );
    }
    assert_eq!(stage.events(&["a"]).len(), 0);
    let event = client
        .call("mesh.publish", json!({"topic": "a"}))
        .ok("a good one");
    assert_eq!(event["kind"], "message");
    let fields = [
        "id",
        "sequence",
        "topic",
        "kind",
        "from",
        "to",
        "text",
        "data",
        "createdAt",
        "origin",
        "untrusted",
        "grantId",
        "scheduled",
    ];
    for field in fields {
        assert!(event.get(field).is_some(), "{field} is missing: {event}");
    }
    // UUIDv7: the version stands after the time.
    let id = event["id"].as_str().unwrap();
    assert!(id.len() == 36 && id.as_bytes()[14] == b'7', "{id}");
    assert_eq!(
        client
            .session("s")
            .call("mesh.publish", json!({"topic": "a"}))
            .ok("one")["from"],
        "session:s"
    );
}

#[test]
fn each_pattern_gets_its_topics_and_never_wefts_own() {
    let stage = Stage::new();
    let client = stage.client();
    for topic in ["a", "a.b", "a.b.c", "d.metadata"] {
        client
            .call("mesh.publish", json!({"topic": topic}))
            .ok(topic);
    }
    let resident =
        json!({"name": "r", "topics": ["never"], "handler": {"exec": {"argv": ["true"]}}});
    client.call("residents.create", resident).ok("a resident");
    client
        .call("residents.pause", json!({"name": "r"}))
        .ok("its pause");
    client
        .call("residents.tell", json!({"name": "r", "text": "hello"}))
        .ok("a message of weft's own topics");

    client
        .call("mesh.publish", json!({"topic": END}))
        .ok("the end");
    let cases: [(&str, &[&str]); 9] = [
        ("a.*", &["a.b"]),
        ("a.>", &["a.b", "a.b.c"]),
        ("*", &["a"]),
        (">", &["a", "a.b", "a.b.c", "d.metadata"]),
        ("*.metadata", &["d.metadata"]),
        ("*.timing", &[]),
        ("*.resident.*", &[]),
        ("weft.resident.*", &["weft.resident.r"]),
        ("weft.resident.r", &["weft.resident.r"]),
    ];
    for (pattern, wanted) in cases {
        let topics: Vec<Value> = stage
            .events(&[pattern])
            .iter()
            .map(|event| event["topic"].clone())
            .filter(|topic| topic != END)
            .collect();
        assert_eq!(topics, wanted, "{pattern}");
        let path = format!("/v1/events?topics={},{END}&after=0", coded(pattern));
        let topics =
            streamed(&follow(&client, &path, |block| block.json()["topic"] == END).unwrap());
        assert_eq!(topics, wanted, "{pattern}");
        if !wanted.is_empty() {
            let count = wanted.len().to_string();
            let output = stage
                .run([
                    "--json",
                    "mesh",
                    "subscribe",
                    pattern,
                    "--after",
                    "0",
                    "-n",
                    &count,
                ])
                .expect_code(0);
            let topics: Vec<String> = output
                .stdout
                .lines()
                .map(|line| {
                    serde_json::from_str::<Value>(line).unwrap()["topic"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                })
                .collect();
            assert_eq!(topics, wanted, "{pattern}");
        }
    }
    for pattern in ["a.>.b", "a*", "", "a..b", ">.a", "**", "a b", "é.*"] {
        assert_eq!(
            client
                .call("mesh.read", json!({"topics": [pattern]}))
                .status,
            422,
            "{pattern:?}"
        );
        let answer = client.get(&format!("/v1/events?topics={}", coded(pattern)));
        assert_eq!(answer.status, 422, "{pattern:?}: {}", answer.text);
        assert!(
            matches!(stage.run(["mesh", "subscribe", pattern]).code, 1 | 2),
            "{pattern:?}"
        );
        let resident =
            json!({"name": "bad", "topics": [pattern], "handler": {"exec": {"argv": ["true"]}}});
        assert_eq!(
            client.call("residents.create", resident).status,
            422,
            "{pattern:?}"
        );
    }
}

/// The topic of the newest event, by which a stream that had nothing else for us shows that it is through.
const END: &str = "end";

/// The topics of streamed events, but for the end.
fn streamed(blocks: &[SseEvent]) -> Vec<String> {
    assert!(!sequences(blocks).is_empty());
    let topics = blocks
        .iter()
        .filter_map(|block| block.json()["topic"].as_str().map(str::to_owned));
    topics.filter(|topic| topic != END).collect()
}
