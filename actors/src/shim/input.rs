//! Standard input of a task with pipes or a terminal: what was written and not read yet.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::termios::{InputModes, LocalModes, SpecialCodeIndex, Termios};

use crate::limits::shim::{INPUT_BYTES_MAX, TERMINAL_LINE_BYTES_MAX};
use crate::task::wire::INPUT_IS_FULL;

/// The shim's end of a task's standard input.
#[derive(Debug)]
pub(crate) struct Input {
    sink: Option<OwnedFd>,
    queue: VecDeque<u8>,
    is_closing: bool,
    is_terminal: bool,
    /// Bytes of the line that a terminal in line mode was given and that has no end yet.
    line: usize,
    /// All bytes that were taken since the start.
    total: u64,
}

/// What a terminal does to the bytes that it is given, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LineMode {
    /// Bytes after which the line before is with the reader, or gone.
    ends: Vec<u8>,
    /// What is typed for the end of the file.
    end_of_file: u8,
}

impl LineMode {
    /// The mode of a terminal; none where the program takes bytes as they come.
    fn of(termios: &Termios) -> Option<Self> {
        if !termios.local_modes.contains(LocalModes::ICANON) {
            return None;
        }
        let code = |index| termios.special_codes[index];
        let mut ends = vec![b'\n', code(SpecialCodeIndex::VKILL)];
        ends.extend(
            [
                SpecialCodeIndex::VEOF,
                SpecialCodeIndex::VEOL,
                SpecialCodeIndex::VEOL2,
            ]
            .map(code),
        );
        if termios.input_modes.contains(InputModes::ICRNL) {
            ends.push(b'\r');
        }
        if termios.local_modes.contains(LocalModes::ISIG) {
            let signals = [
                SpecialCodeIndex::VINTR,
                SpecialCodeIndex::VQUIT,
                SpecialCodeIndex::VSUSP,
            ];
            ends.extend(signals.map(code));
        }
        // Zero says that there is no such key.
        ends.retain(|end| *end != 0);
        Some(Self {
            ends,
            end_of_file: code(SpecialCodeIndex::VEOF),
        })
    }

    /// The length of the unfinished line after `bytes`, where `line` bytes of it are there already. Refused where a line
    /// would be longer than the kernel keeps: it drops the rest without a word.
    fn measure(&self, mut line: usize, bytes: &[u8]) -> Result<usize, String> {
        for byte in bytes {
            if self.ends.contains(byte) {
                line = 0;
                continue;
            }
            line += 1;
            if line > TERMINAL_LINE_BYTES_MAX {
                return Err(format!(
                    "the terminal is in line mode and takes at most {TERMINAL_LINE_BYTES_MAX} bytes in a line; nothing was written: \
                     break the line, pass the text in a file, or use pipes"
                ));
            }
        }
        Ok(line)
    }
}

impl Input {
    /// A task's input; without a `sink` it is closed from the start.
    pub(crate) const fn new(sink: Option<OwnedFd>, is_terminal: bool) -> Self {
        Self {
            sink,
            queue: VecDeque::new(),
            is_closing: false,
            is_terminal,
            line: 0,
            total: 0,
        }
    }

    /// Whether more can be written.
    pub(crate) const fn is_open(&self) -> bool {
        self.sink.is_some() && !self.is_closing
    }

    /// Whether a write of so many bytes gets its answer now: it would be taken, or never will be.
    pub(crate) fn is_ready_for(&self, bytes: usize) -> bool {
        !self.is_open() || self.queue.len() + bytes <= INPUT_BYTES_MAX
    }

    /// All bytes that were taken since the start.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// The descriptor, while something waits to be written to it.
    pub(crate) fn waiting(&self) -> Option<&OwnedFd> {
        self.sink.as_ref().filter(|_| !self.queue.is_empty())
    }

    /// Takes all of the bytes or none. The refusal is in a form to show.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.is_closing {
            return Err("the task's input is closed".to_owned());
        }
        if self.sink.is_none() {
            return Err("the task has closed its input".to_owned());
        }
        if !self.is_ready_for(bytes.len()) {
            return Err(format!(
                "{INPUT_IS_FULL}: {} bytes wait and at most {INPUT_BYTES_MAX} may; write again later",
                self.queue.len()
            ));
        }
        self.line = match self.line_mode() {
            Some(mode) => mode.measure(self.line, bytes)?,
            None => 0,
        };
        self.queue.extend(bytes);
        self.push();
        if self.sink.is_none() {
            return Err("the task has closed its input".to_owned());
        }
        self.total += bytes.len() as u64;
        Ok(())
    }

    /// End of file, after what waits; on a terminal the key for it. A second time changes nothing.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        if self.is_closing || self.sink.is_none() {
            return Ok(());
        }
        if self.is_terminal {
            let mode = self.line_mode().filter(|mode| mode.end_of_file != 0);
            let Some(mode) = mode else {
                return Err(
                    "the terminal is not in line mode, where no key ends the input; write what the program takes for it".to_owned(),
                );
            };
            // Behind an unfinished line the first one only hands that over.
            let keys = if self.line > 0 { 2 } else { 1 };
            self.queue
                .extend(std::iter::repeat_n(mode.end_of_file, keys));
        }
        self.is_closing = true;
        self.push();
        Ok(())
    }

    /// Hands over what the task takes now.
    pub(crate) fn push(&mut self) {
        while let Some(sink) = self.waiting() {
            match rustix::io::write(sink, self.queue.as_slices().0) {
                Ok(bytes) => drop(self.queue.drain(..bytes)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // Nobody reads any more.
                Err(_) => {
                    self.sink = None;
                    self.queue = VecDeque::new();
                }
            }
        }
        if self.is_closing {
            self.sink = None;
        }
        if self.queue.is_empty() {
            self.queue.shrink_to_fit();
        }
    }

    fn line_mode(&self) -> Option<LineMode> {
        let sink = self.sink.as_ref().filter(|_| self.is_terminal)?;
        LineMode::of(&rustix::termios::tcgetattr(sink).ok()?)
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
