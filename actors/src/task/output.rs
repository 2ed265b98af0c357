//! Reading what a task printed, live or after its end, by true offsets.
//!
//! Nothing here talks to the shim: the files alone answer. `known` is the stream's size as the shim or the
//! receipt tells it (0 where it is not known); bytes that should be in the file and are not, because somebody
//! cut or removed it or the power failed, are then disclosed instead of being waited for.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::folder::{Folder, KEPT};
use super::kept::Ranges;
use super::wire::StreamName;
use crate::limits::shim::{CHAR_BYTES_MAX, LINE_LOOK_BYTES, READ_AGAIN_MAX};

/// One unbroken run of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Where the bytes stand in the stream.
    pub offset: u64,
    /// The bytes as the task wrote them, none of them made up.
    pub bytes: Vec<u8>,
    /// Bytes between the offset that was asked for and `offset`, which are no longer kept.
    pub omitted: u64,
    /// Where to read on.
    pub next: u64,
    /// Bytes of the stream since launch, as far as was seen.
    pub total: u64,
}

/// One unbroken run of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextChunk {
    /// Where the text stands in the stream.
    pub offset: u64,
    /// Whole characters; malformed bytes are U+FFFD, one for each maximal subpart.
    pub text: String,
    /// Bytes before `offset` that are no longer kept.
    pub omitted: u64,
    /// Where to read on.
    pub next: u64,
    /// Bytes of the stream since launch, as far as was seen.
    pub total: u64,
}

/// Reads at most `max` bytes from `from` on. One answer never spans a gap. An offset past the end gives no
/// bytes and the `total` to judge it by.
pub fn read(
    folder: &Folder,
    stream: StreamName,
    from: u64,
    max: usize,
    known: u64,
) -> io::Result<Chunk> {
    let kept = open_kept(folder)?;
    let mut bytes = vec![0; max];
    let mut position = from;
    for _ in 0..READ_AGAIN_MAX {
        let before = ranges(kept.as_ref(), stream)?;
        let file = open_stream(folder, stream)?;
        let length = file
            .as_ref()
            .map_or(Ok(0), |file| file.metadata().map(|it| it.len()))?;
        let total = length.max(before.reach()).max(known);
        if from > total {
            return Ok(Chunk {
                offset: from,
                next: from,
                total,
                ..Chunk::default()
            });
        }
        position = before.next_kept(position.max(from)).min(total);
        let room = (max as u64)
            .min(before.run_end(position) - position)
            .min(total - position);
        let got = match &file {
            Some(file) => read_full(file, &mut bytes[..room as usize], position)?,
            None => 0,
        };
        // Invariant: the ranges are read again after the data. What was given up meanwhile may have read
        // as NULs and is cut off.
        let after = ranges(kept.as_ref(), stream)?;
        let first = after.next_kept(position);
        let end = (position + got as u64).min(after.run_end(first));
        if first < end || room == 0 {
            bytes.truncate((end.max(position) - position) as usize);
            bytes.drain(..(first.min(end.max(position)) - position) as usize);
            let offset = first.min(end.max(position));
            return Ok(chunk(from, offset, bytes, total));
        }
        if got == 0 {
            // The file is shorter than the stream: the rest of this run is gone.
            position = after.run_end(position).min(total).max(first.min(total));
            if position == total {
                return Ok(chunk(from, position, Vec::new(), total));
            }
        } else {
            position = first;
        }
    }
    // The writer gives up bytes faster than they can be read here. Say so; the next read goes on behind.
    Ok(chunk(from, position, Vec::new(), position.max(known)))
}

/// Reads text: whole characters, at least one where there is one. `ended` says that nothing more will come,
/// so that a partial character at the end is malformed instead of waited for.
pub fn read_text(
    folder: &Folder,
    stream: StreamName,
    from: u64,
    max: usize,
    known: u64,
    ended: bool,
) -> io::Result<TextChunk> {
    let chunk = read(folder, stream, from, max.max(CHAR_BYTES_MAX), known)?;
    let cut_off = chunk.next < chunk.total && chunk.bytes.len() < max.max(CHAR_BYTES_MAX);
    let (text, used) = decode_within(
        &chunk.bytes,
        max,
        cut_off || (ended && chunk.next == chunk.total),
    );
    Ok(TextChunk {
        offset: chunk.offset,
        text,
        omitted: chunk.omitted,
        next: chunk.offset + used as u64,
        total: chunk.total,
    })
}

