//! Publishes and grant posts over HTTP keep-alive, 64 connections, against the real node. The load shares its processors.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use weft_tests::Stage;

use crate::report::{Report, millis, percentile};

const CONNECTIONS: usize = 64;
const SECONDS: u64 = 4;

pub(crate) fn run(report: &mut Report) {
    let stage = Stage::new();
    let node = stage.node(&["--listen", "127.0.0.1:0"]);
    let address = node.url().trim_start_matches("http://").to_owned();
    let token = stage.json(["token", "create", "--scope", "mesh:publish", "--json"]);
    let token = token["token"].as_str().expect("a token").to_owned();
    let text = "x".repeat(300);
    let (rate, p99) = load(&address, vec![token], json!({"text": text}));
    report.figure(
        "publish over HTTP, 64 connections",
        rate,
        "/s",
        None,
        ">= 25000",
    );
    report.figure(
        "publish over HTTP, 64 connections, p99",
        p99,
        "ms",
        None,
        "",
    );

    let grants: Vec<String> = (0..CONNECTIONS * 2)
        .map(|_| {
            let grant = stage.call("mesh.grant", json!({"topic": "bench", "uses": 10_000}));
            grant["token"].as_str().expect("a token").to_owned()
        })
        .collect();
    let (rate, p99) = load(&address, grants, json!({"data": {"text": text}}));
    report.figure(
        "grant post over HTTP, 64 connections",
        rate,
        "/s",
        None,
        ">= 12000",
    );
    report.figure(
        "grant post over HTTP, 64 connections, p99",
        p99,
        "ms",
        None,
        "",
    );
}

fn load(address: &str, tokens: Vec<String>, body: Value) -> (f64, f64) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let body = Bytes::from(body.to_string());
    let mut samples: Vec<Duration> = runtime.block_on(async {
        let end = Instant::now() + Duration::from_secs(SECONDS);
        let tasks: Vec<_> = (0..CONNECTIONS)
            .map(|index| {
                // Each connection has tokens of its own, so that no grant runs out.
                let mine: Vec<String> = tokens
                    .iter()
                    .skip(index % tokens.len())
                    .step_by(CONNECTIONS)
                    .cloned()
                    .collect();
                tokio::spawn(connection(address.to_owned(), mine, body.clone(), end))
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("a connection"));
        }
        all
    });
    samples.sort_unstable();
    (
        samples.len() as f64 / SECONDS as f64,
        millis(percentile(&samples, 99)),
    )
}

async fn connection(
    address: String,
    tokens: Vec<String>,
    body: Bytes,
    end: Instant,
) -> Vec<Duration> {
    let stream = tokio::net::TcpStream::connect(&address)
        .await
        .expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("HTTP");
    tokio::spawn(connection);
    let mut samples = Vec::new();
    let mut turn = 0;
    while Instant::now() < end {
        let request = Request::post("/v1/topics/bench/events")
            .header("host", &address)
            .header("content-type", "application/json")
            .header(
                "authorization",
                format!("Bearer {}", tokens[turn % tokens.len()]),
            )
            .body(Full::new(body.clone()))
            .expect("a request");
        turn += 1;
        let begin = Instant::now();
        sender.ready().await.expect("an open connection");
        let response = sender.send_request(request).await.expect("an answer");
        assert!(response.status().is_success(), "{}", response.status());
        let _ = response.into_body().collect().await.expect("a body");
        samples.push(begin.elapsed());
    }
    samples
}
