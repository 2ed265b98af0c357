//! Benchmarks of weft, each beside the machine's own limit and, where it is installed, a peer, in the same run.
//!
//! `cargo build --release && cargo bench -p weft-tests` runs all; `cargo bench -p weft-tests --bench weft -- publish starts` runs those. Figures are for ratios within one
//! run: a disk that is busy with something else is ten times slower. The last line is the whole as JSON.
#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a benchmark fails by panicking"
)]

mod capture;
mod completion;
mod http;
mod memory;
mod publish;
mod raw;
mod report;
mod starts;
mod terminals;

use report::Report;

type Section = (&'static str, fn(&mut Report));

const SECTIONS: [Section; 8] = [
    ("raw", raw::run),
    // First what makes many small files: a file system that has just lost thousands of them makes new ones slowly.
    ("starts", starts::run),
    ("completion", completion::run),
    ("publish", publish::run),
    ("http", http::run),
    ("capture", capture::run),
    ("terminals", terminals::run),
    ("memory", memory::run),
];

fn main() {
    if std::env::args()
        .nth(1)
        .is_some_and(|word| word == capture::PRINT)
    {
        capture::print();
        return;
    }
    // `cargo bench` adds `--bench` to what it is given.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|wanted| SECTIONS.iter().all(|(name, _)| name != wanted))
    {
        let names: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "{unknown:?} is no section; there are {}, and none given means all",
            names.join(" ")
        );
        std::process::exit(2);
    }
    let mut report = Report::new();
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            report.section(name);
            run(&mut report);
        }
    }
    report.finish();
}
