//! The task's own events: `events.jsonl`, one object a line, small and bounded.

use std::fs::File;
use std::io::{self, Write as _};

use serde_json::{Value, json};

use crate::limits::shim::EVENTS_BYTES_MAX;
use crate::task::folder::{EVENTS, Folder};

/// The open journal. A line that cannot be written is left out: nothing of the task depends on it.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    sequence: u64,
    bytes: u64,
}

impl Journal {
    pub(crate) fn create(folder: &Folder) -> io::Result<Self> {
        Ok(Self {
            file: folder.create_file(EVENTS)?,
            sequence: 0,
            bytes: 0,
        })
    }

    /// Writes a line, while there is room.
    pub(crate) fn note(&mut self, at: u64, event: &str, data: &Value) {
        if self.bytes < EVENTS_BYTES_MAX {
            self.note_end(at, event, data);
        }
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
