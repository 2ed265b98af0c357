//! What peers ask for on the control socket, one answer each.

use std::collections::{BTreeMap, VecDeque};

use base64::Engine as _;
use rustix::termios::Winsize;
use serde_json::{Value, json};

use super::clock::{boot_ms, record_ms};
use super::control::OpenAsk;
use super::life::Shim;
use super::signals;
use super::start::pid_number;
use super::tree;
use crate::limits::shim::{MARK_CHARS_MAX, MARKS_KEPT};
use crate::limits::{TERMINAL_COLS, TERMINAL_ROWS};
use crate::task::wire::{Ask, HAS_ENDED, Io, Lease, Mark, Request, Status, StreamName};

/// The newest requests that must not be done twice, with their answers.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    done: VecDeque<(Mark, Value)>,
}

impl Marks {
    /// The answer that this request had, if it was here before. Refused where it asked for something else then.
    fn seen(&self, mark: &Mark) -> Result<Option<Value>, String> {
        match self.done.iter().find(|(done, _)| done.id == mark.id) {
            Some((done, answer)) if done.body == mark.body => Ok(Some(answer.clone())),
            Some(_) => {
                Err("this requestId was used for another request; take a new one".to_owned())
            }
            None => Ok(None),
        }
    }

    fn keep(&mut self, mark: Mark, answer: Value) {
        if self.done.len() >= MARKS_KEPT {
            self.done.pop_front();
        }
        self.done.push_back((mark, answer));
    }
}

impl Shim {
    pub(super) fn on_request(&mut self, from: usize, Request { n, ask }: Request) {
        let answer = match ask {
            Ask::Hold { consumes } => {
                if consumes {
                    self.control.connections[from].taken = Some(BTreeMap::new());
                }
                if !self.control.connections[from].holds {
                    self.control.connections[from].holds = true;
                    self.machine.on_hold();
                }
                Ok(json!({"lease": self.machine.lease()}))
            }
            Ask::Lease { to } => self.move_lease(to),
            Ask::Stop { grace_ms, reason } => {
                // Kept open first: the answer may come before this line is over.
                self.control.connections[from].keep_open(OpenAsk::Stop { n });
                let effects = self.machine.on_stop(boot_ms(), grace_ms, reason.as_deref());
                return self.act(effects);
            }
            Ask::Signal { signal, mark } => self.once(mark, |shim| shim.signal(&signal)),
            Ask::Await { stream, after } if self.capture.size_of(stream).is_some() => {
                if let Some(taken) = &mut self.control.connections[from].taken {
                    taken.insert(stream, after);
                }
                let ask = OpenAsk::Await { n, stream, after };
                return self.control.connections[from].keep_open(ask);
            }
            Ask::Await { stream, .. } => Err(format!("this task has no stream {stream}")),
            Ask::Status => Ok(json!(self.status())),
            Ask::Write { data, mark } => self.once(mark, |shim| shim.write(&data)),
            Ask::Room { bytes } => {
                return self.control.connections[from].keep_open(OpenAsk::Room { n, bytes });
            }
            Ask::CloseInput => self.close_input(),
            Ask::Resize { cols, rows } => self.resize(cols, rows),
        };
        match answer {
            Ok(ok) => self.control.connections[from].answer(n, &ok),
            Err(error) => self.control.connections[from].refuse(n, &error),
        }
    }

    /// Does what was asked, unless this very request did it before: then that answer stands. A refusal changed nothing and
    /// is not kept.
    fn once(
        &mut self,
        mark: Option<Mark>,
        work: impl FnOnce(&mut Self) -> Result<Value, String>,
    ) -> Result<Value, String> {
        let Some(mark) = mark else {
            return work(self);
        };
        if mark.id.len() > MARK_CHARS_MAX || mark.body.len() > MARK_CHARS_MAX {
            return Err(format!("mark: takes at most {MARK_CHARS_MAX} characters"));
        }
        if let Some(answer) = self.marks.seen(&mark)? {
            return Ok(answer);
        }
        let answer = work(self)?;
        self.marks.keep(mark, answer.clone());
        Ok(answer)
    }

    fn move_lease(&mut self, to: Lease) -> Result<Value, String> {
        self.machine.on_lease(to)?;
        self.journal
            .note(record_ms(), "lease", &json!({"lease": to}));
        Ok(json!({"lease": to}))
    }

