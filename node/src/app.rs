//! What every verb has in hand: the options that all share, the way to the node, and our own output.

use std::future::Future;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;
use serde_json::Value;
use weft_actors::home::Home;

use crate::autostart::Starter;
use crate::client::Client;
use crate::exit::Failure;
use crate::home::{self, Choice, Missing};
use crate::limits::{INPUT_BYTES_MAX, NAME_CHARS_MAX};
use crate::{config, render};

/// Options that every verb takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Globals {
    /// The home to use; without it the nearest .weft at or above the working directory
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// The owner session to act as; `cli` unless given
    #[arg(long, global = true, value_name = "NAME", value_parser = session_name)]
    pub(crate) session: Option<String>,
    /// Where keys are kept, instead of $XDG_STATE_HOME/weft
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Print JSON and nothing else on stdout: one document, or one a line for streams
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What the session of a resident's run begins with. It is weft's own: in such a run it is given by the environment,
/// and the node knows it by the run.
const OF_RESIDENT: &str = "resident.";

fn session_name(text: &str) -> Result<String, String> {
    let name = text.strip_prefix(OF_RESIDENT).unwrap_or(text);
    let fits = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if fits {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "a session takes 1 to {NAME_CHARS_MAX} characters of A-Z a-z 0-9 _ -"
        ))
    }
}

/// One run of the command line.
pub(crate) struct App {
    pub(crate) globals: Globals,
    cwd: PathBuf,
}

impl App {
    pub(crate) fn new(globals: Globals) -> Result<Self, Failure> {
        let cwd =
            std::env::current_dir().map_err(|error| Failure::io("the working directory", error))?;
        Ok(App { globals, cwd })
    }

    /// The session to name to the node; none where the node knows better.
    pub(crate) fn session(&self) -> Option<String> {
        let given = self.globals.session.clone();
        given.filter(|name| !name.starts_with(OF_RESIDENT))
    }

    /// Where the person stands.
    pub(crate) fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The parent of the private folders of homes.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, Failure> {
        config::state_dir(self.globals.state_dir.as_deref())
    }

    /// The home, made where it is missing.
    pub(crate) fn home(&self) -> Result<Home, Failure> {
        self.open(Missing::Make)
    }

    /// The home, which must be there.
    pub(crate) fn existing_home(&self) -> Result<Home, Failure> {
        self.open(Missing::Refuse)
    }

    fn open(&self, missing: Missing) -> Result<Home, Failure> {
        let choice = Choice {
            named: self.globals.home.clone(),
            state_dir: self.state_dir()?,
            user_home: config::home_dir(),
        };
        Ok(home::open(&choice, &self.cwd, missing)?)
    }

    /// A client of the home's node, which starts it where none runs.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.client_of(self.home()?)
    }

    /// A client of the node of a home that must be there.
    pub(crate) fn client_of_existing(&self) -> Result<Client, Failure> {
        self.client_of(self.existing_home()?)
    }

    fn client_of(&self, home: Home) -> Result<Client, Failure> {
        let starter = Starter::of_this_program(self.globals.state_dir.as_deref())
            .map_err(|error| Failure::io("this program's own path", error))?;
        Ok(Client::new(home, self.session(), Some(starter)))
    }

    /// A client that only speaks to a node that runs.
    pub(crate) fn client_of_running(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.existing_home()?, self.session(), None))
    }

    /// A word about what was done, on stderr. With `--json` the document says it.
    pub(crate) fn tell(&self, message: &str) {
        if !self.globals.json {
            say(message);
        }
    }

    /// Says on a terminal that there are no `things`: an empty list looks like a failure there, and to a program it is one
    /// answer like any other.
    pub(crate) fn tell_if_none(&self, list: &[Value], things: &str) {
        if list.is_empty() && errors_on_terminal() {
            self.tell(&format!("no {things}"));
        }
    }

    /// A result: the document with `--json`, else what `show` makes of it.
    pub(crate) fn answer(
        &self,
        value: &Value,
        show: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        if self.globals.json {
            print_json(value)
        } else {
            print(&show(value))
        }
    }
}

