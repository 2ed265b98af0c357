//! The command: what it gets, how it is started, and what to say when it cannot be.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::limits::{ARG_BYTES_MAX, TERMINAL_SIZE_DEFAULT};
use crate::sys::{self, Program, Step};
use crate::task::wire::{Failure, Io, Launch, StreamName, Streams};

/// Where a program is looked up when its environment has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// The shim's ends of the command's streams.
pub(crate) struct Ends {
    /// Feeds standard input, where that is a pipe or a terminal.
    pub(crate) input: Option<OwnedFd>,
    /// The supervisor's end of the terminal, where there is one.
    pub(crate) terminal: Option<OwnedFd>,
    /// What is captured.
    pub(crate) outputs: Vec<(StreamName, OwnedFd)>,
}

/// The command's ends of its streams.
pub(crate) struct Streams3 {
    input: OwnedFd,
    output: OwnedFd,
    error: Option<OwnedFd>,
}

impl Streams3 {
    /// Standard input, output and error.
    pub(crate) fn as_fds(&self) -> [BorrowedFd<'_>; 3] {
        let error = self.error.as_ref().unwrap_or(&self.output);
        [self.input.as_fd(), self.output.as_fd(), error.as_fd()]
    }
}

/// Makes the command's streams.
pub(crate) fn open_streams(launch: &Launch) -> io::Result<(Ends, Streams3)> {
    if launch.io == Io::Pty {
        return open_terminal(launch);
    }
    let (input, feed) = open_input(launch)?;
    let mut outputs = Vec::new();
    let mut theirs = Vec::new();
    for name in launch.streams.names() {
        let (ours, child_s) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // The ends of a pipe have flags of their own: the command's stays a blocking one.
        set_nonblocking(&ours)?;
        outputs.push((*name, ours));
        theirs.push(child_s);
    }
    let error = (launch.streams == Streams::Split)
        .then(|| theirs.pop())
        .flatten();
    let output = theirs
        .pop()
        .ok_or_else(|| io::Error::other("a task has at least one stream"))?;
    let ends = Ends {
        input: feed,
        terminal: None,
        outputs,
    };
    Ok((
        ends,
        Streams3 {
            input,
            output,
            error,
        },
    ))
}

/// Columns and rows of the task's terminal at its start.
pub(crate) fn size_of(launch: &Launch) -> (u16, u16) {
    launch.size.unwrap_or(TERMINAL_SIZE_DEFAULT)
}

fn open_terminal(launch: &Launch) -> io::Result<(Ends, Streams3)> {
    let (ours, theirs) = sys::terminal::open(size_of(launch))?;
    // One open file on our side, so that this holds for its copies too.
    set_nonblocking(&ours)?;
    let ends = Ends {
        input: Some(ours.try_clone()?),
        outputs: vec![(StreamName::Output, ours.try_clone()?)],
        terminal: Some(ours),
    };
    Ok((
        ends,
        Streams3 {
            input: theirs.try_clone()?,
            output: theirs,
            error: None,
        },
    ))
}

fn open_input(launch: &Launch) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    let read = OFlags::RDONLY | OFlags::CLOEXEC;
    if launch.io == Io::Pipes {
        let (child_s, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        set_nonblocking(&ours)?;
        return Ok((child_s, Some(ours)));
    }
    let Some(bytes) = &launch.stdin else {
        return Ok((rustix::fs::open("/dev/null", read, Mode::empty())?, None));
    };
    let memory = rustix::fs::memfd_create(c"stdin", MemfdFlags::CLOEXEC)?;
    let mut rest = bytes.as_bytes();
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&memory, rest)?..];
    }
    // Opened anew, so that it is read from its start and cannot be written.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
    Ok((rustix::fs::open(path, read, Mode::empty())?, None))
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// Everything exec wants, in its form.
pub(crate) fn prepare(launch: &Launch) -> Result<Program, Failure> {
    let Some(name) = launch.argv.first().filter(|name| !name.is_empty()) else {
        return Err(refusal(
            "argv: the first word names the program and is missing or empty",
        ));
    };
    let word = |what: &str, word: &OsStr| {
        CString::new(word.as_bytes()).map_err(|_| {
            refusal(&format!(
                "{what} holds a NUL byte, which no program can be given"
            ))
        })
    };
    let argv = (0..)
        .zip(&launch.argv)
        .map(|(index, it): (usize, _)| word(&format!("argv: word {index}"), it))
        .collect::<Result<_, _>>()?;
    let env = launch
        .env
        .iter()
        .map(|(name, value)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            word(&format!("env: {}", name.display()), &pair)
        })
        .collect::<Result<_, _>>()?;
    let candidates = candidates(name, launch)
        .iter()
        .map(|path| word("argv: the program", path))
        .collect::<Result<_, _>>()?;
    Ok(Program {
        candidates,
        argv,
        env,
        cwd: word("cwd", launch.cwd.as_os_str())?,
        nofile: launch.nofile,
        on_terminal: launch.io == Io::Pty,
    })
}

