use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::*;

fn home(root: &Path) -> Home {
    Home {
        root: root.to_owned(),
        state: root.join("state"),
        id: "h-1".to_owned(),
    }
}

fn client(root: &Path) -> Client {
    Client::new(home(root), Some("me".to_owned()), None)
}

/// Reads one request; its head and body as text.
async fn request(stream: &mut UnixStream) -> String {
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the client closed in the middle of a request");
        text.extend_from_slice(&piece[..count]);
        let shown = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = shown.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return shown;
            }
        }
    }
}

async fn answer(stream: &mut UnixStream, status: &str, body: &str) {
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_call_names_its_session_and_carries_a_request_id_only_where_it_changes_something() {
    let dir = tempfile::tempdir().unwrap();
    let node = UnixListener::bind(dir.path().join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.push(request(&mut stream).await);
            answer(&mut stream, "200 OK", r#"{"ok":true}"#).await;
        }
        seen
    });
    let mut client = client(dir.path());
    assert_eq!(
        client
            .read("tasks.list", json!({"all": true}))
            .await
            .unwrap(),
        json!({"ok": true})
    );
    client
        .change("tasks.stop", json!({"id": "t-1"}))
        .await
        .unwrap();
    let seen = served.await.unwrap();
    assert!(
        seen[0].starts_with("POST /v1/call/tasks.list HTTP/1.1\r\n"),
        "{}",
        seen[0]
    );
    assert!(
        seen[0].contains("weft-session: me\r\n") && seen[0].ends_with(r#"{"all":true}"#),
        "{}",
        seen[0]
    );
    assert!(seen[1].contains("\"requestId\":\""), "{}", seen[1]);
}

#[tokio::test]
async fn a_cut_before_the_first_byte_is_repeated_once_with_the_same_request_id() {
    let dir = tempfile::tempdir().unwrap();
    let node = UnixListener::bind(dir.path().join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        let (mut first, _) = node.accept().await.unwrap();
        let one = request(&mut first).await;
        drop(first);
        let (mut second, _) = node.accept().await.unwrap();
        let two = request(&mut second).await;
        answer(&mut second, "200 OK", "{}").await;
        (one, two)
    });
    client(dir.path())
        .change("tasks.run", json!({}))
        .await
        .unwrap();
    let (one, two) = served.await.unwrap();
    assert_eq!(one, two);
}

#[tokio::test]
async fn what_nobody_would_recognise_is_not_sent_twice() {
    let dir = tempfile::tempdir().unwrap();
    let node = UnixListener::bind(dir.path().join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        request(&mut stream).await;
    });
    let failure = client(dir.path())
        .bare("mesh.publish", &json!({"topic": "a"}))
        .await
        .unwrap_err();
    assert!(matches!(failure, Failure::Unknown { .. }), "{failure:?}");
    served.await.unwrap();
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = UnixListener::bind(dir.path().join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        request(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\"")
            .await
            .unwrap();
    });
    let failure = client(dir.path())
        .bare("tasks.stop", &json!({"id": "t-1"}))
        .await
        .unwrap_err();
    assert!(matches!(failure, Failure::Unknown { .. }), "{failure:?}");
    served.await.unwrap();
}

#[tokio::test]
async fn a_question_is_asked_again_after_every_cut_wherever_it_came() {
    let dir = tempfile::tempdir().unwrap();
    let node = UnixListener::bind(dir.path().join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answered in [
            "",
            "",
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\"",
            "",
        ] {
            let (mut stream, _) = node.accept().await.unwrap();
            asked.push(request(&mut stream).await);
            stream.write_all(answered.as_bytes()).await.unwrap();
        }
        let (mut stream, _) = node.accept().await.unwrap();
        asked.push(request(&mut stream).await);
        answer(&mut stream, "200 OK", r#"{"timedOut":false}"#).await;
        asked
    });
    let input = json!({"id": "t-1", "timeoutMs": 300_000});
    let answer = client(dir.path()).wait("tasks.wait", input).await.unwrap();
    assert_eq!(answer["timedOut"], false);
    let asked = served.await.unwrap();
    assert_eq!(asked.len(), 5);
    assert!(asked.windows(2).all(|pair| pair[0] == pair[1]), "{asked:?}");
}

#[tokio::test]
async fn a_question_that_ends_every_node_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let node = UnixListener::bind(dir.path().join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        loop {
            let (mut stream, _) = node.accept().await.unwrap();
            request(&mut stream).await;
        }
    });
    let mut client = client(dir.path());
    let failure = client.read("tasks.list", json!({})).await.unwrap_err();
    assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
    // A change may have been made by any of them.
    let failure = client.change("tasks.run", json!({})).await.unwrap_err();
    assert!(matches!(failure, Failure::Unknown { .. }), "{failure:?}");
    served.abort();
}

