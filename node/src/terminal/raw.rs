//! Our terminal as a mere wire: every key goes through as it is, until this is dropped, by a panic too.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// What undoes, on a terminal, whatever a task's program had switched on: colours, a hidden cursor, pastes in brackets, reports
/// of the mouse and of focus, keys of applications.
const UNDO: &str = "\x1b[m\x1b[?25h\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?1l\x1b>";

/// Holds our standard input in raw mode.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    /// Takes our standard input into raw mode; none where it is no terminal.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        let Ok(before) = tcgetattr(io::stdin()) else {
            return Ok(None);
        };
        let raw = Raw { before };
        raw.again()?;
        Ok(Some(raw))
    }

    /// Back into raw mode after [`Raw::leave`].
    pub(crate) fn again(&self) -> io::Result<()> {
        let mut modes = self.before.clone();
        modes.make_raw();
        // Nothing is waited for: a terminal that is stopped by a key must not hold this up.
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &modes)?)
    }

    /// The modes as they were.
    pub(crate) fn leave(&self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What a terminal is sent when a task no longer draws on it.
pub(crate) fn undo(is_alternate: bool) -> String {
    let back = if is_alternate { "\x1b[?1049l" } else { "" };
    format!("{UNDO}{back}")
}
