//! What stands on the screen of a task's terminal: a function of its output and of the sizes it had, both of which lie in
//! the task's folder. So it needs neither the shim nor any earlier node, and a person's terminal can be drawn from it.

use std::collections::VecDeque;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;

use super::folder::{EVENTS, Folder};
use super::output;
use super::wire::StreamName;
use crate::limits::shim::EVENTS_SIZES_BYTES_MAX;
use crate::limits::{
    READ_BYTES_MAX, TERMINAL_COLS, TERMINAL_ROWS, TERMINAL_SIZE_DEFAULT, TITLE_CHARS_MAX,
};

/// Ends whatever sequence the parser is in the middle of, for where bytes are missing.
const CANCEL: &[u8] = b"\x18";

/// A terminal's state, fed from the task's files as far as it was asked to.
pub struct Screen {
    parser: vt100::Parser<Title>,
    /// Bytes of the output that it has seen or that are no longer kept.
    offset: u64,
    /// Sizes that lie ahead, by the offset from which they hold.
    ahead: VecDeque<(u64, Size)>,
    /// Bytes of `events.jsonl` that were read.
    events_read: u64,
    /// The model failed on this output; nothing more is shown.
    is_broken: bool,
}

/// What one step took in.
#[derive(Debug, Default)]
pub struct Step {
    /// The bytes, as the task wrote them.
    pub bytes: Vec<u8>,
    /// Bytes before them that are no longer kept.
    pub omitted: u64,
    /// Bytes of the output since launch, as far as was seen.
    pub total: u64,
}

/// What a screen shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The text of each row, without the blanks at its end.
    pub rows: Vec<String>,
    /// Columns and rows.
    pub size: (u16, u16),
    /// Row and column of the cursor, counted from 0.
    pub cursor: (u16, u16),
    /// Whether the cursor is shown.
    pub is_cursor_visible: bool,
    /// The title that the program gave its window.
    pub title: Option<String>,
    /// Whether the program draws on the alternate screen, as full-screen programs do.
    pub is_alternate: bool,
}

type Size = (NonZeroU16, NonZeroU16);

/// The window's title, the one thing that the model tells by a call.
#[derive(Debug, Default)]
struct Title(Option<String>);

impl vt100::Callbacks for Title {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        let title = String::from_utf8_lossy(title);
        let shown = title.chars().filter(|letter| !letter.is_control());
        self.0 = Some(shown.take(TITLE_CHARS_MAX).collect());
    }
}

/// A line of `events.jsonl`, as far as it matters here.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    data: EventData,
}

#[derive(Deserialize, Default)]
struct EventData {
    size: Option<(u16, u16)>,
    #[serde(default)]
    offset: u64,
}

fn size_of((cols, rows): (u16, u16)) -> Option<Size> {
    let fits = TERMINAL_COLS.contains(&cols) && TERMINAL_ROWS.contains(&rows);
    NonZeroU16::new(rows)
        .zip(NonZeroU16::new(cols))
        .filter(|_| fits)
}

impl Screen {
    /// The screen of a task at its start. Nothing is read of its output yet.
    pub fn open(folder: &Folder) -> io::Result<Self> {
        let mut screen = Screen::blank(TERMINAL_SIZE_DEFAULT);
        screen.read_sizes(folder)?;
        screen.resize_to(0)?;
        Ok(screen)
    }

    fn blank(size: (u16, u16)) -> Self {
        let (rows, cols) = size_of(size).unwrap_or((NonZeroU16::MIN, NonZeroU16::MIN));
        Screen {
            parser: vt100::Parser::new_with_callbacks(rows, cols, 0, Title::default()),
            offset: 0,
            ahead: VecDeque::new(),
            events_read: 0,
            is_broken: false,
        }
    }

    /// Bytes of the output that it has seen or that are no longer kept.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Cells of the screen, by which its memory goes.
    pub fn cells(&self) -> usize {
        let (rows, cols) = self.parser.screen().size();
        usize::from(rows.get()) * usize::from(cols.get())
    }

