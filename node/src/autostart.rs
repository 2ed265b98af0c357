//! Starting a node where none answers: one at a time a home, told by its first line, with nothing of the caller in it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use weft_actors::home::Home;

use crate::http::SocketPath;
use crate::limits::{INPUT_BYTES_MAX, START_MS};

/// How a node is started.
#[derive(Debug, Clone)]
pub(crate) struct Starter {
    /// The program: this very binary, by its absolute path.
    program: PathBuf,
    /// `--state-dir`, where it was given.
    state_dir: Option<PathBuf>,
    /// A TCP address that the node is to listen on.
    listen: Option<String>,
}

impl Starter {
    /// Starts nodes with this program's own file, never with what PATH would find.
    pub(crate) fn of_this_program(state_dir: Option<&Path>) -> std::io::Result<Self> {
        Ok(Starter {
            program: own_program()?,
            state_dir: state_dir.map(Path::to_owned),
            listen: None,
        })
    }

    /// The same with a TCP address, which an ordinary start never has.
    pub(crate) fn listening(mut self, address: &str) -> Self {
        self.listen = Some(address.to_owned());
        self
    }

    /// The file that is run.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Returns once a node answers in `home`, or with the reason why none does.
    ///
    /// The lock `node.start` makes everyone else wait for this start; whoever gets it looks first whether the one
    /// before did the work. Waiting is done in the kernel: on the lock, then on the node's first line.
    pub(crate) fn start(&self, home: &Home) -> Result<(), String> {
        let _starting = lock(&home.start_lock()).map_err(|error| format!("node.start: {error}"))?;
        if SocketPath::new(&home.root, "node.sock")
            .and_then(|socket| socket.connect())
            .is_ok()
        {
            return Ok(());
        }
        self.launch(home)
    }

    fn launch(&self, home: &Home) -> Result<(), String> {
        let mut child = Command::new(&self.program)
            .arg("--home")
            .arg(&home.root)
            .args(["node", "--detached"])
            .args(self.listen.iter().flat_map(|address| ["--listen", address]))
            .current_dir("/")
            .env_clear()
            .envs(crate::config::for_node(self.state_dir.as_deref()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Until it has a session of its own a Ctrl-C at our terminal must not reach it.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let mut first = String::new();
        if let Some(out) = child.stdout.take() {
            if !says_something(&out) {
                return Err(format!(
                    "a started node, process {}, says nothing for {} s; look at it, and end it with kill -9",
                    child.id(),
                    START_MS / 1000
                ));
            }
            // A line that does not come is an end of file: the node died or let go of its output.
            let _ = BufReader::new(out.take(INPUT_BYTES_MAX)).read_line(&mut first);
        }
        if first.ends_with('\n') {
            return Ok(());
        }
        let mut words = String::new();
        if let Some(errors) = child.stderr.take() {
            let _ = errors.take(INPUT_BYTES_MAX).read_to_string(&mut words);
        }
        let status = child
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string());
        let words = crate::render::visible_lines(words.trim().trim_start_matches("weft: "));
        Err(if words.is_empty() {
            format!("a started node ended without a word ({status})")
        } else {
            words
        })
    }
}

/// Whether a starting node comes up, or ends, in time.
fn says_something(out: &impl AsFd) -> bool {
    let until = Instant::now() + Duration::from_millis(START_MS);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(out, PollFlags::IN)], timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            // Where it cannot be watched it is read, which waits as well.
            Ok(count) => return count > 0,
            Err(_) => return true,
        }
    }
}

/// This program's file. After an upgrade the kernel marks the old file as deleted; the new one is in its place.
pub(crate) fn own_program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let replaced = path
        .to_str()
        .and_then(|text| text.strip_suffix(" (deleted)"))
        .map(PathBuf::from);
    Ok(replaced.filter(|path| path.exists()).unwrap_or(path))
}

/// Opens a lock file and waits until the lock is ours; it is given back when the file is dropped.
pub(crate) fn lock(path: &Path) -> std::io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
