//! A task's terminal on ours: first what stands on its screen, then what it writes, as it is. Where ours is too slow for that
//! it is shown the screen again now and then, so that it never lags behind by more than a moment's output.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_actors::task::folder::Folder;
use weft_actors::task::screen::Screen;

use crate::app::on_thread;
use crate::exit::Failure;
use crate::limits::{BEHIND_BYTES_MAX, REDRAW_MS};

/// What is shown.
pub(super) struct Picture {
    folder: Arc<Folder>,
    screen: Screen,
    /// Our descriptor itself: a buffer between would hold back what the task has written.
    out: File,
    /// Our terminal is on its alternate screen, by what it was sent. Shared with whoever has to leave it as it was.
    is_alternate: Arc<AtomicBool>,
    drawn_at: Instant,
}

impl Picture {
    /// The screen as it stands; nothing is shown yet.
    pub(super) fn open(folder: Arc<Folder>) -> io::Result<Self> {
        let mut screen = Screen::open(&folder)?;
        screen.catch_up(&folder, 0)?;
        Ok(Picture {
            folder,
            screen,
            out: io::stdout().as_fd().try_clone_to_owned()?.into(),
            is_alternate: Arc::default(),
            drawn_at: Instant::now(),
        })
    }

    /// Bytes of the output that are shown.
    pub(super) fn offset(&self) -> u64 {
        self.screen.offset()
    }

    /// Tells, also while this is busy, whether our terminal is on its alternate screen.
    pub(super) fn alternate(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_alternate)
    }

    /// Shows the screen anew.
    pub(super) async fn draw(self) -> Result<Self, Failure> {
        self.on_thread(Self::draw_now).await
    }

    /// Shows what the task wrote since. `known` is the size of its output as the shim tells it.
    pub(super) async fn follow(self, known: u64) -> Result<Self, Failure> {
        self.on_thread(move |picture| picture.follow_now(known))
            .await
    }

    /// On a thread of its own: a terminal that is stopped must not keep us from its keys and signals.
    async fn on_thread(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        on_thread(move || work(&mut self).map(|()| self))
            .await
            .map_err(|error| Failure::io("showing the terminal", error))?
    }

    fn follow_now(&mut self, known: u64) -> Result<(), Failure> {
        let mut is_stale = false;
        loop {
            let step = self
                .screen
                .step(&self.folder, known)
                .map_err(|error| Failure::io("the task's output", error))?;
            if step.bytes.is_empty() && step.omitted == 0 {
                break;
            }
            is_stale |= step.omitted > 0 || step.total - self.screen.offset() > BEHIND_BYTES_MAX;
            if !is_stale {
                self.send(&step.bytes)?;
                self.note_alternate();
            } else if self.drawn_at.elapsed() > Duration::from_millis(REDRAW_MS) {
                self.draw_now()?;
            }
        }
        if is_stale {
            self.draw_now()?;
        }
        Ok(())
    }

    fn draw_now(&mut self) -> Result<(), Failure> {
        let switch = match (
            self.is_alternate.load(Ordering::Relaxed),
            self.screen.is_alternate(),
        ) {
            (false, true) => "\x1b[?1049h",
            (true, false) => "\x1b[?1049l",
            _ => "",
        };
        let all = format!("{switch}{}", self.screen.formatted());
        self.send(all.as_bytes())?;
        self.note_alternate();
        self.drawn_at = Instant::now();
        Ok(())
    }

    fn note_alternate(&self) {
        let is_alternate = self.screen.is_alternate();
        self.is_alternate.store(is_alternate, Ordering::Relaxed);
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(Failure::output)
    }
}