fn candidates(name: &OsStr, launch: &Launch) -> Vec<OsString> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.to_owned()];
    }
    let path = launch.env.iter().rfind(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(PATH_DEFAULT), |(_, path)| path.as_os_str());
    // An empty entry means the working directory, as it does for a shell.
    path.as_bytes()
        .split(|byte| *byte == b':')
        .map(|entry| {
            Path::new(OsStr::from_bytes(entry))
                .join(name)
                .into_os_string()
        })
        .collect()
}

/// A refusal that is not the system's.
pub(crate) fn refusal(message: &str) -> Failure {
    Failure {
        message: message.to_owned(),
        errno: None,
    }
}

/// A failure of the system's, with what was being done.
pub(crate) fn failure(doing: &str, error: &io::Error) -> Failure {
    Failure {
        message: format!("{doing}: {}", reason(error)),
        errno: error.raw_os_error(),
    }
}

/// Says why the command did not start, and what to do where that is known.
pub(crate) fn explain(launch: &Launch, step: Step, error: &io::Error) -> Failure {
    let name = launch
        .argv
        .first()
        .map_or_else(String::new, |name| name.display().to_string());
    let message = match (step, error.raw_os_error()) {
        (Step::Prepare, _) => format!("preparing the streams: {}", reason(error)),
        (Step::Cwd, _) => format!(
            "working directory {}: {}",
            launch.cwd.display(),
            reason(error)
        ),
        (Step::Exec, Some(libc::E2BIG)) => too_long(launch),
        (Step::Exec, Some(libc::ENOENT))
            if name.contains('/') && launch.cwd.join(&name).exists() =>
        {
            format!(
                "{name}: the file is there, but the interpreter that its first line names is not"
            )
        }
        (Step::Exec, Some(libc::ENOENT)) if !name.contains('/') => {
            format!("{name}: not found in PATH")
        }
        (Step::Exec, _) => format!("{name}: {}", reason(error)),
    };
    Failure {
        message,
        // Of the command alone: a working directory that is not there is no "command not found".
        errno: error.raw_os_error().filter(|_| step == Step::Exec),
    }
}

fn too_long(launch: &Launch) -> String {
    const HINT: &str = "pass it through standard input or a file";
    let oversized = |bytes: usize| bytes > ARG_BYTES_MAX;
    if let Some((index, word)) = launch
        .argv
        .iter()
        .enumerate()
        .find(|(_, word)| oversized(word.len()))
    {
        let bytes = word.len();
        return format!(
            "Argument list too long: word {index} of argv has {bytes} bytes and the system takes at most \
             {ARG_BYTES_MAX} in one; {HINT}"
        );
    }
    let size = |(name, value): &(OsString, OsString)| name.len() + 1 + value.len();
    if let Some(pair) = launch.env.iter().find(|pair| oversized(size(pair))) {
        let (name, bytes) = (pair.0.display(), size(pair));
        return format!(
            "Argument list too long: the environment variable {name} has {bytes} bytes with its name and the \
             system takes at most {ARG_BYTES_MAX} in one; {HINT}"
        );
    }
    let words: usize = launch.argv.iter().map(|word| word.len() + 1).sum();
    let environment: usize = launch.env.iter().map(|pair| size(pair) + 1).sum();
    format!(
        "Argument list too long: {} words of argv with {words} bytes and an environment of {environment} bytes are \
         together more than the system takes (a quarter of the stack limit); {HINT}",
        launch.argv.len()
    )
}

/// The system's words for an error, without the number that Rust puts behind.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
