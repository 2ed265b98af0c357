//! The parts of one node, made once at start and shared by its actors and doors.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use actix::Addr;
use rusqlite::Connection;
use tokio::sync::{Notify, watch};
use weft_grants::Keys;
use weft_mesh::{Store, Tx, WriteError};

use crate::error::{Error, Result};
use crate::failpoint::FailPoints;
use crate::home::Home;
use crate::root::Root;
use crate::screens::Screens;
use crate::task::actor::TaskActor;
use crate::task::control::Control;
use crate::task::unbegun::Unbegun;
use crate::tokens::TokenBook;

/// What the entry of the program decides: nothing below it reads the environment or the arguments.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The version of this build.
    pub version: String,
    /// The absolute path of the `weft` binary: shims start a node with it.
    pub weft: PathBuf,
    /// The environment that tasks of every door but the command line start from.
    pub base_env: Vec<(String, String)>,
    /// What runs a `-c` line.
    pub shell: String,
    /// Milliseconds after which a foreground call through HTTP moves its task to the background; 0 is off.
    pub hang_ms: u64,
    /// The number of open files the node itself was allowed at start: what its tasks get, whatever the node raised.
    pub nofile: Option<(u64, u64)>,
    /// The complete environment of a node that a shim may have to start.
    pub node_env: Vec<(String, String)>,
    /// Bytes of free space that no task's output and no publish may take.
    pub free_floor: u64,
    /// The address under which others reach this node, for the commands that grants come with.
    pub public_url: Option<String>,
    /// Where to panic, for tests.
    pub fail_points: FailPoints,
}

/// How a shim is started: the opened program, so that an upgrade in the middle mixes nothing.
#[derive(Debug)]
pub struct ShimProgram {
    /// The program's file, opened for reading at the node's start.
    pub file: OwnedFd,
    /// Whether the words `shim` must follow the program's name (the large binary).
    pub takes_verb: bool,
}

/// One node.
pub struct House {
    /// Its home.
    pub home: Home,
    /// What was decided at its start.
    pub settings: Settings,
    /// The store: mesh, ledger and rows.
    pub store: Store,
    /// The program of its shims.
    pub shim: ShimProgram,
    /// Tasks with a living shim.
    pub live: LiveTasks,
    /// Starts that were cut off and may be asked for again.
    pub unbegun: Unbegun,
    /// Screens that were asked for.
    pub screens: Screens,
    /// Access tokens in use.
    pub tokens: TokenBook,
    /// Turns true once, when the node begins to end.
    pub stopping: watch::Sender<bool>,
    /// What keeps the node from ending when idle.
    pub busy: Busy,
    /// When this node started, epoch milliseconds.
    pub started_at: u64,
    keys: RwLock<Keys>,
    urls: RwLock<Vec<String>>,
    root: OnceLock<Addr<Root>>,
}

impl House {
    /// Puts the parts together. [`House::set_root`] follows as soon as the root actor runs.
    pub fn new(
        home: Home,
        settings: Settings,
        store: Store,
        shim: ShimProgram,
        keys: Keys,
    ) -> Arc<Self> {
        Arc::new(House {
            home,
            settings,
            store,
            shim,
            live: LiveTasks::default(),
            unbegun: Unbegun::default(),
            screens: Screens::default(),
            tokens: TokenBook::default(),
            stopping: watch::Sender::new(false),
            busy: Busy::default(),
            started_at: now_ms(),
            keys: RwLock::new(keys),
            urls: RwLock::new(Vec::new()),
            root: OnceLock::new(),
        })
    }

    /// Names the root actor. Later calls change nothing.
    pub fn set_root(&self, root: Addr<Root>) {
        let _ = self.root.set(root);
    }

    /// The root actor.
    pub fn root(&self) -> Result<&Addr<Root>> {
        self.root
            .get()
            .ok_or_else(|| Error::Internal("the root actor is not up yet".into()))
    }

