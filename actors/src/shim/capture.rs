//! From the pipes to the files: reads that grow with what comes, and shrink when it is quiet.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use super::store::{KeptFile, Store};
use crate::limits::shim::{PIPE_BYTES_STEPS, PIPE_QUIET_MS, READ_BYTES_FIRST};
use crate::task::folder::Folder;
use crate::task::wire::{Launch, StreamName};

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Bytes, which are in the file now.
    Bytes,
    /// Nothing at the moment.
    Nothing,
    /// The end of the file: nobody holds the other side.
    End,
}

/// All captured streams of a task.
pub(crate) struct Capture {
    streams: Vec<Stream>,
    kept: KeptFile,
    buffer: Vec<u8>,
    /// When a read last filled its buffer, while anything is larger than at the start.
    full_at: Option<u64>,
    is_terminal: bool,
}

struct Stream {
    name: StreamName,
    pipe: Option<OwnedFd>,
    store: Store,
    /// How many steps its reads have grown.
    step: usize,
    /// The step beyond which the system refused a larger pipe.
    step_max: usize,
}

impl Capture {
    /// Makes the files.
    pub(crate) fn create(folder: &Folder, launch: &Launch) -> io::Result<Self> {
        let stream = |name: &StreamName| {
            let store = Store::create(folder, *name, launch.keep_bytes, launch.free_floor)?;
            Ok(Stream {
                name: *name,
                pipe: None,
                store,
                step: 0,
                step_max: PIPE_BYTES_STEPS.len(),
            })
        };
        let names = launch.streams.names();
        Ok(Self {
            streams: names.iter().map(stream).collect::<io::Result<_>>()?,
            kept: KeptFile::create(folder)?,
            buffer: vec![0; READ_BYTES_FIRST],
            full_at: None,
            is_terminal: false,
        })
    }

    /// Takes the pipes, or the one end of a terminal.
    pub(crate) fn connect(&mut self, ends: Vec<(StreamName, OwnedFd)>, is_terminal: bool) {
        self.is_terminal = is_terminal;
        for (name, pipe) in ends {
            if let Some(stream) = self.streams.iter_mut().find(|it| it.name == name) {
                stream.pipe = Some(pipe);
            }
        }
    }

    /// The pipes that are still open, by index, with the stream's name and size.
    pub(crate) fn pipes(&self) -> impl Iterator<Item = (usize, &OwnedFd, StreamName, u64)> {
        let streams = self.streams.iter().enumerate();
        streams.filter_map(|(index, stream)| {
            let pipe = stream.pipe.as_ref()?;
            Some((index, pipe, stream.name, stream.store.size()))
        })
    }

    /// Bytes since launch of each stream.
    pub(crate) fn sizes(&self) -> BTreeMap<StreamName, u64> {
        let streams = self.streams.iter();
        streams
            .map(|stream| (stream.name, stream.store.size()))
            .collect()
    }

    /// Bytes since launch of one stream, where the task has it.
    pub(crate) fn size_of(&self, name: StreamName) -> Option<u64> {
        let stream = self.streams.iter().find(|stream| stream.name == name)?;
        Some(stream.store.size())
    }

    /// Reads once from a stream that has something.
    pub(crate) fn read(&mut self, folder: &Folder, index: usize, now: u64) -> Found {
        let stream = &mut self.streams[index];
        let Some(pipe) = &stream.pipe else {
            return Found::Nothing;
        };
        let wanted = buffer_bytes(stream.step);
        let found = if self.is_terminal {
            read_repeatedly(pipe, &mut self.buffer[..wanted])
        } else {
            rustix::io::read(pipe, &mut self.buffer[..wanted])
        };
        match found {
            Ok(0) => {
                stream.pipe = None;
                Found::End
            }
            Ok(bytes) => {
                stream
                    .store
                    .append(folder, &mut self.kept, &self.buffer[..bytes], now);
                if bytes == wanted {
                    self.grow(index, now);
                }
                Found::Bytes
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Found::Nothing,
            // A terminal's end of file is an error of input, told when the last holder of its other end is gone.
            Err(_) => {
                stream.pipe = None;
                Found::End
            }
        }
    }

    /// When [`Capture::calm`] has something to give back.
    pub(crate) fn next_wake(&self) -> Option<u64> {
        self.full_at.map(|at| at + PIPE_QUIET_MS)
    }

    /// Gives large pipes and the large buffer back after a quiet while, and says whether it did.
    pub(crate) fn calm(&mut self, now: u64) -> bool {
        if self.next_wake().is_none_or(|at| now < at) {
            return false;
        }
        let mut is_busy = false;
        for stream in &mut self.streams {
            if let Some(pipe) = stream.pipe.as_ref().filter(|_| stream.step > 1) {
                // A pipe that holds more than it would have room for keeps its size until the next look.
                is_busy |= rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES_STEPS[0]).is_err();
            }
            if !is_busy {
                stream.step = 0;
            }
        }
        if is_busy {
            self.full_at = Some(now);
            return false;
        }
        self.full_at = None;
        self.buffer = vec![0; READ_BYTES_FIRST];
        true
    }

    /// Leaves the files as a reader after the end wants them, and lets go of the pipes.
    pub(crate) fn settle(&mut self, folder: &Folder) {
        for stream in &mut self.streams {
            stream.pipe = None;
            stream.store.settle(folder, &mut self.kept);
        }
    }

    fn grow(&mut self, index: usize, now: u64) {
        self.full_at = Some(now);
        let stream = &mut self.streams[index];
        if stream.step >= stream.step_max {
            return;
        }
        // The first step is a pipe's own size and needs no larger pipe.
        let next = stream.step + 1;
        let is_granted = next == 1
            || !self.is_terminal
                && stream.pipe.as_ref().is_some_and(|pipe| {
                    rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES_STEPS[next - 1]).is_ok()
                });
        if !is_granted {
            stream.step_max = stream.step;
            return;
        }
        stream.step = next;
        if self.buffer.len() < buffer_bytes(next) {
            self.buffer = vec![0; buffer_bytes(next)];
        }
    }
}

fn buffer_bytes(step: usize) -> usize {
    match step {
        0 => READ_BYTES_FIRST,
        _ => PIPE_BYTES_STEPS[step - 1],
    }
}

/// Fills the buffer as far as there is something. A terminal gives at most 4 KiB at a time, and while it is read its writer
/// goes on; a write to the file and a wait for each of them would be dear.
fn read_repeatedly(terminal: &OwnedFd, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let mut filled = rustix::io::read(terminal, &mut *buffer)?;
    while filled > 0 && filled < buffer.len() {
        match rustix::io::read(terminal, &mut buffer[filled..]) {
            Ok(more @ 1..) => filled += more,
            // Nothing now, or the end, which the next read tells again.
            _ => break,
        }
    }
    Ok(filled)
}