    /// Takes in all output that there is when this is called. `known` is its size as the shim or the receipt tells it.
    pub fn catch_up(&mut self, folder: &Folder, known: u64) -> io::Result<()> {
        let total = output::read(folder, StreamName::Output, 0, 0, known)?.total;
        while self.offset < total {
            let before = self.offset;
            self.step(folder, known)?;
            if self.offset == before {
                break;
            }
        }
        // A size after the last byte.
        self.read_sizes(folder)?;
        self.resize_to(self.offset)
    }

    /// Takes in the next bytes, at most 64 KiB.
    pub fn step(&mut self, folder: &Folder, known: u64) -> io::Result<Step> {
        let chunk = output::read(
            folder,
            StreamName::Output,
            self.offset,
            READ_BYTES_MAX,
            known,
        )?;
        // Invariant: the sizes are read after the bytes. A size is written down before the terminal has it, and so before
        // any byte that came later.
        self.read_sizes(folder)?;
        if chunk.omitted > 0 {
            self.feed(CANCEL)?;
        }
        let mut rest = chunk.bytes.as_slice();
        self.offset = chunk.offset;
        self.resize_to(self.offset)?;
        while !rest.is_empty() {
            let until = self.ahead.front().map_or(u64::MAX, |(offset, _)| *offset);
            let room = usize::try_from(until - self.offset).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.feed(now)?;
            self.offset += now.len() as u64;
            self.resize_to(self.offset)?;
            rest = later;
        }
        Ok(Step {
            bytes: chunk.bytes,
            omitted: chunk.omitted,
            total: chunk.total,
        })
    }

    /// What it shows now.
    pub fn view(&self) -> View {
        let screen = self.parser.screen();
        let (rows, cols) = screen.size();
        View {
            rows: screen.rows(0, cols.get()).collect(),
            size: (cols.get(), rows.get()),
            cursor: screen.cursor_position(),
            is_cursor_visible: !screen.hide_cursor(),
            title: self.parser.callbacks().0.clone(),
            is_alternate: screen.alternate_screen(),
        }
    }

    /// What a terminal of the same size is to be sent so that it shows the same: the screen, and the modes for input.
    pub fn formatted(&self) -> String {
        self.parser.screen().state_formatted()
    }

    /// Whether the program draws on the alternate screen.
    pub fn is_alternate(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    /// Reads the sizes that were written down since the last look. Only whole lines count.
    fn read_sizes(&mut self, folder: &Folder) -> io::Result<()> {
        let mut file = folder.open_file(EVENTS)?;
        if file.metadata()?.len() <= self.events_read {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.events_read))?;
        let mut text = Vec::new();
        file.take(EVENTS_SIZES_BYTES_MAX * 2)
            .read_to_end(&mut text)?;
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        self.events_read += whole as u64;
        for line in text[..whole].split(|byte| *byte == b'\n') {
            // Lines of other releases, and what others wrote into the file, are passed over.
            let Ok(Event { data }) = serde_json::from_slice(line) else {
                continue;
            };
            if let Some(size) = data.size.and_then(size_of) {
                self.ahead.push_back((data.offset, size));
            }
        }
        Ok(())
    }

    /// Gives the screen the sizes that hold from this offset on or from one before it.
    fn resize_to(&mut self, offset: u64) -> io::Result<()> {
        while let Some((_, (rows, cols))) = self.ahead.pop_front_if(|(from, _)| *from <= offset) {
            self.guarded(|parser| parser.set_size(rows, cols))?;
        }
        Ok(())
    }

    fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.guarded(|parser| parser.process(bytes))
    }

    /// The output is anybody's, and the model is not ours: a panic in it is this screen's end and nobody else's.
    fn guarded(&mut self, work: impl FnOnce(&mut vt100::Parser<Title>)) -> io::Result<()> {
        if !self.is_broken {
            let parser = &mut self.parser;
            self.is_broken = catch_unwind(AssertUnwindSafe(|| work(parser))).is_err();
        }
        if self.is_broken {
            return Err(io::Error::other(
                "this output cannot be shown as a screen; read it as it is",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
