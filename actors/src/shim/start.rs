//! The start of a task: lock, room for the receipt, files, socket, command, the file `started`.
//!
//! Invariant: no byte of the command runs before `started` names it, and a failed start leaves nothing.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::process::{Pid, WaitOptions};
use serde_json::json;

use super::capture::Capture;
use super::child::{self, Streams3, explain, failure, refusal};
use super::clock::{Timer, boot_ms, record_ms};
use super::control::Control;
use super::input::Input;
use super::journal::Journal;
use super::life::{Main, Shim};
use super::machine::{Machine, Rules};
use super::requests::Marks;
use super::tree::Freezer;
use crate::limits::shim::{LAUNCH_BYTES_MAX, RECEIPT_ROOM_BYTES, STARTED_ROOM_BYTES};
use crate::sys::{self, Program, Waiting, proc};
use crate::task::folder::{EVENTS, Folder, KEPT, LOCK, LOST, RECEIPT, Room, SOCKET, STARTED};
use crate::task::wire::{Answer, Failure, Launch, PROTOCOL, Started};

/// The signals that the loop hears instead of being ended or disturbed by them.
const HEARD: [libc::c_int; 6] = [
    libc::SIGCHLD,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    // A limit on file sizes is then an error of the write, which is handled.
    libc::SIGXFSZ,
];

/// Starts the task of the working directory, or says why not.
pub(crate) fn start() -> Result<Shim, Answer> {
    let launch = read_launch().map_err(Answer::Failed)?;
    let folder = Folder::open(Path::new(".")).map_err(fail("opening the task's folder"))?;
    let lock = match folder.try_lock() {
        Ok(Some(lock)) => lock,
        Ok(None) => return Err(Answer::Busy(true)),
        Err(error) => return Err(fail("locking the task's folder")(error)),
    };
    // Looked at under the lock: a task has one run, and one that was called lost has had it.
    if folder.has(RECEIPT) || folder.has(STARTED) || folder.has(LOST) {
        return Err(Answer::Busy(true));
    }
    begin(launch, &folder, lock).map_err(|failure| {
        sweep(&folder);
        Answer::Failed(failure)
    })
}

fn read_launch() -> Result<Launch, Failure> {
    let mut text = Vec::new();
    io::stdin()
        .lock()
        .take(LAUNCH_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| failure("reading the launch document", &error))?;
    if text.len() as u64 > LAUNCH_BYTES_MAX {
        return Err(refusal(
            "the launch document is longer than any command the system takes",
        ));
    }
    let launch: Launch = serde_json::from_slice(&text)
        .map_err(|error| refusal(&format!("the launch document cannot be read: {error}")))?;
    if launch.version != PROTOCOL {
        let theirs = launch.version;
        return Err(refusal(&format!(
            "the node speaks launch protocol {theirs} and this shim {PROTOCOL}; run both from one release"
        )));
    }
    Ok(launch)
}

/// Everything that a task stands on, made before its command.
struct Ground {
    receipt_room: Room,
    started_room: Room,
    journal: Journal,
    capture: Capture,
    control: Control,
    timer: Timer,
    signals: std::os::fd::OwnedFd,
    boot_id: String,
}

fn lay_ground(launch: &Launch, folder: &Folder) -> io::Result<Ground> {
    Ok(Ground {
        receipt_room: folder.reserve(RECEIPT, RECEIPT_ROOM_BYTES)?,
        started_room: folder.reserve(STARTED, STARTED_ROOM_BYTES)?,
        journal: Journal::create(folder)?,
        capture: Capture::create(folder, launch)?,
        control: Control::bind(folder)?,
        timer: Timer::new()?,
        signals: sys::signal_descriptor(&HEARD)?,
        boot_id: sys::boot_id()?,
    })
}