/// Runs what waits for sockets and timers, on this thread alone.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Failure::io("starting the runtime", error))?;
    let result = runtime.block_on(work);
    // A thread of ours may be stuck in a write that nobody reads; the process ends all the same.
    runtime.shutdown_background();
    result
}

/// Does on another thread what may block. Where the system gives no thread tokio panics: so one is asked for before the first.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    static GIVES_THREADS: AtomicBool = AtomicBool::new(false);
    if !GIVES_THREADS.swap(true, Ordering::Relaxed) {
        let _ = std::thread::Builder::new().spawn(|| {})?.join();
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(std::io::Error::other)
}

/// One JSON document, on one line.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}

/// Writes to stdout, at once.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes to stdout, at once.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(Failure::output)
}

/// A message for a person, on stderr. That nobody may see it is no reason to stop.
pub(crate) fn say(message: &str) {
    let _ = writeln!(
        io::stderr().lock(),
        "weft: {}",
        render::visible_lines(message)
    );
}

/// Tells of a failure on stderr: with `json` as one document. `called` is the verb as it was called, `about` what of several
/// things failed.
pub(crate) fn refuse(failure: &Failure, called: &str, about: Option<&str>, json: bool) {
    if json {
        complain(&failure.document(called));
        return;
    }
    match about {
        Some(about) => say(&format!("{about}: {failure}")),
        None => say(&failure.to_string()),
    }
    if let Some(hint) = failure.hint(called) {
        say(&hint);
    }
}

/// A problem document on stderr, harmless to a terminal. That nobody may see it is no reason to end otherwise.
fn complain(document: &Value) {
    let _ = writeln!(io::stderr().lock(), "{}", render::escaped(document));
}

/// Whether stdout is a terminal.
pub(crate) fn on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether stderr is a terminal.
pub(crate) fn errors_on_terminal() -> bool {
    io::stderr().is_terminal()
}

/// The regular file that stdout is, with its permissions.
pub(crate) fn stdout_file() -> Option<(PathBuf, u32)> {
    let about = rustix::fs::fstat(io::stdout().as_fd()).ok()?;
    let is_file = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    let path = std::fs::read_link("/proc/self/fd/1").ok()?;
    (is_file && path.exists()).then_some((path, about.st_mode & 0o777))
}

/// Whether colour may be shown on stdout.
pub(crate) fn colour() -> bool {
    on_terminal() && !config::no_color()
}

/// The text of a file, or of stdin for `-`, up to a bound.
pub(crate) fn input(source: &Path, bytes_max: u64) -> Result<String, Failure> {
    let name = source.display().to_string();
    let mut text = String::new();
    let read = if source.as_os_str() == "-" {
        io::stdin()
            .lock()
            .take(bytes_max + 1)
            .read_to_string(&mut text)
    } else {
        std::fs::File::open(source)
            .and_then(|file| file.take(bytes_max + 1).read_to_string(&mut text))
    };
    read.map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
    if text.len() as u64 > bytes_max {
        return Err(Failure::Usage(format!(
            "{name}: larger than {bytes_max} bytes"
        )));
    }
    Ok(text)
}

/// A JSON value written as an argument, or read from a file (`@FILE`) or stdin (`-`).
pub(crate) fn json_argument(name: &str, text: &str) -> Result<Value, Failure> {
    let read;
    let text = match text.strip_prefix('@') {
        Some(file) => {
            read = input(Path::new(file), INPUT_BYTES_MAX)?;
            &read
        }
        None if text == "-" => {
            read = input(Path::new("-"), INPUT_BYTES_MAX)?;
            &read
        }
        None => text,
    };
    serde_json::from_str(text)
        .map_err(|error| Failure::Usage(format!("{name} is no JSON: {error}")))
}
