//! Which bytes of a stream are still kept: pure arithmetic, and the 24 bytes of the file `kept`.
//!
//! A stream's file has the length of all bytes since launch, so that an offset in the file is an offset in the
//! stream for ever. What is no longer kept is a hole, which reads as NULs without an error. Therefore the
//! writer names a range here *before* it punches or skips it, and a reader looks here *after* it has read.
//!
//! Two ranges are enough: all below `mark`, and one gap above it. Where a second gap would come, the smaller
//! of what lies before and after the first one is given up too.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::wire::StreamName;

/// Bytes of one stream's slot.
pub const SLOT_BYTES: usize = 24;

/// What is not kept of one stream. Offsets are bytes since launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// All below is gone.
    pub mark: u64,
    /// All from here to `gap_end` is gone too. Without a gap both are 0.
    pub gap_start: u64,
    /// The first byte after the gap.
    pub gap_end: u64,
}

impl Ranges {
    /// The first kept offset at or after `offset`, where the stream reaches so far.
    pub fn next_kept(&self, offset: u64) -> u64 {
        let offset = offset.max(self.mark);
        if (self.gap_start..self.gap_end).contains(&offset) {
            self.gap_end
        } else {
            offset
        }
    }

    /// Where the run of kept bytes that `offset` lies in ends at the latest.
    pub fn run_end(&self, offset: u64) -> u64 {
        if offset < self.gap_start && self.gap_start < self.gap_end {
            self.gap_start
        } else {
            u64::MAX
        }
    }

    /// The least length that the stream must have had.
    pub fn reach(&self) -> u64 {
        self.mark.max(self.gap_end)
    }

    /// Gives up all below `offset`. The mark never moves back.
    pub fn give_up_below(&mut self, offset: u64) {
        self.mark = self.mark.max(offset);
        if self.mark >= self.gap_start {
            self.mark = self.mark.max(self.gap_end);
            (self.gap_start, self.gap_end) = (0, 0);
        }
    }

    /// Gives up `from..to`, which lies at the stream's end.
    pub fn give_up_end(&mut self, from: u64, to: u64) {
        let from = from.max(self.mark);
        if from >= to {
            return;
        }
        if from == self.mark {
            self.give_up_below(to);
        } else if self.gap_end == 0 {
            (self.gap_start, self.gap_end) = (from, to);
        } else if from <= self.gap_end || from - self.gap_end < self.gap_start - self.mark {
            self.gap_end = to;
        } else {
            self.give_up_below(self.gap_end);
            (self.gap_start, self.gap_end) = (from, to);
        }
    }

    /// The slot's bytes.
    pub fn to_bytes(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        for (place, value) in
            bytes
                .chunks_exact_mut(8)
                .zip([self.mark, self.gap_start, self.gap_end])
        {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// The ranges of a slot's bytes.
    pub fn from_bytes(bytes: &[u8; SLOT_BYTES]) -> Self {
        let number = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(value)
        };
        Self {
            mark: number(0),
            gap_start: number(8),
            gap_end: number(16),
        }
    }

    /// Reads the slot of a stream. A file cut short reads as "all kept", as before any byte was given up.
    pub fn read(file: &File, stream: StreamName) -> io::Result<Self> {
        let mut last = Self::read_once(file, stream)?;
        // A read may fall between the halves of a write: what is seen twice was there.
        loop {
            let again = Self::read_once(file, stream)?;
            if again == last {
                return Ok(again);
            }
            last = again;
        }
    }

    fn read_once(file: &File, stream: StreamName) -> io::Result<Self> {
        let mut bytes = [0; SLOT_BYTES];
        match file.read_exact_at(&mut bytes, slot_of(stream)) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(Self::from_bytes(&bytes)),
        }
    }

    /// Writes the slot of a stream.
    pub fn write(self, file: &File, stream: StreamName) -> io::Result<()> {
        file.write_all_at(&self.to_bytes(), slot_of(stream))
    }
}

const fn slot_of(stream: StreamName) -> u64 {
    match stream {
        StreamName::Output | StreamName::Stdout => 0,
        StreamName::Stderr => SLOT_BYTES as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_is_skipped_and_ends_a_run() {
        let mut ranges = Ranges::default();
        ranges.give_up_below(10);
        ranges.give_up_end(20, 30);
        assert_eq!(ranges.next_kept(0), 10);
        assert_eq!(ranges.run_end(10), 20);
        assert_eq!(ranges.next_kept(25), 30);
        assert_eq!(ranges.run_end(30), u64::MAX);
    }

    #[test]
    fn a_second_gap_gives_up_the_smaller_part() {
        let mut small_middle = Ranges::default();
        small_middle.give_up_end(100, 110);
        small_middle.give_up_end(115, 120);
        assert_eq!(
            small_middle,
            Ranges {
                mark: 0,
                gap_start: 100,
                gap_end: 120
            }
        );
        let mut small_head = Ranges::default();
        small_head.give_up_end(3, 10);
        small_head.give_up_end(90, 95);
        assert_eq!(
            small_head,
            Ranges {
                mark: 10,
                gap_start: 90,
                gap_end: 95
            }
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        Keep(u64),
        Drop(u64),
        Mark(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..9_u64).prop_map(Step::Keep),
            (1..9_u64).prop_map(Step::Drop),
            (0..90_u64).prop_map(Step::Mark),
        ]
    }

    proptest! {
        // Invariant: no byte that was given up is ever called kept, and a slot reads as it was written.
        #[test]
        fn nothing_given_up_is_called_kept(steps in proptest::collection::vec(step(), 0..40)) {
            let mut ranges = Ranges::default();
            let mut gone: Vec<bool> = Vec::new();
            for step in steps {
                let size = gone.len() as u64;
                match step {
                    Step::Keep(bytes) => gone.resize((size + bytes) as usize, false),
                    Step::Drop(bytes) => {
                        gone.resize((size + bytes) as usize, true);
                        ranges.give_up_end(size, size + bytes);
                    }
                    Step::Mark(to) => {
                        let to = to.min(size);
                        gone[..to as usize].fill(true);
                        ranges.give_up_below(to);
                    }
                }
                prop_assert!(ranges.reach() <= gone.len() as u64);
                for (offset, gone) in gone.iter().enumerate() {
                    let kept = ranges.next_kept(offset as u64) == offset as u64;
                    prop_assert!(!(kept && *gone), "{ranges:?} calls {offset} kept");
                }
            }
            prop_assert_eq!(Ranges::from_bytes(&ranges.to_bytes()), ranges);
        }
    }
}
