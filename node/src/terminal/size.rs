//! A terminal's size as people write it, and as a terminal of ours tells it.

use std::os::fd::AsFd;

use weft_actors::limits::{TERMINAL_COLS, TERMINAL_ROWS};

/// Columns and rows, within what a task's terminal can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) cols: u16,
    pub(crate) rows: u16,
}

impl Size {
    /// As the actions take it.
    pub(crate) fn pair(self) -> [u16; 2] {
        [self.cols, self.rows]
    }

    /// The size of a terminal, where the descriptor is one that knows it, cut to what a task's terminal can have.
    pub(crate) fn of(terminal: impl AsFd) -> Option<Self> {
        let size = rustix::termios::tcgetwinsize(terminal).ok()?;
        if size.ws_col == 0 || size.ws_row == 0 {
            return None;
        }
        Some(Self {
            cols: size.ws_col.min(*TERMINAL_COLS.end()),
            rows: size.ws_row.min(*TERMINAL_ROWS.end()),
        })
    }
}

/// Reads `120x40`. For clap: the error is a sentence for a person.
pub(crate) fn parse(text: &str) -> Result<Size, String> {
    let number = |text: &str| text.parse::<u16>().ok();
    let (cols, rows) = text
        .split_once(['x', 'X'])
        .and_then(|(cols, rows)| Some((number(cols)?, number(rows)?)))
        .ok_or_else(|| format!("`{text}` is no size; write columns and rows as in 120x40"))?;
    if TERMINAL_COLS.contains(&cols) && TERMINAL_ROWS.contains(&rows) {
        Ok(Size { cols, rows })
    } else {
        Err(format!(
            "takes 1x1 to {}x{}",
            TERMINAL_COLS.end(),
            TERMINAL_ROWS.end()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let size = Size {
            cols: 120,
            rows: 40,
        };
        assert_eq!(parse("120x40"), Ok(size));
        assert_eq!(size.pair(), [120, 40]);
        for bad in [
            "", "120", "x40", "120x", "-1x4", "0x4", "4x501", "1001x4", "70000x4", "4 x 4",
        ] {
            let refused = parse(bad).unwrap_err();
            assert!(refused.contains('x'), "{bad}: {refused}");
        }
    }
}
