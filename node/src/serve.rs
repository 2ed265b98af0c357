//! The wiring of a node: store, actors and doors in order, a wait for the end, then the same in reverse.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tracing::{info, warn};
use weft_actors::failpoint::FailPoints;
use weft_actors::home::Home;
use weft_actors::house::{self, House, ShimProgram, now_ms};
use weft_actors::resident;
use weft_actors::root::Root;
use weft_grants::Keys;
use weft_mesh::{Store, StoreOptions};
use weft_web::{TcpOptions, serve_tcp, serve_unix};

use crate::config::{self, Settings};
use crate::duration::Idle;
use crate::exit::Failure;
use crate::http::SocketPath;
use crate::limits::{DRAIN_MS, HANG_MS_DEFAULT, IDLE_MS_DEFAULT};
use crate::{reaper, watch_home};

/// What a node needs to know beside its home.
pub(crate) struct ServeOptions {
    /// Held for the node's whole life.
    pub(crate) lock: File,
    /// Bound TCP sockets.
    pub(crate) listeners: Vec<TcpListener>,
    /// The idle grace; none for the default.
    pub(crate) idle: Option<Idle>,
    /// The home's settings.
    pub(crate) settings: Settings,
    /// The private folder of all homes, where it is not the default.
    pub(crate) state_dir: Option<PathBuf>,
    /// Called with the node's status once it answers.
    pub(crate) ready: Box<dyn FnOnce(Value) + Send>,
}

/// Runs the node until it is told to end, has nothing to do for its idle grace, or loses its home.
pub(crate) async fn serve(home: Home, options: ServeOptions) -> Result<(), Failure> {
    let home_path = home.root.display().to_string();
    // The first line of the log, whatever comes after it: who chose port 0 reads here which one it became.
    info!(pid = std::process::id(), home = %home_path, urls = %words(&bound(&options.listeners)), "the node starts");
    let nofile = raise_nofile();
    let house = open_house(home, &options, nofile).await?;
    // Children are reaped from the first one on, also those that process 1 of a container inherits.
    let reaper = tokio::spawn(reaper::reap());
    let root = Root::begin(house.clone())
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?;
    resident::wake::refresh(&house)
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let doors = open_doors(&house, options.listeners, &options.settings)?;
    info!(home = %home_path, urls = %words(&house.urls()), "the node is up");
    (options.ready)(json!(weft_actors::status(&house)));
    let why = wait_for_end(&house, options.idle).await;
    info!(why, "the node is ending; tasks go on");
    house.stopping.send_replace(true);
    close_doors(doors).await;
    drop(root);
    reaper.abort();
    let store = house.store.clone();
    // What was handed in is committed before the lock goes.
    let _ = tokio::task::spawn_blocking(move || store.close()).await;
    drop(options.lock);
    Ok(())
}

/// The addresses of sockets that are bound and not served yet.
fn bound(listeners: &[TcpListener]) -> Vec<String> {
    listeners
        .iter()
        .filter_map(|listener| listener.local_addr().ok())
        .map(|address| format!("http://{address}"))
        .collect()
}

/// Addresses as one word after the other: a list in a field of a log would be quoted as text.
fn words(urls: &[String]) -> String {
    if urls.is_empty() {
        "none".to_owned()
    } else {
        urls.join(" ")
    }
}

async fn open_house(
    home: Home,
    options: &ServeOptions,
    nofile: Option<(u64, u64)>,
) -> Result<Arc<House>, Failure> {
    let weft =
        std::env::current_exe().map_err(|error| Failure::io("the path of this program", error))?;
    let shim = shim_program(&weft)?;
    let keys = Keys::load_or_create(&home.state, now_ms())
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let settings = &options.settings;
    let mut store_options = StoreOptions::new(home.database(), home.store_mark());
    store_options.schema = weft_actors::schema();
    store_options.hold = Some(resident::rows::hold);
    let free_floor = settings
        .free_floor
        .unwrap_or_else(|| default_free_floor(&home.root));
    store_options.free_floor = Some(free_floor);
    let store = tokio::task::spawn_blocking(move || Store::open(store_options))
        .await
        .map_err(|error| Failure::Failed(format!("opening the store failed inside: {error}")))?
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let base_env = config::base_env(&settings.environment);
    let settings = house::Settings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        weft,
        base_env,
        shell: settings.shell.path.as_ref().map_or_else(
            || "/bin/sh".to_owned(),
            |path| path.to_string_lossy().into_owned(),
        ),
        hang_ms: HANG_MS_DEFAULT,
        nofile,
        node_env: config::for_node(options.state_dir.as_deref())
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        free_floor,
        public_url: settings.public_url.clone(),
        fail_points: FailPoints::parse(&config::fail_points()),
    };
    Ok(House::new(home, settings, store, shim, keys))
}

/// One floor for store and shims: a GiB, or of a small file system its share.
fn default_free_floor(root: &Path) -> u64 {
    use weft_mesh::limits::{FREE_FLOOR_BYTES, FREE_FLOOR_PERCENT};
    let Ok(about) = rustix::fs::statvfs(root) else {
        return FREE_FLOOR_BYTES;
    };
    let total = about.f_blocks.saturating_mul(about.f_frsize);
    FREE_FLOOR_BYTES.min(total / 100 * FREE_FLOOR_PERCENT)
}

