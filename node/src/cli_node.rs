//! Being a node: settings, locks and listeners first, then [`serve`] until the end.

use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::Mode;
use serde_json::Value;
use weft_actors::home::Home;

use crate::app::{App, print, print_json, say};
use crate::autostart::lock;
use crate::config::{self, Settings};
use crate::duration::{Idle, parse_idle};
use crate::exit::{self, Failure};
use crate::http::SocketPath;
use crate::limits::LOCK_WAIT_MS;
use crate::render::list;
use crate::serve::{ServeOptions, serve};

/// What the command line says about the node.
#[derive(Debug)]
pub(crate) struct Options {
    /// TCP addresses; those of the settings where none is given.
    pub(crate) listen: Vec<String>,
    /// Addresses that others can reach are allowed.
    pub(crate) insecure_listen: bool,
    /// Where a port is taken, another one will do.
    pub(crate) any_port: bool,
    /// The idle grace.
    pub(crate) idle: Option<Idle>,
    /// `text` or `json`.
    pub(crate) log_format: Option<String>,
    /// Started by another weft, which waits for the first line.
    pub(crate) detached: bool,
}

/// Runs the node of the home to its end.
pub(crate) fn run(app: &App, options: Options) -> Result<u8, Failure> {
    end_on_panic();
    let home = app.home()?;
    let settings = config::read(&home.config())?;
    if options.detached {
        detach();
    }
    // Whoever starts a node holds `node.start` until it answers; a person's `weft node` is its own starter.
    let starting = if options.detached {
        None
    } else {
        Some(lock(&home.start_lock()).map_err(|error| Failure::io("node.start", error))?)
    };
    let lock = take_home(&home)?;
    make_tasks(&home)?;
    let listeners = listeners(&options, &settings)?;
    let idle = options.idle.or_else(|| {
        settings
            .idle
            .as_deref()
            .and_then(|idle| parse_idle(idle).ok())
    });
    let (detached, tells_urls, json) = (options.detached, options.any_port, app.globals.json);
    let serve_options = ServeOptions {
        lock,
        listeners,
        idle,
        settings,
        state_dir: app.globals.state_dir.clone(),
        ready: Box::new(move |status| {
            drop(std::panic::take_hook());
            drop(starting);
            if detached {
                let_go(&status);
            } else if tells_urls && json {
                // That nobody reads it is no reason to end the node.
                let _ = print_json(&status);
            } else if tells_urls {
                tell_urls(&status);
            }
        }),
    };
    start_log(
        options
            .log_format
            .as_deref()
            .or(serve_options.settings.log_format.as_deref())
            == Some("json"),
    );
    run_to_end(|| runtime()?.block_on(serve(home, serve_options)))?;
    Ok(exit::DONE)
}

/// The parent of task folders, which a home that was just made or copied together lacks.
fn make_tasks(home: &Home) -> Result<(), Failure> {
    let tasks = home.tasks();
    let failed = |error| Failure::io(tasks.display().to_string(), error);
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(&tasks)
        .map_err(failed)?;
    // A link would have tasks kept, and removed when their time is over, in a folder that is not the home's.
    if tasks.symlink_metadata().map_err(failed)?.is_symlink() {
        return Err(Failure::Failed(format!(
            "{} is a symbolic link; tasks are kept in their home alone: put a folder there",
            tasks.display()
        )));
    }
    Ok(())
}

/// Takes `node.lock`, which makes this process the home's one node. A node that answers is not waited for; one that
/// is ending is, since it keeps its lock until its last answer is out.
fn take_home(home: &Home) -> Result<File, Failure> {
    let runs = || {
        Failure::Failed(format!(
            "a node runs in {} already; `weft node status` shows it",
            home.root.display()
        ))
    };
    if SocketPath::new(&home.root, "node.sock")
        .and_then(|socket| socket.connect())
        .is_ok()
    {
        return Err(runs());
    }
    let path = home.node_lock();
    let (give, get) = mpsc::channel();
    // On a thread of its own, because the kernel's wait for a lock has no end.
    std::thread::spawn(move || give.send(lock(&path)));
    match get.recv_timeout(Duration::from_millis(LOCK_WAIT_MS)) {
        Ok(lock) => lock.map_err(|error| Failure::io("node.lock", error)),
        Err(_) => Err(runs()),
    }
}

/// Actors live on this thread; connections and streams are served by the runtime's workers.
/// Runs the node. One whose own thread panics serves nobody any more: it must not wait, with the home's lock in hand, for what the
/// panic has left.
fn run_to_end(serve: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|_panic| {
        // The panic itself has told why.
        std::process::exit(exit::WEFT_FAILED.into())
    })
}

/// Ends this process at a panic, until the node has opened its doors. Where the system gives the runtime its first thread and not the
/// next, tokio panics, and on its way out waits for the first for ever, with the home's lock in hand.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let words = panic.payload_as_str().unwrap_or("it failed inside");
        say(&format!("the node cannot start: {words}"));
        std::process::exit(exit::WEFT_FAILED.into());
    }));
}

fn runtime() -> Result<actix::SystemRunner, Failure> {
    let workers = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let workers = workers.map_err(|error| Failure::io("the runtime", error))?;
    Ok(actix::System::with_tokio_rt(|| workers))
}

fn start_log(as_json: bool) {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    if as_json {
        log.json().init();
    } else {
        log.init();
    }
}

/// Leaves the starter's session, and its umask: what a node writes is its owner's alone.
fn detach() {
    // That this process leads a group already is the one reason why this can fail; it is away from the terminal then
    // only as far as its starter put it.
    let _ = rustix::process::setsid();
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Tells a person where to look.
fn tell_urls(status: &Value) {
    for url in list(status, "http").iter().filter_map(Value::as_str) {
        // That nobody reads it is no reason to end the node.
        let _ = print(&format!("{url}\n"));
    }
}

/// Tells the starter that the node answers, then holds nothing of it any more.
fn let_go(status: &Value) {
    let mut out = std::io::stdout().lock();
    // A starter that is gone meanwhile changes nothing.
    let _ = writeln!(out, "{status}").and_then(|()| out.flush());
    if let Ok(null) = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

fn listeners(options: &Options, settings: &Settings) -> Result<Vec<TcpListener>, Failure> {
    let addresses = if options.listen.is_empty() {
        &settings.listen
    } else {
        &options.listen
    };
    addresses
        .iter()
        .map(|address| listen(address, options))
        .collect()
}

fn listen(address: &str, options: &Options) -> Result<TcpListener, Failure> {
    let address: SocketAddr = address.parse().map_err(|_| {
        Failure::Usage(format!(
            "--listen {address}: takes an address and a port, such as 127.0.0.1:7411"
        ))
    })?;
    if !address.ip().is_loopback() && !options.insecure_listen {
        return Err(Failure::Usage(format!(
            "--listen {address}: others could reach it and read along; --insecure-listen allows that"
        )));
    }
    match TcpListener::bind(address) {
        Err(error) if options.any_port && error.kind() == std::io::ErrorKind::AddrInUse => {
            let listener = TcpListener::bind((address.ip(), 0))
                .map_err(|error| Failure::io(address.to_string(), error))?;
            if let Ok(taken) = listener.local_addr() {
                say(&format!("{address} is taken; this node listens on {taken}"));
            }
            Ok(listener)
        }
        bound => bound.map_err(|error| Failure::io(format!("--listen {address}"), error)),
    }
}
