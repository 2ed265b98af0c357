//! The end of a node: every open wait and stream hears of it, and nothing idle holds it up.

use serde_json::json;

use crate::stage::{Stage, patiently};

#[tokio::test(flavor = "multi_thread")]
async fn waits_and_streams_are_answered_and_idle_connections_closed() {
    let mut stage = Stage::open().await;
    let mut idle = stage.unix().await;
    assert_eq!(idle.get("/healthz", &[]).await.status, 200);
    let mut silent = stage.tcp().await;
    let mut stream = stage.unix().await.stream("/v1/events?topics=t", &[]).await;
    stream.next().await.unwrap();
    let mut waiting = stage.unix().await;
    let wait = tokio::spawn(async move {
        let reply = waiting.get("/v1/topics/t/events?waitMs=300000", &[]).await;
        waiting.closed().await;
        reply
    });
    let mut calling = stage.unix().await;
    let call = tokio::spawn(async move {
        calling
            .post(
                "/v1/call/mesh.read",
                &[],
                &json!({"topics": ["t"], "waitMs": 300_000}),
            )
            .await
    });
    // Stream, waits and this very question.
    let mut client = stage.unix().await;
    while !client
        .get("/metrics", &[])
        .await
        .text
        .contains("weft_http_requests_open 4")
    {}
    stage.house.stopping.send_replace(true);
    for reply in [
        patiently(wait).await.unwrap(),
        patiently(call).await.unwrap(),
    ] {
        assert_eq!(
            (reply.slug(), reply.status, reply.header("retry-after")),
            ("node-stopping", 503, "1")
        );
        assert_eq!(reply.header("connection"), "close");
    }
    let last = stream.next_said().await;
    assert_eq!(
        (last.event.as_str(), &last.json()["type"]),
        ("end", &json!("urn:weft:problem:node-stopping"))
    );
    assert_eq!(stream.next().await, None);
    while patiently(stage.doors.join_next()).await.is_some() {}
    idle.closed().await;
    silent.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_open_requests_keep_the_node_from_its_idle_end() {
    let stage = Stage::open().await;
    let mut client = stage.unix().await;
    assert_eq!(client.get("/healthz", &[]).await.status, 200);
    let is_idle = async |wanted: bool| {
        while stage.house.busy.is_idle() != wanted {
            patiently(stage.house.busy.changed()).await;
        }
    };
    is_idle(true).await;
    let stream = stage.unix().await.stream("/v1/events?topics=t", &[]).await;
    is_idle(false).await;
    drop(stream);
    is_idle(true).await;
    assert_eq!(client.get("/healthz", &[]).await.status, 200);
}
