//! What a person's signals mean for a foreground task.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The number of SIGINT.
pub(super) const INT: u8 = 2;
/// The number of SIGHUP.
const HUP: u8 = 1;

/// What is to happen to the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// This signal goes to every process of it.
    Signal(&'static str),
    /// It is stopped, tree and all.
    Stop,
}

/// What a shell says of a command that this signal ended; nothing of a Ctrl-C and of a reader that went away, which are
/// nobody's news.
pub(super) fn word(signal: &str) -> Option<&str> {
    Some(match signal {
        "SIGINT" | "SIGPIPE" => return None,
        "SIGABRT" => "aborted (SIGABRT)",
        "SIGBUS" => "bus error (SIGBUS)",
        "SIGFPE" => "arithmetic error (SIGFPE)",
        "SIGHUP" => "hangup (SIGHUP)",
        "SIGILL" => "illegal instruction (SIGILL)",
        "SIGKILL" => "killed (SIGKILL)",
        "SIGSEGV" => "segmentation fault (SIGSEGV)",
        "SIGTERM" => "terminated (SIGTERM)",
        other => other,
    })
}

/// Each Ctrl-C means more than the one before.
#[derive(Debug, Default)]
struct Escalation {
    interrupts: u32,
}

impl Escalation {
    fn interrupt(&mut self) -> Wish {
        self.interrupts += 1;
        Wish::Signal(match self.interrupts {
            1 => "INT",
            2 => "TERM",
            _ => "KILL",
        })
    }
}

/// The signals that this process listens for.
pub(super) struct Signals {
    interrupt: Option<Signal>,
    terminate: Signal,
    hangup: Option<Signal>,
    escalation: Escalation,
}

impl Signals {
    /// From now on these signals no longer end this process. What its parent had ignored, as nohup and background
    /// jobs of a shell do, stays ignored.
    pub(super) fn listen() -> io::Result<Self> {
        let ignored =
            std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored_in(&status));
        let unless_ignored = |number: u8, kind| {
            if ignored >> (number - 1) & 1 == 1 {
                Ok(None)
            } else {
                signal(kind).map(Some)
            }
        };
        Ok(Signals {
            interrupt: unless_ignored(INT, SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: unless_ignored(HUP, SignalKind::hangup())?,
            escalation: Escalation::default(),
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            () = receive(self.interrupt.as_mut()) => self.escalation.interrupt(),
            () = receive(Some(&mut self.terminate)) => Wish::Stop,
            () = receive(self.hangup.as_mut()) => Wish::Stop,
        }
    }
}

async fn receive(signal: Option<&mut Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// The mask of ignored signals in a `/proc/…/status`.
fn ignored_in(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interrupt_is_harder_than_the_one_before() {
        let mut escalation = Escalation::default();
        let wishes: Vec<Wish> = (0..4).map(|_| escalation.interrupt()).collect();
        assert_eq!(wishes, ["INT", "TERM", "KILL", "KILL"].map(Wish::Signal));
    }

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert_eq!(
            ignored_in("Name:\tx\nSigBlk:\t0\nSigIgn:\t0000000000001003\nSigCgt:\t0\n"),
            0x1003
        );
        assert_eq!(ignored_in(""), 0);
    }
}
