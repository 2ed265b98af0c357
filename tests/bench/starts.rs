//! One start after another: over one API connection, and by the command line.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::json;
use weft_tests::Stage;

use crate::raw::{folders_per_second, spawns_per_second};
use crate::report::Report;

const STARTS: usize = 300;

pub(crate) fn run(report: &mut Report) {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let spawns = spawns_per_second();
    report.figure("spawn and reap /bin/true", spawns, "/s", None, "");
    let mut samples = api(&stage);
    let total: Duration = samples.iter().sum();
    report.figure(
        "starts over one connection",
        STARTS as f64 / total.as_secs_f64(),
        "/s",
        Some(("plain spawns", spawns)),
        ">= 250",
    );
    report.latencies("start over one connection", &mut samples, "<= 4", "");
    let mut samples: Vec<Duration> = (0..STARTS)
        .map(|_| {
            let begin = Instant::now();
            let _ = stage.run(["run", "--durable", "--", "true"]).expect_code(0);
            begin.elapsed()
        })
        .collect();
    let total: Duration = samples.iter().sum();
    report.figure(
        "starts by the command line",
        STARTS as f64 / total.as_secs_f64(),
        "/s",
        Some(("plain spawns", spawns)),
        ">= 150",
    );
    report.latencies("start by the command line", &mut samples, "<= 6", "");
    // Last, since it deletes what it made.
    let folders = folders_per_second();
    report.figure("make a folder of ten files", folders, "/s", None, "");
}

fn api(stage: &Stage) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let stream = tokio::net::UnixStream::connect(stage.home().join("node.sock"))
            .await
            .expect("the node's socket");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP");
        tokio::spawn(connection);
        let mut samples = Vec::new();
        for _ in 0..STARTS {
            let body = json!({"argv": ["true"], "lease": "durable"}).to_string();
            let request = Request::post("/v1/call/tasks.run")
                .header("host", "weft")
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body)))
                .expect("a request");
            let begin = Instant::now();
            sender.ready().await.expect("an open connection");
            let response = sender.send_request(request).await.expect("an answer");
            assert!(response.status().is_success());
            let _ = response.into_body().collect().await.expect("a body");
            samples.push(begin.elapsed());
        }
        samples
    })
}
