//! Streams of events: nothing lost, nothing twice, nobody held up.

use std::time::Duration;

use serde_json::json;
use weft_mesh::Retention;

use crate::stage::Stage;

const STREAM: &str = "/v1/events?topics=t";

async fn publish(stage: &Stage, texts: impl Iterator<Item = usize>) {
    let mut client = stage.unix().await;
    for text in texts {
        let reply = client
            .publish("t", None, &json!({"text": text.to_string()}))
            .await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}

fn texts(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|text| text.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_after_its_last_id_without_loss_or_repeat() {
    let stage = Stage::open().await;
    let mut stream = stage
        .unix()
        .await
        .stream("/v1/events?topics=t&after=0", &[])
        .await;
    publish(&stage, 0..5).await;
    assert_eq!(stream.texts(4).await, texts(0..4));
    let last = stream.next_said().await;
    drop(stream);
    publish(&stage, 5..10).await;
    // The id wins over the query.
    let headers = [("last-event-id", last.id.as_str())];
    let mut stream = stage
        .unix()
        .await
        .stream("/v1/events?topics=t&after=0", &headers)
        .await;
    assert_eq!(stream.headers["weft-replay-from"], last.id.as_str());
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    assert_eq!(stream.texts(5).await, texts(5..10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_with_what_is_new_and_says_so() {
    let stage = Stage::open().await;
    publish(&stage, 0..3).await;
    let mut stream = stage.unix().await.stream(STREAM, &[]).await;
    let from = format!("{}-3", stage.house.store.epoch());
    assert_eq!(stream.headers["weft-replay-from"], from.as_str());
    assert_eq!(stream.next().await.unwrap().id, from);
    publish(&stage, 3..4).await;
    let block = stream.next_said().await;
    assert_eq!(
        (block.event.as_str(), block.id.clone()),
        ("", format!("{}-4", stage.house.store.epoch()))
    );
    assert_eq!(block.json()["text"], "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_matching_topics_and_kinds_come() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    for (topic, kind) in [
        ("a.b", "x"),
        ("a", "x"),
        ("a.c", "y"),
        ("b", "x"),
        ("a.d", "x"),
    ] {
        assert_eq!(
            client
                .publish(topic, None, &json!({"kind": kind}))
                .await
                .status,
            200
        );
    }
    let mut stream = client
        .stream("/v1/events?topics=a.*,b&kinds=x&after=0", &[])
        .await;
    let mut topics = Vec::new();
    for _ in 0..3 {
        topics.push(stream.next_said().await.json()["topic"].clone());
    }
    assert_eq!(topics, ["a.b", "b", "a.d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_another_store_is_told_and_goes_on_with_the_oldest() {
    let stage = Stage::open().await;
    publish(&stage, 0..3).await;
    let epoch = stage.house.store.epoch().to_owned();
    for asked in ["other-2", "99"] {
        let mut stream = stage
            .unix()
            .await
            .stream(STREAM, &[("last-event-id", asked)])
            .await;
        assert_eq!(
            stream.headers["weft-replay-from"],
            format!("{epoch}-0").as_str()
        );
        let resync = stream.next_said().await;
        assert_eq!(
            (resync.event.as_str(), resync.json()),
            ("resync", json!({"epoch": epoch, "omitted": []}))
        );
        assert_eq!(stream.texts(3).await, texts(0..3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_took_is_told_once() {
    let stage = Stage::open().await;
    let one = Retention {
        max_count: Some(1),
        ..Retention::default()
    };
    stage
        .house
        .store
        .set_retention(None, Some(one))
        .await
        .unwrap();
    publish(&stage, 0..4).await;
    let mut stream = stage
        .unix()
        .await
        .stream("/v1/events?topics=t&after=0", &[])
        .await;
    let resync = stream.next_said().await;
    assert_eq!(resync.event, "resync");
    let omitted = &resync.json()["omitted"][0];
    assert_eq!(
        (&omitted["topic"], &omitted["count"]),
        (&json!("t"), &json!(3))
    );
    assert_eq!(stream.texts(1).await, texts(3..4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stalls_holds_up_nobody_and_misses_nothing() {
    const EVENTS: usize = 2_000;
    let stage = Stage::open().await;
    let mut stalled = Vec::new();
    for _ in 0..8 {
        stalled.push(
            stage
                .unix()
                .await
                .stream("/v1/events?topics=t&after=0", &[])
                .await,
        );
    }
    let mut quick = stage
        .unix()
        .await
        .stream("/v1/events?topics=t&after=0", &[])
        .await;
    for start in (0..EVENTS).step_by(100) {
        let events: Vec<_> = (start..start + 100)
            .map(|number| json!({"topic": "t", "text": format!("{number}:{}", "x".repeat(1024))}))
            .collect();
        stage
            .call("mesh.publishBatch", json!({"events": events}))
            .await;
    }
    let all = quick.texts(EVENTS).await;
    let numbers = all
        .iter()
        .map(|text| text.split(':').next().unwrap().parse::<usize>().unwrap());
    assert!(numbers.eq(0..EVENTS));
    // Those who slept meanwhile have the same, in the same order.
    for mut stream in stalled {
        assert_eq!(stream.texts(EVENTS).await, all);
    }
}

#[tokio::test]
async fn a_stream_with_nothing_to_say_moves_its_readers_cursor() {
    let stage = Stage::open().await;
    let mut stream = stage.unix().await.stream(STREAM, &[]).await;
    let epoch = stage.house.store.epoch().to_owned();
    assert_eq!(stream.next().await.unwrap().id, format!("{epoch}-0"));
    let mut client = stage.unix().await;
    assert_eq!(
        client.publish("elsewhere", None, &json!({})).await.status,
        200
    );
    // The clock is ours for a moment: it jumps to the next sign of life.
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(weft_web::limits::HEARTBEAT_MS)).await;
    tokio::time::resume();
    let sign = stream.next().await.unwrap();
    assert_eq!((sign.id, sign.data), (format!("{epoch}-1"), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_streamed_is_refused_before_it_begins() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    let cases = [
        ("/v1/events", "invalid-argument"),
        ("/v1/events?topics=a.%3E.b", "pattern-invalid"),
        ("/v1/events?topics=a*", "pattern-invalid"),
        ("/v1/events?topics=a&after=x", "payload-invalid"),
        ("/v1/events?topics=a&kinds=a%20b", "kind-invalid"),
        ("/v1/events?topics=a&limit=1", "invalid-argument"),
        ("/v1/events?topics=a&topics=b", "invalid-argument"),
    ];
    for (path, slug) in cases {
        assert_eq!(client.get(path, &[]).await.slug(), slug, "{path}");
    }
    let reply = client
        .get("/v1/events?topics=a", &[("last-event-id", "x y")])
        .await;
    assert_eq!(reply.slug(), "invalid-argument");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_and_their_places_come_back() {
    let stage = Stage::open().await;
    let mut open = Vec::new();
    for _ in 0..weft_web::limits::STREAMS_MAX {
        open.push(stage.unix().await.stream(STREAM, &[]).await);
    }
    let mut client = stage.unix().await;
    let reply = client.get(STREAM, &[]).await;
    assert_eq!(
        (reply.slug(), reply.status, reply.header("retry-after")),
        ("too-many-streams", 503, "1")
    );
    drop(open);
    // The node hears of the ends one after another.
    while client.get("/metrics", &[]).await.text.contains(&format!(
        "weft_http_streams {}",
        weft_web::limits::STREAMS_MAX
    )) {}
    client.stream(STREAM, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_token_and_says_why() {
    let stage = Stage::open().await;
    let made = stage
        .call("tokens.create", json!({"scopes": ["mesh:read:t"]}))
        .await;
    let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
    let headers = [("authorization", bearer.as_str())];
    let mut stream = stage.tcp().await.stream(STREAM, &headers).await;
    stream.next().await.unwrap();
    stage
        .call("tokens.revoke", json!({"tokenId": made["tokenId"]}))
        .await;
    let last = stream.next_said().await;
    assert_eq!(
        (last.event.as_str(), &last.json()["status"]),
        ("end", &json!(401))
    );
    assert_eq!(stream.next().await, None);
}
