//! Three clocks: one for waiting, which counts suspend and never jumps, one for the task's records, and the wall clock for what
//! is compared with other processes' records.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
};

/// Milliseconds since boot, suspend included.
pub(crate) fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Epoch milliseconds for the records of this process's task: the wall clock as it stood at the first look, and from then on the
/// boot clock. So no end comes before its start and no run looks longer than it was, though somebody sets the clock meanwhile.
pub(crate) fn record_ms() -> u64 {
    static FIRST: OnceLock<(u64, u64)> = OnceLock::new();
    let (wall, boot) = FIRST.get_or_init(|| (wall_ms(), boot_ms()));
    wall + boot_ms().saturating_sub(*boot)
}

/// Epoch milliseconds by the wall clock.
pub(crate) fn wall_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// One timer on the boot clock. A deadline that passes while the machine sleeps is met when it wakes.
pub(crate) struct Timer {
    fd: OwnedFd,
    armed: Option<u64>,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(Self { fd, armed: None })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Rings at or before this moment. A timer that rings too early costs one look, so that it is not set
    /// anew each time that a moment moves away, as it does with every byte.
    pub(crate) fn arm(&mut self, at: Option<u64>) -> io::Result<()> {
        let Some(at) = at else { return Ok(()) };
        if self.armed.is_some_and(|armed| armed <= at) {
            return Ok(());
        }
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Zero would disarm it; the clock's first second is long past.
        let at = at.max(1);
        let value = Timespec {
            tv_sec: (at / 1000) as i64,
            tv_nsec: (at % 1000 * 1_000_000) as i64,
        };
        let setting = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &setting)?;
        self.armed = Some(at);
        Ok(())
    }

    /// Takes a ring.
    pub(crate) fn take(&mut self) {
        let mut count = [0; 8];
        if rustix::io::read(&self.fd, &mut count).is_ok() {
            self.armed = None;
        }
    }
}
