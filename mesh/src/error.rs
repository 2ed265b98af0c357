//! Why the mesh refuses, one variant a reason.

use std::path::{Path, PathBuf};

/// A refusal or failure of the mesh. Each message says what to do.
///
/// Clones share nothing: one failed commit answers many requests with the same reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A topic breaks a rule of names.
    #[error("topic {topic:?} is not valid: {rule}")]
    TopicInvalid {
        /// What was given, cut short when long.
        topic: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A topic begins with the token `weft`, which is weft's own.
    #[error(
        "topic {topic:?} is reserved: topics whose first token is `weft` are written by weft alone; choose another name"
    )]
    TopicReserved {
        /// The topic.
        topic: String,
    },
    /// A pattern breaks a rule of names.
    #[error("topic pattern {pattern:?} is not valid: {rule}")]
    PatternInvalid {
        /// What was given, cut short when long.
        pattern: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A kind breaks a rule of names.
    #[error("kind {kind:?} is not valid: {rule}")]
    KindInvalid {
        /// What was given, cut short when long.
        kind: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// An event id breaks a rule of names.
    #[error("event id {id:?} is not valid: {rule}")]
    IdInvalid {
        /// What was given, cut short when long.
        id: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// An event id is one that only weft may choose, or not the one a grant names.
    #[error(
        "event id {id:?} is reserved: ids with `:` are made by weft, and a grant that names an id posts that one alone; leave `id` out or choose another"
    )]
    IdReserved {
        /// The id.
        id: String,
    },
    /// The id belongs to an event of another poster or with other content.
    #[error("event id {id:?} is already taken by another event; choose another id")]
    IdConflict {
        /// The id.
        id: String,
    },
    /// A field is larger than its limit.
    #[error(
        "{field} has {size} {}, more than the limit of {limit}; send less, or send a reference",
        unit_of(field)
    )]
    PayloadTooLarge {
        /// The field.
        field: &'static str,
        /// Its size in the field's unit (bytes, or events of a batch).
        size: usize,
        /// The limit in the same unit.
        limit: usize,
    },
    /// A field has a value that cannot be stored.
    #[error("{field} is not valid: {reason}")]
    PayloadInvalid {
        /// The field.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The store holds as many topics as it may.
    #[error(
        "topic {topic:?} would be one more than the {limit} topics a store holds; use an existing topic"
    )]
    TopicLimit {
        /// The topic that was not made.
        topic: String,
        /// The limit.
        limit: usize,
    },
    /// The grant's time is over.
    #[error("the grant expired; ask for a new one")]
    GrantExpired,
    /// The grant's time has not come.
    #[error("the grant is not valid yet; check this machine's clock or post later")]
    GrantEarly,
    /// The grant was revoked, or is one of another store.
    #[error("the grant was revoked, or belongs to a store that was replaced; ask for a new one")]
    GrantRevoked,
    /// All uses of the grant are spent.
    #[error("all {uses} uses of the grant are spent; ask for a new one")]
    GrantSpent {
        /// How many it had.
        uses: u32,
    },
    /// The grant is for another topic.
    #[error(
        "the grant is for topic {granted:?}, not for this one; post there or ask for another grant"
    )]
    GrantTopic {
        /// The topic it is for.
        granted: String,
    },
    /// The grant is for another kind.
    #[error(
        "the grant is for events of kind {granted:?}, not for this one; post that kind or ask for another grant"
    )]
    GrantKind {
        /// The kind it is for.
        granted: String,
    },
    /// The disk is nearly full.
    #[error(
        "no space: {free} bytes are free where the store lies and {floor} stay free; nothing was stored, free some space and try again"
    )]
    NoSpace {
        /// Bytes free now; 0 when the write itself met the end of the disk.
        free: u64,
        /// Bytes that must stay free.
        floor: u64,
    },
    /// Another process holds the store's write lock.
    #[error(
        "the store is held by another process for more than {waited_ms} ms; nothing was stored, try again when that process is done"
    )]
    StoreBusy {
        /// How long the writer waited.
        waited_ms: u64,
    },
    /// Another process has the store open as its own.
    #[error("the store {} is open in another process; stop that one first", path.display())]
    StoreLocked {
        /// The mark whose lock is taken.
        path: PathBuf,
    },
    /// It could not be found out whether the write was stored.
    #[error(
        "it is not known whether this was stored ({detail}); look for the event ids {ids:?} before trying again"
    )]
    OutcomeUnknown {
        /// What failed.
        detail: String,
        /// Ids of the events that may or may not be there.
        ids: Vec<String>,
    },
    /// The store's file is damaged. Nothing was changed in it.
    #[error("the store {} is damaged ({detail}); nothing was changed, put a good copy in its place or move it away", path.display())]
    StoreCorrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The store was written by a newer weft. Nothing was changed in it.
    #[error("the store {} has format {found}, this weft knows {known}; nothing was changed, use a newer weft", path.display())]
    StoreNewer {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The file is a database of something else. Nothing was changed in it.
    #[error("{} is a database, but not a store of weft; nothing was changed, choose another path", path.display())]
    StoreForeign {
        /// The file.
        path: PathBuf,
    },
    /// The store's file or its log was removed, replaced or cut while it was open.
    #[error("the store {} was removed, replaced or cut while it was in use; nothing was stored, put it back or start the node again", path.display())]
    StoreGone {
        /// Where the file was.
        path: PathBuf,
    },
    /// The cursor is of another epoch.
    #[error(
        "the cursor is of another epoch, or past the newest event; the store's epoch is {epoch} and its oldest event {oldest}: read again from there"
    )]
    Resync {
        /// The epoch of the store.
        epoch: String,
        /// Sequence of the oldest event kept, 0 when there is none.
        oldest: u64,
    },
    /// The store is closed or closing.
    #[error("the store is closed; connect again when the node is back")]
    StoreClosed,
    /// A write or read failed for a reason of the system.
    #[error("the store failed: {detail}")]
    StoreFailed {
        /// What SQLite or the system said.
        detail: String,
    },
    /// The code that was handed to the store panicked; what it wrote is undone.
    #[error(
        "an internal error undid this request ({detail}); this is a bug of weft, please report it"
    )]
    Panicked {
        /// The panic's message.
        detail: String,
    },
}

