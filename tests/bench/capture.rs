//! Capturing 1 GiB beside a plain redirect and a pipe through `cat`.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use weft_tests::Stage;

use crate::report::Report;

const MIB: f64 = 1024.0;
const ROUNDS: usize = 3;
/// The word by which this program is the job.
pub(crate) const PRINT: &str = "print-mib";

/// Prints so many MiB, 1024 unless the word after says another number, of lines of 100 bytes in writes of about 64 KiB, from memory: what the job itself does must not be what is
/// measured.
pub(crate) fn print() {
    let line = [b"0123456789".repeat(10)[..99].to_vec(), b"\n".to_vec()].concat();
    let block = line.repeat(655);
    let mib = std::env::args().nth(2).and_then(|mib| mib.parse().ok());
    let mut left = mib.unwrap_or(1024_usize) << 20;
    let mut out = std::io::stdout().lock();
    while left > 0 {
        let piece = block.len().min(left);
        if out.write_all(&block[..piece]).is_err() {
            return;
        }
        left -= piece;
    }
    let _ = out.flush();
}

pub(crate) fn run(report: &mut Report) {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let file = stage.dir().join("direct");
    let program = std::env::current_exe().expect("a program knows its path");
    let job = format!("exec '{}' {PRINT}", program.display());
    let (mut direct, mut cat, mut weft) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        direct.push(shell(&format!("{job} > {}", file.display())));
        cat.push(shell(&format!("{job} | cat > {}", file.display())));
        let begin = Instant::now();
        let task = stage
            .run(["run", "--durable", "--keep", "2GiB", "-c", &job])
            .expect_code(0);
        let id = task.stdout.trim().to_owned();
        let _ = stage.run(["wait", "--json", &id]).expect_code(0);
        weft.push(begin.elapsed().as_secs_f64());
        let _ = std::fs::remove_file(stage.home().join("tasks").join(&id).join("output"));
    }
    let (direct, cat, weft) = (
        MIB / median(&mut direct),
        MIB / median(&mut cat),
        MIB / median(&mut weft),
    );
    report.figure("job > file, 1 GiB", direct, "MiB/s", None, "");
    report.figure("job | cat > file, 1 GiB", cat, "MiB/s", None, "");
    report.figure(
        "weft run, 1 GiB, beside the redirect",
        weft,
        "MiB/s",
        Some(("job > file", direct)),
        ">= 0.6x",
    );
    report.figure(
        "weft run, 1 GiB, beside cat",
        weft,
        "MiB/s",
        Some(("job | cat > file", cat)),
        ">= 2.5x",
    );
}

fn shell(line: &str) -> f64 {
    let begin = Instant::now();
    let status = Command::new("sh")
        .arg("-c")
        .arg(line)
        .stdin(Stdio::null())
        .status()
        .expect("sh");
    assert!(status.success());
    begin.elapsed().as_secs_f64()
}

pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
