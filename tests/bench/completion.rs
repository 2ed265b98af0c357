//! From a child's exit to an SSE subscriber holding the event: three flushes on the way (receipt, its folder, commit).

use std::fs::OpenOptions;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;
use weft_tests::{Client, Stage};

use crate::raw::flushes_per_second;
use crate::report::Report;

const JOBS: usize = 200;

pub(crate) fn run(report: &mut Report) {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let (send, heard) = mpsc::channel();
    let client = Client::unix(stage.home());
    let (ready, is_ready) = mpsc::channel();
    let reader = client.clone();
    std::thread::spawn(move || {
        let mut first = true;
        let _ = reader.stream("/v1/events?topics=done&after=0", |event| {
            if std::mem::take(&mut first) {
                let _ = ready.send(());
            }
            if event.data.is_empty() {
                true
            } else {
                send.send((Instant::now(), event.json())).is_ok()
            }
        });
    });
    let _ = is_ready.recv_timeout(Duration::from_secs(5));
    report.figure(
        "disk: append + fdatasync",
        flushes_per_second(),
        "/s",
        None,
        "",
    );
    let fifo = stage.dir().join("cue");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a fifo");
    let mut samples = Vec::new();
    for _ in 0..JOBS {
        let task = client
            .call(
                "tasks.run",
                json!({"argv": ["cat", fifo], "lease": "durable", "notify": {"topic": "done"}}),
            )
            .ok("tasks.run");
        // `cat` ends when the last writer closes: that is the cue, and its exit follows at once.
        let writer = OpenOptions::new()
            .write(true)
            .open(&fifo)
            .expect("the other end");
        let begin = Instant::now();
        drop(writer);
        let (at, event) = heard
            .recv_timeout(Duration::from_secs(30))
            .expect("the event");
        assert_eq!(event["data"]["taskId"], task["id"]);
        samples.push(at - begin);
    }
    report.latencies(
        "child exit to SSE event in hand",
        &mut samples,
        "<= 2",
        "<= 10",
    );
}
