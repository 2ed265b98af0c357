//! How many events a second the mesh stores, each answered after its flush, beside what the disk alone can do.
//!
//! Run it where the store would lie, in release: `cargo run --release -p weft-mesh --example publish_rate -- [DIR] [SECONDS] [PUBLISHERS…]`.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft_mesh::{Draft, Kind, Store, StoreOptions, Topic};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let base = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = arguments.next().map_or(Ok(3.0), |text| text.parse())?;
    let mut counts = arguments
        .map(|text| text.parse())
        .collect::<Result<Vec<usize>, _>>()?;
    if counts.is_empty() {
        counts.extend([1, 16, 64, 256]);
    }
    let folder = base.join(format!("publish-rate-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    println!(
        "{:>10} {:>10} {:>9} {:>9} {:>9}   {:>12}",
        "publishers", "events/s", "p50 ms", "p99 ms", "max ms", "fdatasync/s"
    );
    for publishers in counts {
        let limit = flushes_a_second(&folder)?;
        let figures = runtime.block_on(measure(
            &folder,
            publishers,
            Duration::from_secs_f64(seconds),
        ))?;
        let [rate, p50, p99, max] = figures;
        println!("{publishers:>10} {rate:>10.0} {p50:>9.2} {p99:>9.2} {max:>9.2}   {limit:>12.0}");
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Publishes from so many tasks at once; gives events a second and latencies in milliseconds (median, p99, longest).
async fn measure(folder: &Path, publishers: usize, time: Duration) -> Outcome<[f64; 4]> {
    let mut options = StoreOptions::new(
        folder.join(format!("{publishers}.db")),
        folder.join(format!("{publishers}.mark")),
    );
    options.free_floor = Some(0);
    let store = Store::open(options)?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..publishers)
        .map(|_| tokio::spawn(publish(store.clone(), started + time)))
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    let rate = latencies.len() as f64 / started.elapsed().as_secs_f64();
    store.close();
    latencies.sort_unstable();
    let at =
        |share: f64| latencies[(latencies.len() as f64 * share) as usize].as_secs_f64() * 1000.0;
    Ok([rate, at(0.5), at(0.99), at(1.0 - f64::EPSILON)])
}

async fn publish(store: Store, until: Instant) -> Outcome<Vec<Duration>> {
    let topic: Topic = "builds".parse()?;
    let text = "x".repeat(300);
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        let draft =
            Draft::new(topic.clone(), Kind::default(), "session:probe").with_text(text.as_str());
        store.publish(draft).await?;
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}

/// What the disk does alone: appends of 400 bytes, each flushed.
fn flushes_a_second(folder: &Path) -> Outcome<f64> {
    let file = File::create(folder.join("probe"))?;
    let (started, mut flushes) = (Instant::now(), 0_u32);
    while started.elapsed() < Duration::from_millis(500) {
        file.write_all_at(&[7; 400], u64::from(flushes) * 400)?;
        file.sync_data()?;
        flushes += 1;
    }
    Ok(f64::from(flushes) / started.elapsed().as_secs_f64())
}
