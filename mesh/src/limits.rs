//! Every number of this crate, each with its reason.

/// Longest topic and longest pattern, in characters: fits a header line and an index key.
pub const TOPIC_CHARS_MAX: usize = 128;
/// Longest kind of an event, in characters.
pub const KIND_CHARS_MAX: usize = 64;
/// Longest event id, in characters. Made ids have 36; the rest is room for the ids of other systems.
pub const EVENT_ID_CHARS_MAX: usize = 128;
/// Longest `from` and longest `to` of an event, in bytes: a kind of poster and a name of at most 64 characters fit thrice.
pub const PARTY_BYTES_MAX: usize = 256;
/// Largest event, in bytes of `to`, `text`, `data` and the schedule's key together.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;
/// Arrays and objects within one another in an event's data. Common JSON readers take 127, with what stands around an event.
pub const DATA_DEPTH_MAX: usize = 100;
/// Largest `text` and `data` of a post made with a grant, in bytes together.
pub const GRANT_POST_BYTES_MAX: usize = 64 * 1024;
/// Most events of one all-or-nothing publish.
pub const BATCH_EVENTS_MAX: usize = 100;
/// Most topics of one store: the writer keeps their names and counts in memory, about 300 bytes each.
pub const TOPICS_MAX: usize = 100_000;

/// Most events of one read.
pub const READ_EVENTS_MAX: usize = 1000;
/// Events of one read when the caller names no limit.
pub const READ_EVENTS_DEFAULT: usize = 100;
/// Most bytes of one read when the caller names no bound. One event is always returned, however large.
pub const READ_BYTES_DEFAULT: usize = 1024 * 1024;
/// Most events one read looks at when kinds filter them, so that a rare kind holds no reader thread for long.
pub const READ_LOOKED_AT_MAX: usize = 10_000;
/// Most patterns of one read or watch.
pub const PATTERNS_MAX: usize = 64;

/// Shortest time an id record stays after its event was made, in milliseconds: a retry that comes later is a new post.
pub const ID_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// How long the ledger keeps a grant after its time is over, in milliseconds: long enough to see what it did.
pub const GRANT_KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// Longest time a reader's hold keeps events that retention would drop, in milliseconds.
pub const HOLD_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;
/// Allowance for clocks that differ when a grant's times are checked, in seconds; the same as when its token is verified.
pub const LEEWAY_SECS: u64 = 30;

/// Retention of a topic that has none of its own: age in milliseconds.
pub const RETENTION_AGE_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// Retention of a topic that has none of its own: events.
pub const RETENTION_COUNT: u64 = 10_000_000;
/// Retention of a topic that has none of its own: bytes of events.
pub const RETENTION_BYTES: u64 = 512 * 1024 * 1024;
/// Most rows that retention deletes in one commit, so that no publish waits long for it.
pub const TRIM_ROWS_MAX: usize = 500;
/// Topics that are looked at in one commit beside those it touched: what is over by a new bound takes its turn.
pub const TRIM_TOPICS_LOOKED_AT: usize = 8;
/// Milliseconds between two looks for events that are too old, at least: an event may stay so much longer than its age.
pub const AGE_PAUSE_MS: u64 = 1_000;
/// Milliseconds until the next such look where nothing could go.
pub const AGE_HELD_MS: u64 = 60_000;
/// Free pages above which a maintenance commit gives some back to the file system, and how many it gives at a time.
pub const VACUUM_PAGES_ABOVE: u64 = 4096;
/// Pages given back in one maintenance commit: 1 MiB.
pub const VACUUM_PAGES_STEP: u64 = 256;

/// Memory that requests waiting for the writer may hold, in units of [`QUEUE_UNIT_BYTES`]: 64 MiB.
pub const QUEUE_UNITS: usize = 16 * 1024;
/// What one unit of the writer's queue stands for, in bytes. Each request takes one and one more for each full unit.
pub const QUEUE_UNIT_BYTES: usize = 4096;
/// Most requests in one commit: about 10 ms of work, so that nobody waits long for his neighbours.
pub const COMMIT_REQUESTS_MAX: usize = 1024;
/// Most bytes of events in one commit.
pub const COMMIT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long the writer waits for those it has just answered to ask again, in microseconds: a part of a flush.
pub const GATHER_US: u64 = 100;
/// Threads that read. Two are enough for the machines weft runs on, and bound the memory of page caches.
pub const READER_THREADS: usize = 2;
/// Reads that may wait for a reader thread before callers wait themselves.
pub const READ_QUEUE_MAX: usize = 1024;

/// Pages in the write-ahead log at which copying them into the store begins on its own thread: 32 MiB. Hot pages are
/// copied once a round, so fewer rounds are less work and fewer publishes that feel one; a start after a crash reads
/// as much.
pub const WAL_PAGES_COPY: u32 = 8192;
/// Pages in the write-ahead log at which the writer copies it between two commits without the thread, should that have
/// failed: 128 MiB.
pub const WAL_PAGES_FINISH: u32 = 32_768;

/// How long a commit waits for another process that holds the store's write lock, in milliseconds, before its requests are refused.
pub const BUSY_PATIENCE_MS: u64 = 10_000;
/// Largest default floor of free disk space, in bytes; on small file systems it is [`FREE_FLOOR_PERCENT`] of them.
pub const FREE_FLOOR_BYTES: u64 = 1024 * 1024 * 1024;
/// Share of a small file system that stays free by default, in percent.
pub const FREE_FLOOR_PERCENT: u64 = 2;
/// How long a look at the free space is believed, in milliseconds. Much less than the floor can be written meanwhile.
pub const FREE_LOOK_MS: u64 = 250;
/// Stores up to this size are checked page by page when they are opened, in bytes; it takes some milliseconds.
pub const CHECK_BYTES_MAX: u64 = 8 * 1024 * 1024;

const _: () = assert!(GRANT_POST_BYTES_MAX <= EVENT_BYTES_MAX);
// A grant is known for as long as its token could be taken.
const _: () = assert!(GRANT_KEPT_MS > LEEWAY_SECS * 1000);
const _: () = assert!(WAL_PAGES_COPY < WAL_PAGES_FINISH);
const _: () = assert!(EVENT_BYTES_MAX / QUEUE_UNIT_BYTES < QUEUE_UNITS);
const _: () = assert!(READ_EVENTS_DEFAULT <= READ_EVENTS_MAX);
