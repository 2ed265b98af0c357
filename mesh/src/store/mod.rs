//! The handle of a store: every verb of the mesh, answered by its writer and reader threads.

mod append;
mod copier;
mod disk;
mod entry;
mod job;
mod lanes;
mod ledger;
mod mark;
mod open;
mod options;
mod queue;
mod read;
mod readers;
mod schema;
mod shared;
mod state;
mod trim;
mod tx;
mod writer;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::{MeshError, WriteError};
use crate::event::{Appended, Draft, Event, Posted};
use crate::grant::{GrantRow, Spend};
use crate::limits::{
    BATCH_EVENTS_MAX, PATTERNS_MAX, QUEUE_UNIT_BYTES, QUEUE_UNITS, READ_QUEUE_MAX,
};
use crate::name::{EventId, Topic};
use crate::pattern::Pattern;
use crate::query::{Page, Query, Retention, TopicInfo};
use crate::wake::Watcher;

use self::copier::Copier;
use self::disk::Floor;
use self::entry::Entry;
use self::job::{Job, Reply, Work};
use self::mark::Place;
use self::open::Opened;
use self::readers::Reads;
use self::shared::Shared;
use self::state::State;
use self::writer::{Requests, Writer};

pub use self::options::{Hold, StoreOptions};
pub use self::tx::Tx;

/// One ordered, durable log and everything committed with it. Clones are handles of the same store.
///
/// When the last handle is dropped, what was handed in is still committed and the threads end by themselves;
/// [`Store::close`] waits for that. Dropping the future of a write does not undo the write.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    options: StoreOptions,
    shared: Arc<Shared>,
    requests: Arc<Requests>,
    reads: Arc<Reads>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, epoch, newest) = (&self.inner.options.path, self.epoch(), self.newest());
        f.debug_struct("Store")
            .field("path", path)
            .field("epoch", &epoch)
            .field("newest", &newest)
            .finish()
    }
}

impl Inner {
    fn stop(&self) {
        self.requests.close();
        self.reads.close();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Store {
    /// Opens the store, or makes it. Blocks while the file is read.
    ///
    /// A damaged, foreign or newer file is refused and nothing in it is changed; so is one that another process has
    /// open as its own.
    pub fn open(options: StoreOptions) -> Result<Self, MeshError> {
        let Opened {
            mut conn,
            mark,
            epoch,
            file,
        } = open::open(&options)?;
        let state = State::load(&conn).map_err(|error| error.at(&options.path))?;
        let shared = Arc::new(Shared::new(epoch.into(), state.last));
        let (requests, reads) = (
            Arc::new(Requests::new(QUEUE_UNITS)),
            Arc::new(Reads::new(READ_QUEUE_MAX)),
        );
        let (copier, copying) = Copier::start(&options.path)?;
        copier.listen(&mut conn)?;
        let floor = Floor::new(&options.path, options.free_floor);
        let mut threads = readers::start(&options.path, &reads)?;
        threads.push(copying);
        let writer = Writer {
            options: options.clone(),
            conn,
            state,
            mark,
            place: Place::new(&options.path, file),
            floor,
            copier,
            shared: Arc::clone(&shared),
            requests: Arc::clone(&requests),
            answered: 0,
            has_backlog: false,
            is_broken: false,
        };
        let thread = std::thread::Builder::new()
            .name("weft-writer".to_owned())
            .spawn(move || writer.run());
        threads.push(thread.map_err(|error| MeshError::StoreFailed {
            detail: format!("starting a thread: {error}"),
        })?);
        Ok(Self {
            inner: Arc::new(Inner {
                options,
                shared,
                requests,
                reads,
                threads: Mutex::new(threads),
            }),
        })
    }

    /// The store's epoch: random, without `-`. It changes when the store is made, or is not the one of its mark.
    pub fn epoch(&self) -> &str {
        &self.inner.shared.epoch
    }

    /// The newest sequence committed, 0 before the first event.
    pub fn newest(&self) -> u64 {
        self.inner.shared.newest.load(Ordering::Acquire)
    }

    /// Why the last commit failed; none when it did not.
    pub fn trouble(&self) -> Option<MeshError> {
        self.inner.shared.trouble()
    }

    /// Runs a closure inside the next commit, and answers after that commit.
    ///
    /// What the closure writes is undone when it returns an error or panics; others in the same commit are not
    /// touched. It must be quick and must not wait: everybody's writes stand behind it.
    pub async fn write<T, E, F>(&self, f: F) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let work = Work::guarded(f, Reply::Task(sender), no_ids);
        self.inner.requests.push(Box::new(work), 1).await?;
        receiver
            .await
            .unwrap_or(Err(WriteError::Store(MeshError::StoreClosed)))
    }

    /// [`Store::write`] for threads that may block.
    pub fn write_blocking<T, E, F>(&self, f: F) -> Result<T, WriteError<E>>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let (sender, receiver) = sync_channel(1);
        self.inner.requests.push_blocking(Box::new(Work::guarded(
            f,
            Reply::Thread(sender),
            no_ids,
        )))?;
        receiver
            .recv()
            .unwrap_or(Err(WriteError::Store(MeshError::StoreClosed)))
    }

    /// Runs a closure on a reader thread, with a connection that can only read.
    ///
    /// Each statement sees what was committed when it began. A transaction the closure leaves open is ended.
    pub async fn read<T, F>(&self, f: F) -> Result<T, MeshError>
    where
        F: FnOnce(&Connection) -> Result<T, MeshError> + Send + 'static,
        T: Send + 'static,
    {
        let (read, receiver) = readers::prepare(f);
        self.inner.reads.push(read, 1).await?;
        let result = receiver.await.unwrap_or(Err(MeshError::StoreClosed));
        result.map_err(|error| error.at(&self.inner.options.path))
    }

