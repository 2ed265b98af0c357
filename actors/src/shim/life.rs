//! The loop: whatever happens to a task comes in here, the machine decides, and this does it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};
use serde_json::json;

use super::capture::{Capture, Found};
use super::clock::{Timer, boot_ms, record_ms};
use super::control::Control;
use super::finish;
use super::input::Input;
use super::journal::Journal;
use super::machine::{Effect, Machine, MainEnd};
use super::requests::Marks;
use super::signals;
use super::start::pid_number;
use super::tree::{self, Freezer};
use crate::limits::shim::{CONSUMER_ROOM_BYTES, IDLE_MS};
use crate::sys::{self, proc::Family};
use crate::task::folder::{Folder, Room, SOCKET};
use crate::task::wire::{
    Hello, Launch, Lease, Line, PROTOCOL, Receipt, Running, Stopped, StreamName, Usage,
};

/// How long nothing must happen before memory is given back.
const IDLE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: IDLE_MS * 1_000_000,
};

/// The main process.
pub(crate) struct Main {
    pub(crate) pid: Pid,
    pub(crate) started_at: u64,
    /// How it ended, once it was waited for.
    pub(crate) end: Option<MainEnd>,
    pub(crate) ended_at: u64,
}

/// One supervised task.
pub(crate) struct Shim {
    pub(crate) machine: Machine,
    pub(crate) main: Main,
    pub(crate) launch: Launch,
    pub(crate) folder: Folder,
    pub(crate) capture: Capture,
    pub(crate) input: Input,
    /// The supervisor's end of the terminal, where there is one.
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) marks: Marks,
    pub(crate) control: Control,
    pub(crate) journal: Journal,
    pub(crate) timer: Timer,
    pub(crate) signals: OwnedFd,
    pub(crate) receipt_room: Room,
    pub(crate) boot_id: String,
    pub(crate) freezer: Freezer,
    pub(crate) survivors: Vec<u32>,
    pub(crate) last_output_at: Option<u64>,
    pub(crate) is_done: bool,
    /// Memory was used that a waiting shim does not need.
    pub(crate) is_large: bool,
    pub(crate) _lock: File,
}

/// All that can wake the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Timer,
    Listener,
    Input,
    Stream(usize),
    Connection(usize),
}

impl Shim {
    /// What the starter is told.
    pub(crate) fn running(&self) -> Running {
        Running {
            pid: pid_number(self.main.pid),
            started_at: self.main.started_at,
        }
    }

    /// Supervises to the end, and tells of it.
    pub(crate) fn live(mut self) {
        while !self.is_done {
            let wakes = [self.machine.next_wake(), self.capture.next_wake()];
            // Without its timer a shim would miss its deadline: better no shim, and the command with it.
            if self.timer.arm(wakes.into_iter().flatten().min()).is_err() {
                std::process::abort();
            }
            for source in self.wait() {
                self.handle(source);
            }
            let now = boot_ms();
            let effects = self.machine.on_time(now);
            self.act(effects);
            self.is_large |= self.capture.calm(now);
            self.control
                .answer_awaits(|name| self.capture.size_of(name));
            self.control
                .answer_rooms(|bytes| self.input.is_ready_for(bytes));
            self.sweep();
        }
        self.finish();
    }

