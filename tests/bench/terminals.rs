//! Tasks that are talked to: a word through `cat` and back, a flood on a terminal beside a bare loop that reads one, and a
//! thousand terminals at once.

use std::io::Read as _;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::{Value, json};
use weft_tests::http::Kept;
use weft_tests::{Client, Stage, processes};

use crate::capture::{PRINT, median};
use crate::report::Report;

const WORDS: usize = 1_000;
const FLOOD_MIB: usize = 128;
const ROUNDS: usize = 3;
const OPEN: usize = 1_000;

pub(crate) fn run(report: &mut Report) {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    for (io, stream) in [("pipes", "stdout"), ("pty", "output")] {
        let id = start(&client, &json!({"argv": ["cat"], "io": io}));
        let mut samples = round_trips(&client, &id, stream);
        report.latencies(&format!("write, then read, {io}"), &mut samples, "<= 2", "");
        stop(&client, &id);
    }
    flood(report, &client);
    many(report, &client);
}

fn start(client: &Client, input: &Value) -> String {
    let mut input = input.clone();
    input["lease"] = "durable".into();
    let task = client.call("tasks.run", input).ok("tasks.run");
    task["id"].as_str().expect("an id").to_owned()
}

fn stop(client: &Client, id: &str) {
    client
        .call("tasks.stop", json!({"id": id}))
        .ok("tasks.stop");
}

/// From the request that writes a line to the answer that holds it again, over one connection.
fn round_trips(client: &Client, id: &str, stream: &str) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut kept = client.keep().await.expect("a connection");
        let mut offset = 0;
        let mut samples = Vec::new();
        for n in 0..WORDS {
            let begin = Instant::now();
            let line = format!("word {n}\n");
            call(&mut kept, "tasks.write", &json!({"id": id, "text": line})).await;
            let mut seen = String::new();
            while !seen.contains('\n') {
                let input = json!({"id": id, "stream": stream, "offset": offset, "waitMs": 10_000});
                let page = call(&mut kept, "tasks.read", &input).await;
                offset = page["next"].as_u64().expect("a cursor");
                seen.push_str(page["text"].as_str().expect("text"));
            }
            samples.push(begin.elapsed());
        }
        samples
    })
}

async fn call(kept: &mut Kept, action: &str, input: &Value) -> Value {
    let path = format!("/v1/call/{action}");
    let answer = kept.send("POST", &path, Some(input.to_string())).await;
    answer.expect("an answer").ok(action)
}

fn flood(report: &mut Report, client: &Client) {
    let program = std::env::current_exe().expect("a program knows its path");
    let argv = [
        program.display().to_string(),
        PRINT.to_owned(),
        FLOOD_MIB.to_string(),
    ];
    let (mut bare, mut weft) = (Vec::new(), Vec::new());
    let mut id = String::new();
    for _ in 0..ROUNDS {
        bare.push(bare_loop(&argv).as_secs_f64());
        let begin = Instant::now();
        id = start(client, &json!({"argv": argv, "io": "pty"}));
        let waited = client.call("tasks.wait", json!({"id": id, "timeoutMs": 300_000}));
        assert_eq!(waited.ok("tasks.wait")["task"]["state"], "exited");
        weft.push(begin.elapsed().as_secs_f64());
    }
    let speed = |seconds: &mut [f64]| FLOOD_MIB as f64 / median(seconds);
    let bare = speed(&mut bare);
    report.figure("a loop that reads a terminal", bare, "MiB/s", None, "");
    report.figure(
        "a task with a terminal",
        speed(&mut weft),
        "MiB/s",
        Some(("the bare loop", bare)),
        ">= 0.9x",
    );
    let begin = Instant::now();
    client
        .call("tasks.screen", json!({"id": id}))
        .ok("tasks.screen");
    let first = begin.elapsed().as_secs_f64() * 1_000.0;
    report.figure("first look at the screen of that", first, "ms", None, "");
}

/// Reads a command's terminal to its end and keeps nothing.
fn bare_loop(argv: &[String]) -> Duration {
    let begin = Instant::now();
    let pair = native_pty_system()
        .openpty(PtySize::default())
        .expect("a terminal");
    let mut command = CommandBuilder::new(&argv[0]);
    command.args(&argv[1..]);
    let mut child = pair.slave.spawn_command(command).expect("the command");
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().expect("its output");
    let mut block = vec![0; 64 << 10];
    // The end of a terminal is an error of input.
    while reader.read(&mut block).is_ok_and(|got| got > 0) {}
    child.wait().expect("its end");
    begin.elapsed()
}

fn many(report: &mut Report, client: &Client) {
    let begin = Instant::now();
    let ids: Vec<String> = (0..OPEN)
        .map(|_| start(client, &json!({"argv": ["cat"], "io": "pty"})))
        .collect();
    report.figure(
        "terminals started, one after the other",
        OPEN as f64 / begin.elapsed().as_secs_f64(),
        "/s",
        None,
        "",
    );
    let begin = Instant::now();
    for id in &ids {
        client
            .call("tasks.write", json!({"id": id, "text": "here\n"}))
            .ok("tasks.write");
    }
    let answered = ids.iter().filter(|id| {
        let input = json!({"id": id, "match": "here", "timeoutMs": 10_000});
        client.call("tasks.watch", input).ok("tasks.watch")["reason"] == "match"
    });
    let answered = answered.count();
    report.figure(
        "open at once, each answers",
        answered as f64,
        "tasks",
        None,
        "1000",
    );
    report.figure(
        "a line written to each of them and read",
        begin.elapsed().as_secs_f64() * 1_000.0 / OPEN as f64,
        "ms each",
        None,
        "",
    );
    let record = client
        .call("tasks.get", json!({"id": ids[0]}))
        .ok("tasks.get");
    let pid = record["task"]["pid"].as_u64().expect("a pid");
    let shim = processes::parent(u32::try_from(pid).expect("a pid")).expect("its shim");
    report.figure(
        "a shim of them, PSS",
        crate::memory::pss_kib(shim),
        "KiB",
        None,
        "",
    );
    for id in &ids {
        stop(client, id);
    }
}
