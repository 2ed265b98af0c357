//! The machine's own limits: a flush, a spawn, an exit seen through a pidfd.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::report::Report;

/// Appends of 400 bytes with fdatasync, a second.
pub(crate) fn flushes_per_second() -> f64 {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.path().join("probe"))
        .expect("a probe file");
    let begin = Instant::now();
    let mut count = 0_u32;
    while begin.elapsed() < Duration::from_secs(1) {
        file.write_all(&[b'x'; 400])
            .and_then(|()| file.sync_data())
            .expect("a flush");
        count += 1;
    }
    f64::from(count) / begin.elapsed().as_secs_f64()
}

/// `true` spawned and reaped, one after another, a second.
pub(crate) fn spawns_per_second() -> f64 {
    const COUNT: u32 = 300;
    let begin = Instant::now();
    for _ in 0..COUNT {
        Command::new("/bin/true")
            .stdin(Stdio::null())
            .status()
            .expect("true");
    }
    f64::from(COUNT) / begin.elapsed().as_secs_f64()
}

/// Folders of ten empty files made, a second: what a start asks of the file system. One without a journal makes files many
/// times slower for minutes after thousands were deleted, since it passes over what was deleted lately.
pub(crate) fn folders_per_second() -> f64 {
    const COUNT: u32 = 100;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let begin = Instant::now();
    for number in 0..COUNT {
        let folder = dir.path().join(number.to_string());
        std::fs::create_dir(&folder).expect("a folder");
        for name in 0..10 {
            std::fs::File::create(folder.join(name.to_string())).expect("a file");
        }
    }
    f64::from(COUNT) / begin.elapsed().as_secs_f64()
}

pub(crate) fn run(report: &mut Report) {
    report.figure(
        "append 400 B + fdatasync",
        flushes_per_second(),
        "/s",
        None,
        "",
    );
    report.figure(
        "spawn and reap /bin/true",
        spawns_per_second(),
        "/s",
        None,
        "",
    );
}