/// The small binary where it lies beside this one, else this one with the word `shim`. Opened now, so that an upgrade of either
/// mixes nothing.
fn shim_program(weft: &Path) -> Result<ShimProgram, Failure> {
    if let Ok(file) = File::open(weft.with_file_name("weft-shim")) {
        return Ok(ShimProgram {
            file: OwnedFd::from(file),
            takes_verb: false,
        });
    }
    let file = File::open(weft).map_err(|error| Failure::io(weft.display().to_string(), error))?;
    Ok(ShimProgram {
        file: OwnedFd::from(file),
        takes_verb: true,
    })
}

fn open_doors(
    house: &Arc<House>,
    listeners: Vec<TcpListener>,
    settings: &Settings,
) -> Result<JoinSet<()>, Failure> {
    let mut doors = JoinSet::new();
    let socket = bind_socket(&house.home)?;
    for listener in listeners {
        let bound = listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(listener));
        let listener = bound.map_err(|error| Failure::io("--listen", error))?;
        let address = listener
            .local_addr()
            .map_err(|error| Failure::io("--listen", error))?;
        house.add_url(format!("http://{address}"));
        doors.spawn(serve_tcp(
            house.clone(),
            listener,
            TcpOptions::with_names(settings.hosts.clone()),
        ));
    }
    // Last, so that whoever asks the node where it listens hears of every address.
    doors.spawn(serve_unix(house.clone(), socket));
    Ok(doors)
}

/// Binds the home's socket. The caller holds `node.lock`, so whatever is in its place is stale.
fn bind_socket(home: &Home) -> Result<UnixListener, Failure> {
    let context = || format!("the socket {}", home.socket().display());
    match std::fs::remove_file(home.socket()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::io(context(), error));
        }
        _ => {}
    }
    let path =
        SocketPath::new(&home.root, "node.sock").map_err(|error| Failure::io(context(), error))?;
    let listener = path.bind().map_err(|error| Failure::io(context(), error))?;
    // The folder is its owner's alone already; the mode says so once more.
    std::fs::set_permissions(home.socket(), std::fs::Permissions::from_mode(0o600))
        .map_err(|error| Failure::io(context(), error))?;
    listener
        .set_nonblocking(true)
        .and_then(|()| UnixListener::from_std(listener))
        .map_err(|error| Failure::io(context(), error))
}

/// Waits for the first reason to end, and names it.
async fn wait_for_end(house: &Arc<House>, idle: Option<Idle>) -> &'static str {
    tokio::select! {
        () = house.stopping() => "asked to",
        () = signalled() => "signalled",
        () = idle_end(house, idle) => "idle",
        () = watch_home::gone(&house.home) => {
            warn!(home = %house.home.root.display(), "the home, its lock or its socket was removed or moved away under this node, which nobody can reach any more");
            "its home is gone"
        }
    }
}

async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        warn!("signals cannot be caught; SIGTERM ends this node at once");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// Ends when nothing kept the node busy for the whole grace.
async fn idle_end(house: &House, idle: Option<Idle>) {
    let grace = match idle {
        Some(Idle::Never) => return std::future::pending().await,
        Some(Idle::After(grace)) => grace,
        None => Duration::from_millis(IDLE_MS_DEFAULT),
    };
    loop {
        while !house.busy.is_idle() {
            house.busy.changed().await;
        }
        let quiet = tokio::time::timeout(grace, house.busy.changed())
            .await
            .is_err();
        if quiet && house.busy.is_idle() && !is_expected(house).await {
            return;
        }
    }
}

/// Whether somebody outside may still come: over TCP, with a grant or a token that is good.
async fn is_expected(house: &House) -> bool {
    if house.urls().is_empty() {
        return false;
    }
    let now = now_ms();
    let granted = house.store.grants().await.is_ok_and(|grants| {
        grants.iter().any(|grant| {
            grant.revoked_at.is_none() && grant.uses_left() > 0 && grant.exp * 1000 > now
        })
    });
    granted
        || house
            .look(weft_actors::tokens::all)
            .await
            .is_ok_and(|tokens| {
                tokens
                    .iter()
                    .any(|token| token.revoked_at.is_none() && token.expires_at > now)
            })
}

/// Lets the doors answer what is open, for a bounded time.
async fn close_doors(mut doors: JoinSet<()>) {
    let drained = async { while doors.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_millis(DRAIN_MS), drained)
        .await
        .is_err()
    {
        warn!("some connections did not end in time and are cut");
    }
}

/// Every running task costs the node a descriptor: take what the system gives. Tasks get the limits that were there before.
fn raise_nofile() -> Option<(u64, u64)> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let (current, maximum) = (before.current?, before.maximum?);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(maximum),
            maximum: Some(maximum),
        },
    )
    .ok()?;
    Some((current, maximum))
}