    fn signal(&mut self, name: &str) -> Result<Value, String> {
        let signal = signals::parse(name).ok_or_else(|| {
            format!("signal: {name} is none; use a name such as TERM or a number from 1 to 31")
        })?;
        self.refuse_if_ending()?;
        // Noted first: the end may be there before the call is over.
        self.machine.on_signal_sent(signal.as_raw());
        let denied = tree::signal_all(signal);
        Ok(json!({"denied": denied}))
    }

    fn write(&mut self, data: &str) -> Result<Value, String> {
        let bytes = base64::prelude::BASE64_STANDARD
            .decode(data)
            .map_err(|error| format!("data: no base64: {error}"))?;
        self.refuse_input_of_batch()?;
        self.refuse_if_ending()?;
        self.input.write(&bytes)?;
        self.journal.note_input(record_ms(), self.input.total());
        Ok(json!({"written": bytes.len(), "closed": !self.input.is_open()}))
    }

    fn close_input(&mut self) -> Result<Value, String> {
        self.refuse_input_of_batch()?;
        let was_open = self.input.is_open();
        self.input.close()?;
        if was_open {
            self.journal.settle_input(record_ms());
            let data = json!({"input": self.input.total()});
            self.journal.note(record_ms(), "input-closed", &data);
        }
        Ok(json!({"written": 0, "closed": true}))
    }

    fn refuse_input_of_batch(&self) -> Result<(), String> {
        if self.launch.io == Io::Batch {
            return Err("a batch task has no input; run it with io pipes or pty".to_owned());
        }
        Ok(())
    }

    fn refuse_if_ending(&self) -> Result<(), String> {
        if self.machine.is_ending() {
            return Err(HAS_ENDED.to_owned());
        }
        Ok(())
    }

    fn resize(&mut self, cols: u16, rows: u16) -> Result<Value, String> {
        let Some(terminal) = &self.terminal else {
            return Err(
                "the task has no terminal, whose size could change; run it with io pty".to_owned(),
            );
        };
        if !TERMINAL_COLS.contains(&cols) || !TERMINAL_ROWS.contains(&rows) {
            return Err(format!(
                "size: takes {} to {} columns and {} to {} rows, not {cols}x{rows}",
                TERMINAL_COLS.start(),
                TERMINAL_COLS.end(),
                TERMINAL_ROWS.start(),
                TERMINAL_ROWS.end()
            ));
        }
        let failed = |error: rustix::io::Errno| format!("the terminal's size: {error}");
        let mut size: Winsize = rustix::termios::tcgetwinsize(terminal).map_err(failed)?;
        if (size.ws_col, size.ws_row) != (cols, rows) {
            // What stands on the screen is read from the output and these lines: first the line, then the change.
            let offset = self.capture.size_of(StreamName::Output).unwrap_or(0);
            let data = json!({"size": [cols, rows], "offset": offset});
            if !self.journal.note_size(record_ms(), &data) {
                return Err(
                    "the terminal was resized too often for its size to be recorded once more"
                        .to_owned(),
                );
            }
            (size.ws_col, size.ws_row) = (cols, rows);
            rustix::termios::tcsetwinsize(terminal, size).map_err(failed)?;
        }
        Ok(json!({"size": [cols, rows]}))
    }

    fn status(&self) -> Status {
        let phase = match (self.machine.is_stopping(), self.machine.is_ending()) {
            (true, _) => "stopping",
            (_, true) => "ending",
            _ => "running",
        };
        Status {
            phase: phase.to_owned(),
            pid: pid_number(self.main.pid),
            lease: self.machine.lease(),
            holders: self.machine.holders(),
            sizes: self.capture.sizes(),
            last_output_at: self.last_output_at,
            input_open: self.input.is_open(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(id: &str, body: &str) -> Mark {
        Mark {
            id: id.to_owned(),
            body: body.to_owned(),
        }
    }

    #[test]
    fn a_request_is_known_again_and_another_under_its_name_refused() {
        let mut marks = Marks::default();
        assert_eq!(marks.seen(&mark("a", "1")), Ok(None));
        marks.keep(mark("a", "1"), json!(1));
        assert_eq!(marks.seen(&mark("a", "1")), Ok(Some(json!(1))));
        assert!(
            marks
                .seen(&mark("a", "2"))
                .unwrap_err()
                .contains("requestId")
        );
        for n in 0..MARKS_KEPT {
            marks.keep(mark(&n.to_string(), "x"), json!(n));
        }
        assert_eq!(marks.done.len(), MARKS_KEPT);
        assert_eq!(
            marks.seen(&mark("a", "1")),
            Ok(None),
            "only the newest are kept"
        );
    }
}
