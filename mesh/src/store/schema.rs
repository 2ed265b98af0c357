//! The tables of the mesh and the format of the file.

/// Marks the file as a store of weft: "weft" in ASCII.
pub(super) const APPLICATION_ID: i64 = 0x7765_6674;

/// The format written here. A file of a higher one is refused.
pub(super) const FORMAT: i64 = 1;

/// `log` is one row: the epoch, the counter of sequences and the number of the commit. A plain row id would start
/// anew when retention empties the table; the commit's number tells, after an error, whether that commit is there.
///
/// `events_topic` ends in the row id, which is the sequence, as every index does: it serves reads of one topic in order.
///
/// `past_ids` remembers the ids of events that retention took away, in the same transaction. `nth` counts the events of
/// a topic, so that a reader can be told how many he missed.
pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS log (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch TEXT NOT NULL,
    last INTEGER NOT NULL,
    commits INTEGER NOT NULL,
    retention TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS topics (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    kept INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    first INTEGER NOT NULL DEFAULT 0,
    first_at INTEGER NOT NULL DEFAULT 0,
    last INTEGER NOT NULL DEFAULT 0,
    trimmed_to INTEGER NOT NULL DEFAULT 0,
    appended INTEGER NOT NULL DEFAULT 0,
    retention TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS events (
    sequence INTEGER PRIMARY KEY,
    topic INTEGER NOT NULL,
    nth INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    poster TEXT NOT NULL,
    recipient TEXT,
    text TEXT,
    data TEXT,
    created_at INTEGER NOT NULL,
    external INTEGER NOT NULL,
    untrusted INTEGER NOT NULL,
    grant_id TEXT,
    due_at INTEGER,
    schedule_key TEXT,
    bytes INTEGER NOT NULL,
    digest BLOB NOT NULL,
    keep_until INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS events_topic ON events (topic);
CREATE UNIQUE INDEX IF NOT EXISTS events_id ON events (id);
CREATE TABLE IF NOT EXISTS past_ids (
    topic INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    nth INTEGER NOT NULL,
    id TEXT NOT NULL,
    poster TEXT NOT NULL,
    digest BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    keep_until INTEGER NOT NULL,
    PRIMARY KEY (topic, sequence)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS past_ids_id ON past_ids (id);
CREATE INDEX IF NOT EXISTS past_ids_keep ON past_ids (keep_until);
CREATE TABLE IF NOT EXISTS grants (
    jti TEXT PRIMARY KEY,
    topic TEXT NOT NULL,
    kind TEXT,
    eid TEXT,
    uses INTEGER NOT NULL,
    used INTEGER NOT NULL DEFAULT 0,
    exp INTEGER NOT NULL,
    description TEXT,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    last_used_at INTEGER,
    minted_by TEXT NOT NULL,
    epoch TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS grants_exp ON grants (exp);
";