/// The last `max` bytes, beginning at a character. Of a tail with a gap in it, what comes after the gap.
pub fn tail_text(
    folder: &Folder,
    stream: StreamName,
    max: usize,
    known: u64,
    ended: bool,
) -> io::Result<TextChunk> {
    let total = read(folder, stream, 0, 0, known)?.total;
    let mut chunk = read(folder, stream, total.saturating_sub(max as u64), max, known)?;
    while chunk.next < total {
        let rest = read(folder, stream, chunk.next, max, known)?;
        if rest.next <= chunk.next {
            break;
        }
        if rest.omitted == 0 {
            chunk.bytes.extend_from_slice(&rest.bytes);
            chunk.next = rest.next;
        } else {
            chunk = rest;
        }
    }
    let skipped = match chunk.offset {
        0 => 0,
        _ => partial_before(&chunk.bytes),
    };
    let (text, used) = decode(&chunk.bytes[skipped..], ended);
    let offset = chunk.offset + skipped as u64;
    Ok(TextChunk {
        offset,
        text,
        omitted: offset,
        next: offset + used as u64,
        total,
    })
}

/// The offset at which the last `lines` lines begin. An unfinished line counts; a final newline opens none.
/// Looks back over kept bytes alone and over at most `reach` of them.
pub fn last_lines(
    folder: &Folder,
    stream: StreamName,
    lines: usize,
    reach: u64,
    known: u64,
) -> io::Result<u64> {
    let total = read(folder, stream, 0, 0, known)?.total;
    let lowest = total.saturating_sub(reach);
    let mut end = total;
    let mut left = lines;
    while end > lowest && left > 0 {
        let start = end.saturating_sub(LINE_LOOK_BYTES as u64).max(lowest);
        let mut block = read(folder, stream, start, (end - start) as usize, known)?;
        // Of a block with a gap in it, only what comes after the gap counts.
        while block.next < end {
            let rest = read(
                folder,
                stream,
                block.next,
                (end - block.next) as usize,
                known,
            )?;
            if rest.next <= block.next {
                break;
            }
            block = rest;
        }
        for (index, _) in block
            .bytes
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, byte)| **byte == b'\n')
        {
            let after = block.offset + index as u64 + 1;
            if after == total {
                continue;
            }
            left -= 1;
            if left == 0 {
                return Ok(after);
            }
        }
        if block.offset > start {
            return Ok(block.offset);
        }
        end = start;
    }
    Ok(end)
}

/// Turns bytes into text and says how many of them were used. A partial character at the end is left for the
/// next time unless `at_end`; malformed bytes become U+FFFD, one for each maximal subpart (WHATWG).
pub fn decode(bytes: &[u8], at_end: bool) -> (String, usize) {
    let mut text = String::with_capacity(bytes.len());
    let mut used = 0;
    for part in bytes.utf8_chunks() {
        text.push_str(part.valid());
        used += part.valid().len();
        let bad = part.invalid();
        if bad.is_empty() {
            continue;
        }
        let is_partial = std::str::from_utf8(bad).is_err_and(|error| error.error_len().is_none());
        if is_partial && !at_end && used + bad.len() == bytes.len() {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        used += bad.len();
    }
    (text, used)
}

/// As [`decode`], of at most `max` bytes; of more only where the first character alone is longer.
fn decode_within(bytes: &[u8], max: usize, at_end: bool) -> (String, usize) {
    (max.min(bytes.len())..bytes.len())
        .map(|size| decode(&bytes[..size], false))
        .find(|(_, used)| *used > 0)
        .unwrap_or_else(|| decode(bytes, at_end))
}

/// Bytes at the start that belong to a character begun before.
fn partial_before(bytes: &[u8]) -> usize {
    let continued = bytes
        .iter()
        .take_while(|byte| **byte & 0xc0 == 0x80)
        .count();
    if continued < CHAR_BYTES_MAX {
        continued
    } else {
        0
    }
}

fn chunk(from: u64, offset: u64, bytes: Vec<u8>, total: u64) -> Chunk {
    let next = offset + bytes.len() as u64;
    Chunk {
        offset,
        bytes,
        omitted: offset - from,
        next,
        total: total.max(next),
    }
}

fn read_full(file: &File, into: &mut [u8], from: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match file.read_at(&mut into[got..], from + got as u64) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn ranges(kept: Option<&File>, stream: StreamName) -> io::Result<Ranges> {
    kept.map_or(Ok(Ranges::default()), |file| Ranges::read(file, stream))
}

fn open_kept(folder: &Folder) -> io::Result<Option<File>> {
    absent_is_none(folder.open_file(KEPT))
}

/// A link or a folder in the stream's place holds nothing of the task's: it is as if nothing was there.
fn open_stream(folder: &Folder, stream: StreamName) -> io::Result<Option<File>> {
    let file = match folder.open_file(stream.as_str()) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Ok(None);
        }
        other => absent_is_none(other)?,
    };
    let Some(file) = file else { return Ok(None) };
    Ok(file.metadata()?.is_file().then_some(file))
}

fn absent_is_none(file: io::Result<File>) -> io::Result<Option<File>> {
    match file {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
