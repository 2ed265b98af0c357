//! A wall clock that a test moves, for the processes that it starts with it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The clock, in a folder of the test's.
pub struct MovedClock {
    library: PathBuf,
    offset: PathBuf,
}

impl MovedClock {
    /// Makes the clock, which tells the true time at first.
    ///
    /// # Panics
    /// Where there is no C compiler, without which weft itself is not built.
    pub fn new(dir: &Path) -> Self {
        let clock = MovedClock {
            library: dir.join("moved_clock.so"),
            offset: dir.join("moved_clock"),
        };
        let source = dir.join("moved_clock.c");
        std::fs::write(&source, include_str!("moved_clock.c")).expect("the clock's source");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&clock.library, &source])
            .status();
        assert!(made.is_ok_and(|status| status.success()), "cc fails");
        clock.set(0);
        clock
    }

    /// Moves the clock by so many seconds from the true time.
    ///
    /// # Panics
    /// When the folder is gone.
    pub fn set(&self, seconds: i64) {
        let next = self.offset.with_extension("next");
        std::fs::write(&next, seconds.to_string()).expect("the clock's file");
        std::fs::rename(next, &self.offset).expect("the clock's file");
    }

    /// The variables by which a process gets this clock.
    pub fn variables(&self) -> [(&str, &str); 2] {
        [
            ("LD_PRELOAD", self.library.to_str().expect("a plain path")),
            ("MOVED_CLOCK", self.offset.to_str().expect("a plain path")),
        ]
    }
}
