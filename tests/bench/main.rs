//! Benchmarks of weft, each beside the machine's own limit and, where it is installed, a peer, in the same run.
//!
//! `cargo bench -p weft-tests` runs all; `cargo bench -p weft-tests -- publish starts` runs those. Figures are for ratios within one
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

use report::Report;

type Section = (&'static str, fn(&mut Report));

fn main() {
    if std::env::args()
        .nth(1)
        .is_some_and(|word| word == capture::PRINT)
    {
        capture::print();
        return;
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let mut report = Report::new();
    let sections: [Section; 7] = [
        ("raw", raw::run),
        // First what makes many small files: a file system that has just lost thousands of them makes new ones slowly.
        ("starts", starts::run),
        ("completion", completion::run),
        ("publish", publish::run),
        ("http", http::run),
        ("capture", capture::run),
        ("memory", memory::run),
    ];
    for (name, run) in sections {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            report.section(name);
            run(&mut report);
        }
    }
    report.finish();
}
