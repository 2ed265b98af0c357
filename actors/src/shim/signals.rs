//! Names of signals.

use rustix::process::Signal;

const NAMES: [(&str, Signal); 31] = [
    ("SIGHUP", Signal::HUP),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGILL", Signal::ILL),
    ("SIGTRAP", Signal::TRAP),
    ("SIGABRT", Signal::ABORT),
    ("SIGBUS", Signal::BUS),
    ("SIGFPE", Signal::FPE),
    ("SIGKILL", Signal::KILL),
    ("SIGUSR1", Signal::USR1),
    ("SIGSEGV", Signal::SEGV),
    ("SIGUSR2", Signal::USR2),
    ("SIGPIPE", Signal::PIPE),
    ("SIGALRM", Signal::ALARM),
    ("SIGTERM", Signal::TERM),
    ("SIGSTKFLT", Signal::STKFLT),
    ("SIGCHLD", Signal::CHILD),
    ("SIGCONT", Signal::CONT),
    ("SIGSTOP", Signal::STOP),
    ("SIGTSTP", Signal::TSTP),
    ("SIGTTIN", Signal::TTIN),
    ("SIGTTOU", Signal::TTOU),
    ("SIGURG", Signal::URG),
    ("SIGXCPU", Signal::XCPU),
    ("SIGXFSZ", Signal::XFSZ),
    ("SIGVTALRM", Signal::VTALARM),
    ("SIGPROF", Signal::PROF),
    ("SIGWINCH", Signal::WINCH),
    ("SIGIO", Signal::IO),
    ("SIGPWR", Signal::POWER),
    ("SIGSYS", Signal::SYS),
];

/// The name of a signal's number; `SIG34` and so on for those that have none.
pub(crate) fn name_of(number: i32) -> String {
    NAMES
        .iter()
        .find(|(_, signal)| signal.as_raw() == number)
        .map_or_else(|| format!("SIG{number}"), |(name, _)| (*name).to_owned())
}

/// The signal of a name, with or without `SIG`, in either case, or of its number.
pub(crate) fn parse(text: &str) -> Option<Signal> {
    let upper = text.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    NAMES
        .iter()
        .find(|(name, signal)| name[3..] == *short || signal.as_raw().to_string() == *text)
        .map(|(_, signal)| *signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_people_write_them() {
        for text in ["SIGTERM", "TERM", "term", "15"] {
            assert_eq!(parse(text), Some(Signal::TERM), "{text}");
        }
        assert_eq!(parse("0"), None);
        assert_eq!(parse("SIGSIGTERM"), None);
        assert_eq!(name_of(9), "SIGKILL");
        assert_eq!(name_of(40), "SIG40");
    }
}