    fn wait(&mut self) -> Vec<Source> {
        let mut sources = vec![Source::Signals, Source::Timer, Source::Listener];
        let mut fds = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::from_borrowed_fd(self.timer.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.control.listener(), PollFlags::IN),
        ];
        if let Some(pipe) = self.input.waiting() {
            sources.push(Source::Input);
            fds.push(PollFd::new(pipe, PollFlags::OUT));
        }
        for (index, pipe, name, size) in self.capture.pipes() {
            if self.is_held_back(name, size) {
                continue;
            }
            sources.push(Source::Stream(index));
            fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        }
        for (index, connection) in self.control.connections.iter().enumerate() {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, connection.has_output());
            sources.push(Source::Connection(index));
            fds.push(PollFd::from_borrowed_fd(connection.fd(), flags));
        }
        if self.is_large && matches!(rustix::event::poll(&mut fds, Some(&IDLE)), Ok(0)) {
            // At the last moment: only what runs from here to the next event is mapped again. A task that is
            // busy, or over in a moment, does not wait for this.
            sys::give_memory_back();
            self.is_large = false;
        }
        if rustix::event::poll(&mut fds, None).is_err() {
            return Vec::new();
        }
        let ready = sources.into_iter().zip(fds);
        let ready = ready.filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(source, _)| source).collect()
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Signals => self.on_signals(),
            Source::Timer => self.timer.take(),
            Source::Listener => {
                let hello = self.hello();
                self.control.accept(&hello);
            }
            Source::Input => self.input.push(),
            Source::Stream(index) => self.on_stream(index),
            Source::Connection(index) => {
                self.control.connections[index].flush();
                for request in self.control.connections[index].read() {
                    self.on_request(index, request);
                }
            }
        }
    }

    /// Whether a stream is left unread, so that the command waits for who takes its output on, as it would for a
    /// pipe's reader. Not once the command has ended: what the pipe still holds then is less than the room left.
    fn is_held_back(&self, name: StreamName, size: u64) -> bool {
        let keep = self.launch.keep_bytes;
        let ahead_max = keep - (keep / 2).min(CONSUMER_ROOM_BYTES);
        self.machine.lease() == Lease::Foreground
            && !self.machine.is_ending()
            && self.control.is_behind(name, size, ahead_max)
    }

    fn on_stream(&mut self, index: usize) {
        let now = boot_ms();
        match self.capture.read(&self.folder, index, now) {
            Found::Bytes => {
                self.last_output_at = Some(record_ms());
                self.machine.on_output(now);
            }
            Found::End => {
                let effects = self.machine.on_stream_end();
                self.act(effects);
            }
            Found::Nothing => {}
        }
    }

    fn on_signals(&mut self) {
        let mut is_told_to_end = false;
        for signal in sys::take_signals(self.signals.as_fd()) {
            is_told_to_end |= [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT]
                .iter()
                .any(|it| it.as_raw().unsigned_abs() == signal);
        }
        self.reap();
        if is_told_to_end {
            // Whoever ends a shim by hand, or shuts the system down, means its task.
            let effects = self
                .machine
                .on_stop(boot_ms(), None, Some("shim-terminated"));
            self.act(effects);
        }
    }

    /// Waits for everybody who has ended. Only the main process may have to be left, so that its number
    /// stays its own until a stop is through with the tree.
    fn reap(&mut self) {
        while let Some(pid) = sys::peek_ended() {
            if pid != pid_number(self.main.pid) {
                wait_for(pid);
                continue;
            }
            if self.main.ended_at == 0 {
                self.main.ended_at = record_ms();
            }
            let effects = self.machine.on_main_ended(boot_ms());
            self.act(effects);
            if self.main.end.is_none() {
                // It stays, and hides the others from the call above.
                self.reap_others();
                break;
            }
        }
        self.look_at_tree();
    }

    fn reap_others(&self) {
        for pid in Family::now().children_of(std::process::id()) {
            let is_ended = || sys::stat_of(pid).is_some_and(|stat| stat.is_ended());
            if pid != pid_number(self.main.pid) && is_ended() {
                wait_for(pid);
            }
        }
    }

    fn look_at_tree(&mut self) {
        if self.machine.is_stopping() && tree::is_empty() {
            let effects = self.machine.on_tree_empty(boot_ms());
            self.act(effects);
        }
    }

    pub(super) fn act(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Terminate => {
                    self.freezer = Freezer::default();
                    self.journal.note(record_ms(), "stopping", &json!({}));
                    tree::signal_all(Signal::TERM);
                }
                Effect::Freeze => {
                    let round = self.freezer.round();
                    let effects = self.machine.on_frozen(boot_ms(), round);
                    self.act(effects);
                }
                Effect::Kill => {
                    tree::signal_all(Signal::KILL);
                    self.reap();
                }
                Effect::GiveUp => self.give_up(),
                Effect::ReapMain => self.reap_main(),
                Effect::Finish => self.is_done = true,
            }
        }
    }

    fn give_up(&mut self) {
        self.survivors = tree::members()
            .into_iter()
            .map(|member| member.pid)
            .collect();
        if self.main.ended_at == 0 {
            let survivors = self.survivors.clone();
            self.control.answer_stops(&Stopped {
                state: None,
                survivors,
            });
        }
    }

    fn reap_main(&mut self) {
        let waited = rustix::process::waitpid(Some(self.main.pid), WaitOptions::NOHANG);
        if let Ok(Some((_, status))) = waited {
            let code = || MainEnd::Code(status.exit_status().unwrap_or_default());
            let end = status
                .terminating_signal()
                .map_or_else(code, MainEnd::Signal);
            self.main.end = Some(end);
        }
    }

    fn sweep(&mut self) {
        for _ in 0..self.control.sweep() {
            let effects = self.machine.on_release(boot_ms());
            self.act(effects);
        }
    }

    fn hello(&self) -> Line {
        Line::Hello(Hello {
            hello: PROTOCOL,
            id: self.launch.id.clone(),
            pid: pid_number(self.main.pid),
            lease: self.machine.lease(),
            sizes: self.capture.sizes(),
        })
    }

    fn finish(mut self) {
        self.capture.settle(&self.folder);
        self.journal.settle_input(record_ms());
        let Some(mut receipt) = self.receipt() else {
            return;
        };
        if !finish::write_receipt(&self.folder, &self.receipt_room, &mut receipt) {
            return;
        }
        let data = json!({"state": receipt.state, "exitCode": receipt.exit_code});
        self.journal
            .note_end(receipt.finished_at, "finished", &data);
        // Whoever connected in this moment is told as well.
        let hello = self.hello();
        self.control.accept(&hello);
        self.control.answer_stops(&Stopped {
            state: Some(receipt.state),
            survivors: receipt.survivors.clone(),
        });
        let ended = Box::new(receipt);
        self.control
            .farewell(&Line::Ended { ended }, |name| self.capture.size_of(name));
        let _ = self.folder.remove_file(SOCKET);
        self.control.connections.clear();
        finish::announce(&self.folder, &self.launch, &mut self.journal);
    }

    fn receipt(&self) -> Option<Receipt> {
        let outcome = self.machine.outcome(self.main.end?);
        let streams = self.capture.sizes();
        let (cpu_ms, peak_rss_bytes) = sys::children_usage();
        Some(Receipt {
            task_id: self.launch.id.clone(),
            state: outcome.state,
            exit_code: outcome.exit_code,
            signal: outcome.signal.map(signals::name_of),
            reason: outcome.reason,
            started_at: self.main.started_at,
            finished_at: self.main.ended_at,
            last_output_at: self.last_output_at,
            output_bytes: streams.values().sum(),
            streams,
            streams_held_open: self.machine.is_held_open(),
            survivors: self.survivors.clone(),
            usage: Usage {
                cpu_ms,
                peak_rss_bytes,
            },
            incarnation: self.launch.incarnation.clone(),
            boot_id: self.boot_id.clone(),
        })
    }
}

fn wait_for(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if pid.is_some() {
        let _ = rustix::process::waitpid(pid, WaitOptions::NOHANG);
    }
}