/// What a field is counted in.
fn unit_of(field: &str) -> &'static str {
    if field == "events" { "events" } else { "bytes" }
}

impl MeshError {
    /// The stable name of the reason, as it stands in problem documents.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::TopicInvalid { .. } => "topic-invalid",
            Self::TopicReserved { .. } => "topic-reserved",
            Self::PatternInvalid { .. } => "pattern-invalid",
            Self::KindInvalid { .. } => "kind-invalid",
            Self::IdInvalid { .. } => "id-invalid",
            Self::IdReserved { .. } => "id-reserved",
            Self::IdConflict { .. } => "id-conflict",
            Self::PayloadTooLarge { .. } => "payload-too-large",
            Self::PayloadInvalid { .. } => "payload-invalid",
            Self::TopicLimit { .. } => "topic-limit",
            Self::GrantExpired => "grant-expired",
            Self::GrantEarly => "grant-early",
            Self::GrantRevoked => "grant-revoked",
            Self::GrantSpent { .. } => "grant-spent",
            Self::GrantTopic { .. } => "grant-topic",
            Self::GrantKind { .. } => "grant-kind",
            Self::NoSpace { .. } => "no-space",
            Self::StoreBusy { .. } => "store-busy",
            Self::StoreLocked { .. } => "store-locked",
            Self::OutcomeUnknown { .. } => "outcome-unknown",
            Self::StoreCorrupt { .. } => "store-corrupt",
            Self::StoreNewer { .. } => "store-newer",
            Self::StoreForeign { .. } => "store-foreign",
            Self::StoreGone { .. } => "store-gone",
            Self::Resync { .. } => "resync",
            Self::StoreClosed => "store-closed",
            Self::StoreFailed { .. } => "store-failed",
            Self::Panicked { .. } => "internal",
        }
    }

    /// Whether the same request may succeed later without being changed.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::NoSpace { .. }
                | Self::StoreBusy { .. }
                | Self::StoreClosed
                | Self::StoreFailed { .. }
        )
    }

    /// Names the file that SQLite found damaged, which its own errors do not.
    pub(crate) fn at(self, file: &Path) -> Self {
        match self {
            Self::StoreCorrupt { path, detail } if path.as_os_str().is_empty() => {
                Self::StoreCorrupt {
                    path: file.to_owned(),
                    detail,
                }
            }
            other => other,
        }
    }

    /// The failure of a system call on a file of the store.
    pub(crate) fn io(what: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::StoreFailed {
            detail: format!("{what} {}: {error}", path.display()),
        }
    }
}

impl From<rusqlite::Error> for MeshError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::NoSpace { free: 0, floor: 0 },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::StoreBusy { waited_ms: 0 }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::StoreCorrupt {
                path: PathBuf::new(),
                detail: error.to_string(),
            },
            _ => Self::StoreFailed {
                detail: error.to_string(),
            },
        }
    }
}

/// Why a [`crate::Store::write`] changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError<E> {
    /// The closure refused; what it wrote is undone, its neighbours in the commit are not touched.
    #[error(transparent)]
    Refused(E),
    /// The store could not commit, see [`MeshError::OutcomeUnknown`] for the one case that leaves a doubt.
    #[error(transparent)]
    Store(#[from] MeshError),
}

impl WriteError<MeshError> {
    /// Both reasons as one, for closures that refuse with a [`MeshError`].
    pub fn flatten(self) -> MeshError {
        match self {
            Self::Refused(error) | Self::Store(error) => error,
        }
    }
}