    /// The keys as they are now.
    pub fn keys(&self) -> Keys {
        self.keys
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The addresses the node listens on.
    pub fn urls(&self) -> Vec<String> {
        self.urls
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds an address the node listens on.
    pub fn add_url(&self, url: String) {
        self.urls
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(url);
    }

    /// The node's name: owner of its keys and issuer of its grants.
    pub fn node_id(&self) -> String {
        format!("n-{}", self.home.id)
    }

    /// The audience of this mesh's grants and tokens.
    pub fn audience(&self) -> String {
        format!("weft:mesh:{}", self.home.id)
    }

    /// Ends when the node begins to end.
    pub async fn stopping(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as this house; an error would mean that it is gone, which is an end too.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Runs `change` in the next commit; answers when that is on stable storage. What it wrote is undone when it refuses.
    pub async fn commit<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.store.write(change).await.map_err(|error| match error {
            WriteError::Refused(error) => error,
            WriteError::Store(error) => Error::Mesh(error),
        })
    }

    /// Runs `look` on a reading connection.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.store.read(|sql| Ok(look(sql))).await?
    }

    /// Waits for `work`, or refuses it when the node begins to end first.
    pub async fn unless_stopping<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.stopping() => Err(Error::NodeStopping),
        }
    }
}

/// Epoch milliseconds by the wall clock.
pub fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// A random id of `bytes` bytes behind `prefix`, in lower-case base 32 without look-alikes.
pub fn random_id(prefix: &str, bytes: usize) -> Result<String> {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut random = vec![0_u8; bytes];
    getrandom::fill(&mut random)
        .map_err(|error| Error::Internal(format!("no random numbers: {error}")))?;
    Ok(prefix
        .chars()
        .chain(
            random
                .iter()
                .map(|byte| char::from(ALPHABET[usize::from(byte & 31)])),
        )
        .collect())
}

/// A task whose shim lives: how to reach it and what it told at its start.
#[derive(Clone)]
pub struct LiveTask {
    /// Its actor.
    pub actor: Addr<TaskActor>,
    /// The connection to its shim.
    pub control: Control,
    /// The main process.
    pub pid: u32,
}

/// The tasks with a living shim, by id. Written by their actors only.
#[derive(Default)]
pub struct LiveTasks {
    live: Mutex<Live>,
    /// Told of every task that comes.
    came: watch::Sender<()>,
}

#[derive(Default)]
struct Live {
    tasks: HashMap<String, LiveTask>,
    /// Which task a shim's process is of. Known from its spawn on, since its command may call before anyone has connected.
    shims: HashMap<u32, String>,
}

impl LiveTasks {
    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The live task `id`, once its shim is connected; for one that is just starting. Never ends for one that will not live.
    pub async fn when_live(&self, id: &str) -> LiveTask {
        let mut came = self.came.subscribe();
        loop {
            if let Some(task) = self.get(id) {
                return task;
            }
            // The sender is a part of this very value.
            let _ = came.changed().await;
        }
    }

    /// The live task `id`.
    pub fn get(&self, id: &str) -> Option<LiveTask> {
        self.lock().tasks.get(id).cloned()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().tasks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The task whose shim is process `pid`.
    pub fn of_shim(&self, pid: u32) -> Option<String> {
        self.lock().shims.get(&pid).cloned()
    }

    pub(crate) fn note_shim(&self, pid: u32, id: &str) {
        self.lock().shims.insert(pid, id.to_owned());
    }

    pub(crate) fn insert(&self, id: &str, task: LiveTask) {
        let mut live = self.lock();
        live.shims.insert(task.control.shim_pid(), id.to_owned());
        live.tasks.insert(id.to_owned(), task);
        drop(live);
        self.came.send_replace(());
    }

    pub(crate) fn remove(&self, id: &str) {
        let mut live = self.lock();
        live.tasks.remove(id);
        live.shims.retain(|_, task| task != id);
    }
}

/// Counts what keeps the node alive: connections, tasks, residents at work. Tells when the count reaches or leaves zero.
#[derive(Clone, Default)]
pub struct Busy(Arc<BusyState>);

#[derive(Default)]
struct BusyState {
    count: Mutex<usize>,
    changed: Notify,
}

impl Busy {
    /// One more reason to stay, until the guard is dropped.
    pub fn enter(&self) -> BusyGuard {
        self.0.change(|count| count + 1);
        BusyGuard(self.0.clone())
    }

    /// Whether there is no reason to stay.
    pub fn is_idle(&self) -> bool {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) == 0
    }

    /// Ends when the count changed since the last call. For one waiter.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

/// One reason to stay.
pub struct BusyGuard(Arc<BusyState>);

impl BusyState {
    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *count;
        *count = change(before);
        if (before == 0) != (*count == 0) {
            self.changed.notify_one();
        }
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.change(|count| count - 1);
    }
}
