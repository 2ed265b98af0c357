//! The shim: the small process that supervises one task and outlives the node.
//!
//! It owns the command's process tree, its streams, its deadline, its lease and its receipt, whatever the
//! lease and the kind of I/O. It has one thread and no runtime, waits in `poll` alone and waits for no node.
//!
//! Its life: [`main`] makes the process what it has to be; `start` takes the lock, makes the files, starts the
//! command and answers; `life` is the loop; `machine` decides; `finish` writes the receipt and tells.

mod capture;
mod child;
mod clock;
mod control;
mod finish;
mod input;
mod journal;
mod life;
mod machine;
mod post;
mod requests;
mod signals;
mod space;
mod start;
mod store;
mod tree;
mod wake;

use std::io::{self, Write as _};

use rustix::fs::{Mode, OFlags};

use crate::sys;
use crate::task::wire::Answer;

/// The shim's whole process, to be called before anything else is made: no descriptor above 2 may be owned
/// and no second thread may run. Reads one [`crate::task::wire::Launch`] from standard input, in the task's
/// folder as working directory, and writes one [`Answer`] to standard output.
pub fn main() -> ! {
    // Half a shim is worse than none: without one the kernel ends the command and the task is lost, said
    // plainly. With unwinding something might go on without its supervisor.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    become_shim();
    let (answer, shim) = match start::start() {
        Ok(shim) => (Answer::Started(shim.running()), Some(shim)),
        Err(answer) => (answer, None),
    };
    say(&answer);
    if let Some(shim) = shim {
        shim.live();
    }
    std::process::exit(0)
}

/// What a supervisor must be before it owns anything.
fn become_shim() {
    // A refusal of any of these is no reason to run nothing: setsid fails for a leader that has a session of
    // its own already, the rest on no supported kernel.
    let _ = rustix::process::setsid();
    sys::close_inherited(3);
    let _ = rustix::thread::set_name(c"weft-shim");
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    rustix::process::umask(Mode::from_raw_mode(0o077));
}

/// Answers and lets go of whoever started this. Nobody may be there to hear any more; the task goes on.
fn say(answer: &Answer) {
    if let Ok(line) = serde_json::to_string(answer) {
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        sys::forget_standard_streams(&null);
    }
}
