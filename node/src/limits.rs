//! Every size, count and time of the command line, each with its reason. Nothing else here holds a bare number.

/// The bytes of one answer read into memory. A page of 1000 events of 256 KiB would be more, but the node
/// bounds its pages far below; what is larger than this is no answer of a node.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Bytes of one line of an event stream. An event is at most 256 KiB, and JSON may escape each byte in six.
pub(crate) const SSE_LINE_BYTES_MAX: usize = 4 << 20;

/// The longest path that fits a Unix socket's address together with its final NUL.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// `format.json` holds two short fields; a larger file is none of ours.
pub(crate) const FORMAT_BYTES_MAX: u64 = 4096;

/// `config.toml` is written by hand.
pub(crate) const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Input documents given as a file or on stdin: the largest event with room for its JSON.
pub(crate) const INPUT_BYTES_MAX: u64 = 4 << 20;

/// A token is well below this; a larger file is not one.
pub(crate) const TOKEN_BYTES_MAX: u64 = 16 << 10;

/// Bytes of randomness in ids that nobody may guess.
pub(crate) const ID_BYTES: usize = 16;

/// Ids of homes: `h-` and the hexadecimal form of [`ID_BYTES`], with room for other builds' forms.
pub(crate) const HOME_ID_CHARS_MAX: usize = 64;

/// Names of owner sessions.
pub(crate) const NAME_CHARS_MAX: usize = 64;

/// Milliseconds a node elsewhere has to take a connection and to prove its name.
pub(crate) const REMOTE_CONNECT_MS: u64 = 15_000;
/// Milliseconds a node elsewhere has for its answer to a post, which takes it a few.
pub(crate) const REMOTE_ANSWER_MS: u64 = 60_000;

/// How often a post to an address is sent: once more after a cut, since a second cut is no accident of a restart.
pub(crate) const SENDS_MAX: u32 = 2;

/// Cuts in a row after which a call is given up: a node that is killed and started again cuts one each time, and one that
/// ends because of the call would do so for ever.
pub(crate) const CUTS_MAX: u32 = 10;

/// A cut this long after the request is no longer in a row with the one before.
pub(crate) const CUT_SOON_MS: u64 = 5_000;

/// How long a cut waits for the end of the process that it came from. A killed one is gone within milliseconds; one that
/// lives on has broken this connection alone.
pub(crate) const NODE_GONE_MS: u64 = 1_000;

/// The silence of a node, beyond what it may take for the call, after which a person is told: a thousand times what an
/// answer takes.
pub(crate) const SILENT_MS: u64 = 10_000;

/// What a stop may take beside its grace.
pub(crate) const NODE_STOP_MS: u64 = 5_000;

/// What a wait may take where the call does not say: the longest of the node's own defaults.
pub(crate) const WAIT_MS_UNSAID: u64 = 30_000;

/// The longest a single `tasks.wait` may take; the command line asks again.
pub(crate) const WAIT_MS_MAX: u64 = 300_000;

/// Bytes of one `tasks.read`.
pub(crate) const READ_BYTES_MAX: u64 = 65_536;

/// Copied at once from a task's file to our own output: larger reads gain nothing, smaller ones cost calls.
pub(crate) const COPY_BYTES: usize = 1 << 20;

/// Durations on the command line. Nothing in weft lasts longer than a schedule, 366 days.
pub(crate) const DURATION_MS_MAX: u64 = 366 * 24 * 3600 * 1000;

/// Where `weft up` listens unless told otherwise.
pub(crate) const UP_ADDRESS: &str = "127.0.0.1:7411";

/// Events asked for at once where a list is read to its end.
pub(crate) const PAGE_EVENTS: u64 = 1000;

/// Terminal escapes that carry strings (titles, links, the clipboard) are swallowed up to this many characters;
/// beyond, the escape was never closed and what follows is text again.
pub(crate) const ESCAPE_CHARS_MAX: usize = 4096;

/// Bytes of one line held back until it ends, so that output without line ends takes no memory without end.
pub(crate) const LINE_BYTES_MAX: usize = 256 << 10;

/// Characters of a label before the lines of `weft logs`: enough to tell tasks apart and still leave room for the line.
pub(crate) const LOG_NAME_CHARS_MAX: usize = 20;

/// Characters of an id there, where they suffice to tell it from the others.
pub(crate) const SHORT_ID_CHARS: usize = 8;

/// A node that is ending holds its lock until its last answer is sent; a new one waits this long for it.
pub(crate) const LOCK_WAIT_MS: u64 = 15_000;

/// The widest command or label in a table. Beyond, a line wraps and nothing lines up.
pub(crate) const CELL_CHARS_MAX: usize = 60;

/// How long a node that ends waits for its doors. They bound themselves a little below this.
pub(crate) const DRAIN_MS: u64 = 5_000;

/// A foreground call through HTTP goes to the background after two minutes: longer than most builds, shorter than
/// the patience of most clients.
pub(crate) const HANG_MS_DEFAULT: u64 = 120_000;

/// A node with nothing to do ends after ten minutes: long enough for a person who thinks between two commands.
pub(crate) const IDLE_MS_DEFAULT: u64 = 600_000;

/// Parts of what is typed that wait for a task to take them; each is what one read gave, at most 64 KiB.
pub(crate) const TYPED_PARTS_MAX: usize = 16;

/// Output by which a terminal may lag behind a task before it is shown the screen instead of every byte.
pub(crate) const BEHIND_BYTES_MAX: u64 = 256 << 10;

/// The pause between two such pictures while it lags behind.
pub(crate) const REDRAW_MS: u64 = 100;

/// Silence after which a person who types again is the last active one, whose size a task's terminal gets.
pub(crate) const ACTIVE_AGAIN_MS: u64 = 1_000;

/// How long a terminal that takes nothing may hold up the end of an attachment.
pub(crate) const LEAVE_MS: u64 = 300;

/// Milliseconds a started node has to open its doors. A damaged or very large store takes some seconds on a slow disk.
pub(crate) const START_MS: u64 = 60_000;