#[tokio::test]
async fn a_change_that_was_cut_and_then_finds_no_node_names_the_request_to_ask_by() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("node.sock");
    let node = UnixListener::bind(&socket).unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        let asked = request(&mut stream).await;
        std::fs::remove_file(socket).unwrap();
        asked
    });
    let failure = client(dir.path())
        .change("tasks.run", json!({}))
        .await
        .unwrap_err();
    let document = failure.document("weft run");
    assert_eq!(document["type"], "urn:weft:problem:outcome-unknown");
    let id = document["requestId"].as_str().unwrap();
    assert!(served.await.unwrap().contains(id), "{document}");
    assert!(failure.to_string().contains(id), "{failure}");
    // What only looks, and what was never sent, is told as it is.
    let failure = client(dir.path())
        .change("tasks.run", json!({}))
        .await
        .unwrap_err();
    assert!(matches!(failure, Failure::NoNode { .. }), "{failure:?}");
}

#[tokio::test]
async fn a_refusal_keeps_its_name_and_its_document() {
    let dir = tempfile::tempdir().unwrap();
    let node = UnixListener::bind(dir.path().join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        request(&mut stream).await;
        answer(&mut stream, "409 Conflict", r#"{"type":"urn:weft:problem:resync","title":"x","status":409,"detail":"read from the start","epoch":"e2"}"#).await;
    });
    let failure = client(dir.path())
        .read("mesh.read", json!({}))
        .await
        .unwrap_err();
    assert!(failure.is_refusal("resync"), "{failure:?}");
    assert_eq!(failure.document("weft mesh read")["epoch"], "e2");
    assert_eq!(failure.to_string(), "read from the start");
    served.await.unwrap();
}

#[tokio::test]
async fn a_wait_goes_on_with_the_next_node() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("node.sock");
    let node = UnixListener::bind(&socket).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let served = tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        request(&mut stream).await;
        counted.fetch_add(1, Ordering::SeqCst);
        // The old node's door is closed before it answers, the new one's opens before the old one is gone.
        drop(node);
        std::fs::remove_file(&socket).unwrap();
        answer(
            &mut stream,
            "503 Service Unavailable",
            r#"{"type":"urn:weft:problem:node-stopping"}"#,
        )
        .await;
        let next = UnixListener::bind(&socket).unwrap();
        drop(stream);
        let (mut stream, _) = next.accept().await.unwrap();
        request(&mut stream).await;
        counted.fetch_add(1, Ordering::SeqCst);
        answer(&mut stream, "200 OK", r#"{"timedOut":false}"#).await;
    });
    assert_eq!(
        client(dir.path())
            .wait("tasks.wait", json!({"id": "t-1"}))
            .await
            .unwrap()["timedOut"],
        false
    );
    served.await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn events_come_with_their_cursors_to_the_end_of_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let node = UnixListener::bind(dir.path().join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        let asked = request(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nweft-replay-from: e-4\r\nconnection: close\r\n\r\nid: e-5\ndata: {\"sequence\":5}\n\nid: e-6\n\n")
            .await
            .unwrap();
        asked
    });
    let mut events = client(dir.path())
        .events(&["builds.*".to_owned()], Some("e-4"), Some("e-4"))
        .await
        .unwrap();
    assert_eq!(events.from.as_deref(), Some("e-4"));
    let mut got = Vec::new();
    while let Some(message) = events.next().await.unwrap() {
        got.push((message.id, message.data));
    }
    assert_eq!(
        got,
        [
            ("e-5".to_owned(), "{\"sequence\":5}".to_owned()),
            ("e-6".to_owned(), String::new())
        ]
    );
    let asked = served.await.unwrap();
    assert!(
        asked.starts_with("GET /v1/events?topics=builds.*&after=e-4 "),
        "{asked}"
    );
    assert!(asked.contains("last-event-id: e-4\r\n"), "{asked}");
}

#[tokio::test]
async fn a_socket_with_a_path_too_long_for_its_address_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(120)).join("e".repeat(80));
    std::fs::create_dir_all(&deep).unwrap();
    // A test may reach the folder by a short way; the client gets the long one.
    let short = dir.path().join("short");
    std::os::unix::fs::symlink(&deep, &short).unwrap();
    let node = UnixListener::bind(short.join("node.sock")).unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        request(&mut stream).await;
        answer(&mut stream, "200 OK", "{}").await;
    });
    client(&deep).read("capabilities", json!({})).await.unwrap();
    served.await.unwrap();
}

#[tokio::test]
async fn without_a_node_and_without_leave_to_start_one_the_home_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let failure = client(dir.path())
        .read("node.status", json!({}))
        .await
        .unwrap_err();
    assert!(matches!(failure, Failure::NoNode { .. }), "{failure:?}");
    assert_eq!(failure.code(), crate::exit::WEFT_FAILED);
}

#[test]
fn a_query_is_escaped() {
    assert_eq!(encode("a.*,b.>&x=1 ü"), "a.*,b.%3E%26x%3D1%20%C3%BC");
}
