//! The task's own events: `events.jsonl`, one object a line, small and bounded.

use std::fs::File;
use std::io::{self, Write as _};

use serde_json::{Value, json};

use crate::limits::shim::{EVENTS_BYTES_MAX, EVENTS_SIZES_BYTES_MAX, INPUT_NOTE_MS};
use crate::task::folder::{EVENTS, Folder};

/// The open journal. A line that cannot be written is left out: nothing of the task depends on it.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    sequence: u64,
    bytes: u64,
    input: InputNotes,
}

/// What the lines on input say, and what the next one will.
#[derive(Debug, Default)]
struct InputNotes {
    noted: u64,
    noted_at: Option<u64>,
    total: u64,
}

impl Journal {
    pub(crate) fn create(folder: &Folder) -> io::Result<Self> {
        Ok(Self {
            file: folder.create_file(EVENTS)?,
            sequence: 0,
            bytes: 0,
            input: InputNotes::default(),
        })
    }

    /// Writes a line, while there is room.
    pub(crate) fn note(&mut self, at: u64, event: &str, data: &Value) {
        if self.bytes < EVENTS_BYTES_MAX {
            self.note_end(at, event, data);
        }
    }

    /// Says how many bytes of input were taken in all, never which: at most one line a second, since a person's every key is
    /// a write.
    pub(crate) fn note_input(&mut self, at: u64, total: u64) {
        self.input.total = total;
        let is_due = |noted_at: u64| at.saturating_sub(noted_at) >= INPUT_NOTE_MS;
        if self.input.noted_at.is_none_or(is_due) {
            self.settle_input(at);
        }
    }

    /// Says of input what was not said yet.
    pub(crate) fn settle_input(&mut self, at: u64) {
        let total = self.input.total;
        let bytes = total - self.input.noted;
        if bytes > 0 {
            self.input.noted = total;
            self.input.noted_at = Some(at);
            self.note(at, "input", &json!({"bytes": bytes, "total": total}));
        }
    }

    /// Writes the line of a new size of the terminal, or says that there is no room. The others' bound does not hold for
    /// it, since the screen cannot be told without.
    pub(crate) fn note_size(&mut self, at: u64, data: &Value) -> bool {
        let has_room = self.bytes < EVENTS_SIZES_BYTES_MAX;
        if has_room {
            self.note_end(at, "resize", data);
        }
        has_room
    }

    /// Writes the last line, for which there is always room.
    pub(crate) fn note_end(&mut self, at: u64, event: &str, data: &Value) {
        self.sequence += 1;
        let line = json!({"seq": self.sequence, "at": at, "event": event, "data": data});
        let line = format!("{line}\n");
        self.bytes += line.len() as u64;
        let _ = self.file.write_all(line.as_bytes());
    }
}