    /// Appends one event. Answered when it is on stable storage.
    pub async fn publish(&self, draft: Draft) -> Result<Appended, MeshError> {
        let entry = Entry::new(draft)?;
        let units = units_of(entry.bytes);
        let ids = |appended: &Appended| vec![appended.event.id.to_string()];
        self.submit(units, |reply| {
            Work::plain(move |tx: &mut Tx<'_>| tx.append_entry(entry), reply, ids)
        })
        .await
    }

    /// Appends up to 100 events, all or none.
    pub async fn publish_batch(&self, drafts: Vec<Draft>) -> Result<Vec<Appended>, MeshError> {
        if drafts.len() > BATCH_EVENTS_MAX {
            return Err(MeshError::PayloadTooLarge {
                field: "events",
                size: drafts.len(),
                limit: BATCH_EVENTS_MAX,
            });
        }
        let entries = drafts
            .into_iter()
            .map(Entry::new)
            .collect::<Result<Vec<_>, _>>()?;
        let units = entries.iter().map(|entry| units_of(entry.bytes)).sum();
        let ids = |appended: &Vec<Appended>| {
            appended
                .iter()
                .map(|one| one.event.id.to_string())
                .collect()
        };
        let append_all = move |tx: &mut Tx<'_>| {
            entries
                .into_iter()
                .map(|entry| tx.append_entry(entry))
                .collect()
        };
        self.submit(units, |reply| Work::guarded(append_all, reply, ids))
            .await
    }

    /// Appends one event and spends one use of a grant, both or neither. The signature must have been verified.
    ///
    /// The same id with the same content from the same poster again is a duplicate and spends nothing. A grant that
    /// names an event id gives it to a draft that has none.
    pub async fn post(
        &self,
        claims: impl Into<Spend>,
        mut draft: Draft,
    ) -> Result<Posted, MeshError> {
        let claims = claims.into();
        claims.admit(&mut draft, (self.inner.options.now)())?;
        let entry = Entry::new(draft)?;
        let units = units_of(entry.bytes);
        let ids = |posted: &Posted| vec![posted.appended.event.id.to_string()];
        let post = move |tx: &mut Tx<'_>| tx.post_entry(&claims.jti, entry);
        self.submit(units, |reply| Work::plain(post, reply, ids))
            .await
    }

    /// Reads events after a cursor.
    pub async fn read_events(&self, query: Query) -> Result<Page, MeshError> {
        if query.patterns.len() > PATTERNS_MAX {
            return Err(MeshError::PayloadTooLarge {
                field: "topics",
                size: query.patterns.len(),
                limit: PATTERNS_MAX,
            });
        }
        let shared = Arc::clone(&self.inner.shared);
        self.read(move |conn| read::events(conn, &query, &shared.epoch))
            .await
    }

    /// The event with an id, if it is still kept.
    pub async fn find_event(&self, id: EventId) -> Result<Option<Event>, MeshError> {
        self.read(move |conn| read::event(conn, &id)).await
    }

    /// Registers for events whose topics match.
    pub fn watch(&self, patterns: &[Pattern]) -> Watcher {
        self.inner.shared.registry.watch(patterns)
    }

    /// Registers for a key that closures wake with [`Tx::wake`].
    pub fn watch_key(&self, key: &str) -> Watcher {
        self.inner.shared.registry.watch_key(key)
    }

    /// Wakes whoever watches `key`, without a commit: to look at something that is not in the store.
    pub fn wake(&self, key: &str) {
        let nothing = std::iter::empty();
        self.inner.shared.registry.wake(nothing, &[key.to_owned()]);
    }

    /// All topics, by name.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>, MeshError> {
        self.read(read::topics).await
    }

    /// All grants of the ledger, newest first.
    pub async fn grants(&self) -> Result<Vec<GrantRow>, MeshError> {
        self.read(ledger::list).await
    }

    /// Revokes a grant. True if it was there; a second time changes nothing.
    pub async fn revoke(&self, jti: &str) -> Result<bool, MeshError> {
        let jti = jti.to_owned();
        self.write(move |tx| tx.revoke_grant(&jti))
            .await
            .map_err(WriteError::flatten)
    }

    /// Sets the retention of a topic, or with no topic the default; see [`Tx::set_retention`].
    pub async fn set_retention(
        &self,
        topic: Option<Topic>,
        retention: Option<Retention>,
    ) -> Result<(), MeshError> {
        self.write(move |tx| tx.set_retention(topic.as_ref(), retention))
            .await
            .map_err(WriteError::flatten)
    }

    /// Closes the store: what was handed in is committed, then the threads end. Blocks until then.
    pub fn close(&self) {
        self.inner.stop();
        let threads = std::mem::take(
            &mut *self
                .inner
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended by a panic");
            }
        }
    }

    async fn submit<T, J>(
        &self,
        units: u32,
        work: impl FnOnce(Reply<Result<T, WriteError<MeshError>>>) -> J,
    ) -> Result<T, MeshError>
    where
        J: Job + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.inner
            .requests
            .push(Box::new(work(Reply::Task(sender))), units)
            .await?;
        match receiver.await {
            Ok(answer) => answer.map_err(WriteError::flatten),
            Err(_) => Err(MeshError::StoreClosed),
        }
    }
}

/// What a request of this many bytes takes of the queue's room.
fn units_of(bytes: usize) -> u32 {
    1 + (bytes / QUEUE_UNIT_BYTES) as u32
}

fn no_ids<T>(_: &T) -> Vec<String> {
    Vec::new()
}
