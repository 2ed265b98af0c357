//! Standard input of a task with pipes: what was written and not read yet.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::limits::shim::INPUT_BYTES_MAX;

/// The shim's end of a task's standard input.
#[derive(Debug)]
pub(crate) struct Input {
    pipe: Option<OwnedFd>,
    queue: VecDeque<u8>,
    is_closing: bool,
}

impl Input {
    pub(crate) const fn new(pipe: Option<OwnedFd>) -> Self {
        Self {
            pipe,
            queue: VecDeque::new(),
            is_closing: false,
        }
    }

    /// Whether more can be written.
    pub(crate) const fn is_open(&self) -> bool {
        self.pipe.is_some() && !self.is_closing
    }

    /// The pipe, while something waits to be written to it.
    pub(crate) fn waiting(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref().filter(|_| !self.queue.is_empty())
    }

    /// Takes all of the bytes or none. The refusal is in a form to show.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        if !self.is_open() {
            return Err("the task's input is closed".to_owned());
        }
        if self.queue.len() + bytes.len() > INPUT_BYTES_MAX {
            return Err(format!(
                "the task has not read its input: {} bytes wait and at most {INPUT_BYTES_MAX} may; write again later",
                self.queue.len()
            ));
        }
        self.queue.extend(bytes);
        self.push();
        Ok(())
    }

    /// End of file, after what waits. A second time changes nothing.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
        self.push();
    }

    /// Hands over what the pipe takes now.
    pub(crate) fn push(&mut self) {
        while let Some(pipe) = self.waiting() {
            match rustix::io::write(pipe, self.queue.as_slices().0) {
                Ok(bytes) => drop(self.queue.drain(..bytes)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // Nobody reads any more.
                Err(_) => {
                    self.pipe = None;
                    self.queue = VecDeque::new();
                }
            }
        }
        if self.is_closing {
            self.pipe = None;
        }
        if self.queue.is_empty() {
            self.queue.shrink_to_fit();
        }
    }
}