fn begin(mut launch: Launch, folder: &Folder, lock: File) -> Result<Shim, Failure> {
    let program = child::prepare(&launch)?;
    let doing = "making the task's files";
    let mut ground = lay_ground(&launch, folder).map_err(|error| failure(doing, &error))?;
    let (ends, streams) =
        child::open_streams(&launch).map_err(|error| failure("making the streams", &error))?;
    let main = run(&launch, folder, &program, streams, &ground)?;
    drop(program);
    let is_terminal = ends.terminal.is_some();
    ground.capture.connect(ends.outputs, is_terminal);
    let mut data = json!({"pid": main.pid.as_raw_nonzero().get(), "lease": launch.lease});
    if is_terminal {
        data["size"] = json!(child::size_of(&launch));
    }
    ground.journal.note(main.started_at, "started", &data);
    let rules = Rules {
        lease: launch.lease,
        deadline_ms: launch.deadline_ms,
        deadline_reason: launch
            .deadline_reason
            .take()
            .unwrap_or_else(|| "deadline".to_owned()),
        grace_ms: launch.grace_ms,
    };
    let machine = Machine::new(boot_ms(), rules, launch.streams.names().len());
    // The shim lives long and needs neither the words nor the values any more.
    launch.argv = Vec::new();
    launch.env = Vec::new();
    launch.stdin = None;
    let folder = Folder::open(Path::new(".")).map_err(|error| failure(doing, &error))?;
    Ok(Shim {
        machine,
        main,
        folder,
        capture: ground.capture,
        control: ground.control,
        journal: ground.journal,
        timer: ground.timer,
        signals: ground.signals,
        receipt_room: ground.receipt_room,
        boot_id: ground.boot_id,
        input: Input::new(ends.input, is_terminal),
        terminal: ends.terminal,
        marks: Marks::default(),
        launch,
        freezer: Freezer::default(),
        survivors: Vec::new(),
        last_output_at: None,
        is_done: false,
        is_large: true,
        _lock: lock,
    })
}

/// Starts the command. It has a pid before it runs, and runs only when that is on disk.
fn run(
    launch: &Launch,
    folder: &Folder,
    program: &Program,
    streams: Streams3,
    ground: &Ground,
) -> Result<Main, Failure> {
    let waiting = sys::fork(program, streams.as_fds())
        .map_err(|error| failure("starting a process", &error))?;
    // Invariant: the shim keeps no end of the command's streams, or it would never see their end.
    drop(streams);
    let pid = waiting.pid;
    let started_at = record_ms();
    let outcome = match write_started(folder, &ground.started_room, &waiting, started_at, ground) {
        Ok(()) => waiting.release(),
        Err(error) => {
            // Its pipe closes with this, and the child ends.
            drop(waiting);
            Err(error)
        }
    };
    let problem = match outcome {
        Ok(Ok(())) => {
            return Ok(Main {
                pid,
                started_at,
                end: None,
                ended_at: 0,
            });
        }
        Ok(Err((step, error))) => explain(launch, step, &error),
        Err(error) => failure("starting the command", &error),
    };
    // The child has ended or waits on a pipe that closed; it has run nothing.
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    Err(problem)
}

fn write_started(
    folder: &Folder,
    room: &Room,
    waiting: &Waiting,
    started_at: u64,
    ground: &Ground,
) -> io::Result<()> {
    let pid = pid_number(waiting.pid);
    let gone = || io::Error::other("the new process is gone");
    let birth = sys::birth_of(pid).ok_or_else(gone)?;
    let started = Started {
        pid,
        birth,
        unique: proc::open_process(pid, birth)
            .as_ref()
            .and_then(proc::unique_of),
        boot_id: ground.boot_id.clone(),
        pid_ns: sys::pid_namespace()?,
        started_at,
        shim: std::process::id(),
        folder: Some(folder.identity()?),
    };
    room.settle(folder, &serde_json::to_vec(&started)?, false)
}

/// A pid as the records have it.
pub(crate) fn pid_number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

fn fail(doing: &'static str) -> impl Fn(io::Error) -> Answer {
    move |error| Answer::Failed(failure(doing, &error))
}

/// Removes whatever a start that failed has made. The lock's name goes last, and still under the lock.
fn sweep(folder: &Folder) {
    let rooms = [RECEIPT, STARTED].map(|name| format!("{name}.room"));
    let names = [STARTED, KEPT, EVENTS, SOCKET, "output", "stdout", "stderr"];
    for name in rooms.iter().map(String::as_str).chain(names).chain([LOCK]) {
        // What stays goes with the folder, which the node removes.
        let _ = folder.remove_file(name);
    }
}
