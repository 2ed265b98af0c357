//! A reader that stalls holds up nobody, costs little, and finds all that it missed.

use std::io::{Read as _, Write as _};

use serde_json::json;
use weft_tests::http::Bare;
use weft_tests::{Client, Stage, eventually};

use super::{follow, memory_kib, publish_many, sequences};

const EVENTS: usize = 10_000;
const MEMORY_KIB: u64 = 64 * 1024;

/// Opens a stream and reads nothing of it.
fn stall(client: &Client) -> Box<dyn Bare> {
    let mut bare = client.bare();
    bare.write_all(b"GET /v1/events?topics=t&after=0 HTTP/1.1\r\nHost: weft\r\n\r\n")
        .unwrap();
    bare
}

fn streams(client: &Client) -> usize {
    let metrics = client.get("/metrics").text;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("weft_http_streams "))
        .unwrap();
    line.parse().unwrap()
}

/// One reader that reads beside `stalled` ones that do not: it has everything, and the node stays small.
fn race(stalled: usize) -> (Stage, weft_tests::Node, Vec<Box<dyn Bare>>) {
    let stage = Stage::new();
    let node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let asleep: Vec<_> = (0..stalled).map(|_| stall(&client)).collect();
    eventually("all are connected", || {
        (streams(&client) == stalled).then_some(())
    });
    let before = memory_kib(node.pid(), "VmRSS:");
    let text = "x".repeat(1024);
    let blocks = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            follow(&client, "/v1/events?topics=t&after=0", |block| {
                block.json()["data"] == EVENTS - 1
            })
        });
        publish_many(&client, "t", EVENTS, &text);
        reader.join().unwrap().unwrap()
    });
    let got = sequences(&blocks);
    assert_eq!(got.len(), EVENTS);
    assert!(got.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
    let grown = memory_kib(node.pid(), "VmHWM:").saturating_sub(before);
    assert!(
        grown < MEMORY_KIB,
        "the node grew by {grown} KiB with {stalled} stalled readers"
    );
    assert_eq!(streams(&client), stalled);
    (stage, node, asleep)
}

#[test]
fn heavy_one_stalled_reader_reads_on_to_the_end() {
    let (_stage, _node, mut asleep) = race(1);
    let mut bare = asleep.pop().unwrap();
    let (mut text, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let last = format!("\"data\":{},", EVENTS - 1).into_bytes();
    loop {
        let count = bare.read(&mut buffer).unwrap();
        assert!(count > 0, "the stream ended early");
        text.extend_from_slice(&buffer[..count]);
        let from = text.len().saturating_sub(count + last.len());
        if text[from..]
            .windows(last.len())
            .any(|window| window == last)
        {
            break;
        }
    }
    // The frames of the transfer coding cut the text anywhere; without them the ids stand in order.
    let plain = unchunked(&text);
    let numbers: Vec<usize> = plain
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str::<serde_json::Value>(data).ok())
        .filter_map(|event| event["data"].as_u64().map(|n| n as usize))
        .collect();
    assert_eq!(numbers, (0..EVENTS).collect::<Vec<_>>());
}

/// The body of a chunked answer, as far as it came.
fn unchunked(answer: &[u8]) -> String {
    let head = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap()
        + 4;
    let (mut rest, mut body) = (&answer[head..], Vec::new());
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let chunk = &rest[end + 2..];
        body.extend_from_slice(&chunk[..size.min(chunk.len())]);
        if chunk.len() < size + 2 {
            break;
        }
        rest = &chunk[size + 2..];
    }
    String::from_utf8(body).unwrap()
}

#[test]
fn heavy_fifty_stalled_readers_cost_little_and_leave_nothing() {
    let (stage, node, asleep) = race(50);
    let client = Client::unix(stage.home());
    let files = || {
        std::fs::read_dir(format!("/proc/{}/fd", node.pid()))
            .unwrap()
            .count()
    };
    let open = files();
    drop(asleep);
    eventually("the streams are gone", || {
        (streams(&client) == 0).then_some(())
    });
    eventually("their files are closed", || {
        (files() + 50 <= open).then_some(())
    });
    // One of them comes back with its cursor and has the rest.
    let blocks = follow(&client, "/v1/events?topics=t&after=5000", |block| {
        block.json()["data"] == EVENTS - 1
    })
    .unwrap();
    assert_eq!(sequences(&blocks).len(), EVENTS - 5000);
}

#[test]
fn a_stream_over_tcp_stalls_nobody_either() {
    let stage = Stage::new();
    let node = stage.node(&["--listen", "127.0.0.1:0"]);
    let (client, tcp) = (Client::unix(stage.home()), Client::tcp(node.url()));
    let token = stage.token(&["mesh:read"]);
    let mut bare = tcp.bare();
    let host = node.url().trim_start_matches("http://");
    let request = format!(
        "GET /v1/events?topics=t&after=0 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    bare.write_all(request.as_bytes()).unwrap();
    publish_many(&client, "t", 1000, &"x".repeat(8 * 1024));
    let reader = tcp.bearer(&token);
    let blocks = follow(&reader, "/v1/events?topics=t&after=0", |block| {
        block.json()["data"] == 999
    })
    .unwrap();
    assert_eq!(sequences(&blocks).len(), 1000);
    let answer = client.call("mesh.publish", json!({"topic": "u"}));
    assert_eq!(answer.status, 200);
}
