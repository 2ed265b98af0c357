//! Durable publish through the mesh API: 300-byte events, on stable storage before the answer.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weft_mesh::{Draft, Store, StoreOptions};
use weft_tests::eventually;

use crate::raw::flushes_per_second;
use crate::report::{Report, millis, percentile};

const SECONDS: u64 = 3;

pub(crate) fn run(report: &mut Report) {
    let redis = Redis::start();
    if redis.is_none() {
        println!(
            "  redis-server and redis-benchmark are not installed: no peer beside the figures"
        );
    }
    for publishers in [1_usize, 16, 64, 256] {
        report.figure(
            &format!("disk: append + fdatasync, before {publishers}"),
            flushes_per_second(),
            "/s",
            None,
            "",
        );
        let peer = redis.as_ref().and_then(|redis| redis.rate(publishers));
        let (rate, p99) = weft(publishers);
        let beside = peer.as_ref().map(|(rate, _)| ("Redis always", *rate));
        report.figure(
            &format!("publish, {publishers} publishers"),
            rate,
            "/s",
            beside,
            if publishers == 1 { ">= 0.9x" } else { ">= 1x" },
        );
        let beside = peer.as_ref().map(|(_, p99)| ("Redis always", *p99));
        report.figure(
            &format!("publish, {publishers} publishers, p99"),
            p99,
            "ms",
            beside,
            if publishers == 64 { "<= 2x" } else { "" },
        );
    }
}

fn weft(publishers: usize) -> (f64, f64) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open(StoreOptions::new(
        dir.path().join("weft.db"),
        dir.path().join("mark"),
    ))
    .expect("a store");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let text = "x".repeat(300);
    let mut samples: Vec<Duration> = runtime.block_on(async {
        let end = Instant::now() + Duration::from_secs(SECONDS);
        let tasks: Vec<_> = (0..publishers)
            .map(|_| {
                let (store, text) = (store.clone(), text.clone());
                tokio::spawn(async move {
                    let mut samples = Vec::new();
                    while Instant::now() < end {
                        let draft = Draft::new(
                            "bench".parse().expect("a topic"),
                            "message".parse().expect("a kind"),
                            "session:bench",
                        );
                        let begin = Instant::now();
                        let _ = store
                            .publish(draft.with_text(text.clone()))
                            .await
                            .expect("a publish");
                        samples.push(begin.elapsed());
                    }
                    samples
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("a publisher"));
        }
        all
    });
    store.close();
    samples.sort_unstable();
    (
        samples.len() as f64 / SECONDS as f64,
        millis(percentile(&samples, 99)),
    )
}

/// A Redis that flushes before it answers, as weft does.
struct Redis {
    server: Child,
    _dir: tempfile::TempDir,
    port: u16,
}

impl Redis {
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().ok()?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .ok()?
            .local_addr()
            .ok()?
            .port();
        let server = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--save",
                "",
            ])
            .arg("--dir")
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut redis = Redis {
            server,
            _dir: dir,
            port,
        };
        let listens = eventually("Redis listens, or has ended", || {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(true);
            }
            let ended = redis.server.try_wait().is_ok_and(|ended| ended.is_some());
            ended.then_some(false)
        });
        if !listens {
            return None;
        }
        Some(redis)
    }

    /// Events a second and p99 in milliseconds, by redis-benchmark without pipelining.
    fn rate(&self, clients: usize) -> Option<(f64, f64)> {
        let count = match clients {
            1 => 10_000,
            16 => 60_000,
            _ => 150_000,
        };
        let payload = "x".repeat(300);
        let output = Command::new("redis-benchmark")
            .args([
                "-p",
                &self.port.to_string(),
                "-c",
                &clients.to_string(),
                "-n",
                &count.to_string(),
                "--csv",
            ])
            .args(["XADD", "bench", "*", "data", &payload])
            .output()
            .ok()?;
        // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
        let text = String::from_utf8_lossy(&output.stdout);
        let row = text.lines().last()?;
        let tail = row.get(row.find("\",\"")? + 2..)?;
        let fields: Vec<f64> = tail
            .split(',')
            .filter_map(|field| field.trim_matches('"').parse().ok())
            .collect();
        Some((*fields.first()?, *fields.get(5)?))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
