//! Every size, count and time of this crate, each with its reason. Nothing else holds a bare number.

use std::ops::RangeInclusive;

// ---- names, answers and waits -------------------------------------------------------------------------------------------

/// Characters of a session, resident or subscription name.
pub const NAME_CHARS_MAX: usize = 64;
/// Characters of a label: a line of a list, not a document.
pub const LABEL_CHARS_MAX: usize = 200;
/// Characters of a task key or request id.
pub const KEY_CHARS_MAX: usize = 200;
/// Milliseconds `tasks.wait` waits unless told.
pub const WAIT_MS_DEFAULT: u64 = 30_000;
/// Milliseconds any wait may last: callers renew, so that a dead one costs at most this.
pub const WAIT_MS_MAX: u64 = 300_000;
/// Milliseconds `tasks.watch` waits unless told.
pub const WATCH_MS_DEFAULT: u64 = 5_000;
/// Characters of a watched literal.
pub const MATCH_CHARS_MAX: usize = 256;
/// Lines a watch answers at once.
pub const WATCH_LINES_MAX: usize = 64;
/// Characters of a line that are kept and shown.
pub const LINE_CHARS_MAX: usize = 2048;
/// Bytes from the end within which the last lines are looked for.
pub const TAIL_LINES_REACH: u64 = 16 * 1024 * 1024;
/// Bytes of the tail that `get` and `wait` show.
pub const TAIL_BYTES: usize = 8 * 1024;
/// Bytes of a stream in the answer of a foreground run, unless told.
pub const OUTPUT_BYTES_DEFAULT: usize = 32 * 1024;
/// Bytes of a stream in the answer of a foreground run at most.
pub const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes one `tasks.read` answers at most.
pub const READ_BYTES_MAX: usize = 64 * 1024;
/// Characters of a delivery's summary.
pub const SUMMARY_CHARS_MAX: usize = 1500;
/// Candidates named when an id prefix is ambiguous.
pub const CANDIDATES_MAX: usize = 8;
/// Records one list answers.
pub const LIST_MAX: usize = 1000;

// ---- tasks --------------------------------------------------------------------------------------------------------------

/// Milliseconds of a deadline: a second to a year. Longer than a year is a mistake in units.
pub const TIMEOUT_MS_MIN: u64 = 1;
/// See [`TIMEOUT_MS_MIN`].
pub const TIMEOUT_MS_MAX: u64 = 366 * 24 * 3600 * 1000;
/// Milliseconds from SIGTERM to the next round of a stop, unless told.
pub const GRACE_MS_DEFAULT: u64 = 500;
/// Milliseconds of grace at most: a stop has to end.
pub const GRACE_MS_MAX: u64 = 3_600_000;
/// Bytes kept of each stream, unless told.
pub const KEEP_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// The least that can be kept: one block below which nothing can be punched.
pub const KEEP_BYTES_MIN: u64 = 4096;
/// The least that is kept of a stream while somebody takes it on as it comes: twice the room that is left for a pipe's content.
pub const KEEP_BYTES_TAKEN_ON_MIN: u64 = 2 * shim::CONSUMER_ROOM_BYTES;
/// The most that can be kept of one stream.
pub const KEEP_BYTES_MAX: u64 = 1024 * 1024 * 1024 * 1024;
/// Milliseconds after which a foreground call through HTTP moves its task to the background.
pub const HANG_MS_DEFAULT: u64 = 120_000;
/// Bytes of one argument or environment variable that the kernel takes (MAX_ARG_STRLEN less the NUL).
pub const ARG_BYTES_MAX: usize = 131_071;
/// Columns of a terminal. A screen is kept in memory, cell by cell.
pub const TERMINAL_COLS: RangeInclusive<u16> = 1..=1000;
/// Rows of a terminal.
pub const TERMINAL_ROWS: RangeInclusive<u16> = 1..=500;
/// Columns and rows of a terminal whose caller has none.
pub const TERMINAL_SIZE_DEFAULT: (u16, u16) = (120, 40);
/// Characters of a window's title that are shown.
pub const TITLE_CHARS_MAX: usize = 200;
/// Screens that a node keeps in memory.
pub const SCREENS_MAX: usize = 64;
/// Cells of all of them, at most 64 bytes each: 64 MiB.
pub const SCREEN_CELLS_MAX: usize = 1024 * 1024;
/// Bytes that one write to a task's input takes: what fits one request to its shim.
pub const INPUT_WRITE_BYTES_MAX: usize = 64 * 1024;
/// Tasks whose end is looked for together at a node's start.
pub const SETTLE_AT_ONCE: usize = 64;
/// Folders taken into a new store with one commit.
pub const INTAKE_BATCH: usize = 100;
/// Finished tasks forgotten with one commit.
pub const SWEEP_BATCH: usize = 100;
/// Milliseconds from an end to the look whether something is to be forgotten, so that many ends share one look.
pub const SWEEP_PAUSE_MS: u64 = 10_000;
/// Milliseconds a stop waits, after the tree is gone, for the end to be announced.
pub const STOP_ANSWER_MS: u64 = 10_000;
/// Milliseconds a shim has to say how long its streams are; one that is stopped says nothing.
pub const SHIM_ANSWER_MS: u64 = 1_000;
/// Random characters of a task's id, five bits each: not to be guessed.
pub const TASK_ID_CHARS: usize = 20;
/// Random characters of an incarnation.
pub const INCARNATION_CHARS: usize = 8;
/// Milliseconds after which a shim that says nothing is taken for frozen and let go on. A start takes a few.
pub const FROZEN_MS: u64 = 2_000;
/// Milliseconds it then has.
pub const MUTE_MS: u64 = 20_000;
/// Requests that may wait for one shim's connection before askers wait.
pub const CONTROL_QUEUE: usize = 64;
/// Bytes of a shim's first word at most.
pub const ANSWER_BYTES_MAX: u64 = 1024 * 1024;
/// Milliseconds a completion grant is valid. A task may run longer: then the node announces its end without it.
pub const COMPLETION_TTL_MS: u64 = 7 * 24 * 3600 * 1000;
/// Milliseconds after an end from which a record shows it though it could not be announced, for want of space say. Much longer
/// than an announcement takes.
pub const ANNOUNCE_OVERDUE_MS: u64 = 3_000;
/// Milliseconds the first retry of an announcement waits; doubles up to the next.
pub const ANNOUNCE_PAUSE_MS: u64 = 1_000;
/// The longest pause between two tries to announce an end.
pub const ANNOUNCE_PAUSE_MAX_MS: u64 = 60_000;
/// Milliseconds for which a start that a node's death cut off waits to be asked for again: a client that was cut off comes back
/// as soon as there is a node, which takes a second on a slow machine.
pub const UNBEGUN_MS: u64 = 10_000;
/// Milliseconds a request id is remembered.
pub const REQUEST_KEPT_MS: u64 = 24 * 3600 * 1000;
/// Finished tasks kept for one owner.
pub const FINISHED_KEPT: usize = 256;
/// Milliseconds a finished task is kept.
pub const FINISHED_KEPT_MS: u64 = 24 * 3600 * 1000;
/// Milliseconds an unacknowledged delivery, and the task it tells of, is kept.
pub const UNREAD_KEPT_MS: u64 = 7 * 24 * 3600 * 1000;

// ---- inbox --------------------------------------------------------------------------------------------------------------

/// Items one `inbox.read` answers.
pub const INBOX_BATCH: usize = 8;
/// Milliseconds within which deliveries are told together.
pub const INBOX_COALESCE_MS: u64 = 40;

// ---- retention ----------------------------------------------------------------------------------------------------------

/// Milliseconds that a retention may keep events: a second to a year and a day.
pub const RETAIN_AGE_MS: RangeInclusive<u64> = 1_000..=366 * 24 * 3600 * 1000;
/// Events that a retention may keep; the store's numbers are signed.
pub const RETAIN_COUNT: RangeInclusive<u64> = 1..=i64::MAX as u64;
/// Bytes of events that a retention may keep.
pub const RETAIN_BYTES: RangeInclusive<u64> = 1..=i64::MAX as u64;

// ---- residents ----------------------------------------------------------------------------------------------------------

/// Retries after the first attempt, unless told.
pub const RETRIES_DEFAULT: u32 = 5;
/// Retries at most.
pub const RETRIES_MAX: u32 = 100;
/// Milliseconds before the first retry; doubles, with jitter, up to the next.
pub const RETRY_PAUSE_MS: u64 = 1_000;
/// The longest pause before a retry.
pub const RETRY_PAUSE_MAX_MS: u64 = 300_000;
/// Patterns one resident may subscribe to.
pub const RESIDENT_TOPICS_MAX: usize = 32;
/// Entries of a resident's log that are kept.
pub const RESIDENT_LOG_KEPT: u64 = 1_000;
/// Milliseconds an enabled resident's unhandled events are kept from retention.
pub const RESIDENT_HOLD_MS: u64 = 7 * 24 * 3600 * 1000;
/// Entries one `residents.log` answers.
pub const RESIDENT_LOG_PAGE: usize = 200;

// ---- supervision --------------------------------------------------------------------------------------------------------

/// Failures of one child within the window that are answered with a restart.
pub const RESTART_BURST: usize = 5;
/// The window, milliseconds.
pub const RESTART_WINDOW_MS: u64 = 60_000;
/// The pause before the second restart within a window; doubles up to the next.
pub const RESTART_PAUSE_MS: u64 = 100;
/// The longest pause before a restart.
pub const RESTART_PAUSE_MAX_MS: u64 = 5_000;
/// Messages an actor's mailbox holds before callers wait.
pub const MAILBOX: usize = 256;

// ---- the shim -----------------------------------------------------------------------------------------------------------

/// The shim, one task's supervisor, and the files it writes.
pub mod shim {
    /// Bytes of the launch document: the kernel takes at most 6 MiB of words and environment (a quarter
    /// of the stack limit, three quarters of 8 MiB at most), each byte at most six in JSON.
    pub const LAUNCH_BYTES_MAX: u64 = 64 * 1024 * 1024;
    /// Bytes of a small record that is read whole.
    pub const RECORD_BYTES_MAX: u64 = 1024 * 1024;
    /// Bytes taken on disk for the receipt before the command starts. Survivors fill the most of it.
    pub const RECEIPT_ROOM_BYTES: u64 = 8 * 1024;
    /// Bytes taken on disk for the file `started`.
    pub const STARTED_ROOM_BYTES: u64 = 512;
    /// Survivors that a receipt names; more are left out, so that the receipt fits its room.
    pub const SURVIVORS_NAMED_MAX: usize = 256;
    /// Characters of a stop's reason, for the same room.
    pub const REASON_CHARS_MAX: usize = 200;
    /// Bytes of `events.jsonl`; only sizes of the terminal and the end are written beyond them.
    pub const EVENTS_BYTES_MAX: u64 = 64 * 1024;
    /// Bytes of `events.jsonl` beyond which a terminal is no longer resized: some ten thousand sizes.
    pub const EVENTS_SIZES_BYTES_MAX: u64 = 1024 * 1024;
    /// Milliseconds from one line on input to the next.
    pub const INPUT_NOTE_MS: u64 = 1_000;
    /// Requests that are known again when they are repeated: more than all connections can have sent and not heard of.
    pub const MARKS_KEPT: usize = 64;
    /// Characters of each half of such a request's mark.
    pub const MARK_CHARS_MAX: usize = 64;

    /// Bytes of the first read buffer: most tasks say little.
    pub const READ_BYTES_FIRST: usize = 8 * 1024;
    /// The sizes a pipe and the buffer go through when a read filled them. 64 KiB is what a pipe has by
    /// itself; beyond a mebibyte an unprivileged user gets nothing.
    pub const PIPE_BYTES_STEPS: [usize; 3] = [64 * 1024, 256 * 1024, 1024 * 1024];
    /// Milliseconds without a full read after which a grown pipe and its buffer are given back: a user's
    /// budget for pipes is small, and used up it leaves all his programs 8 KiB pipes.
    pub const PIPE_QUIET_MS: u64 = 1_000;
    /// Milliseconds in which nothing happens before a shim gives memory back: more than a short task lasts.
    pub const IDLE_MS: i64 = 100;
    /// The part of the kept window by which it may be exceeded before old bytes are punched out, as a
    /// Bytes of the kept window that stay free while a command waits for who takes its output on: more than a pipe of
    /// the largest size and one read hold, which may still come when it ends.
    pub const CONSUMER_ROOM_BYTES: u64 = 4 * 1024 * 1024;
    /// divisor: punching is cheap by the mebibyte and dear by the line.
    pub const KEEP_SLACK_PART: u64 = 8;
    /// The most by which the kept window is exceeded.
    pub const KEEP_SLACK_BYTES_MAX: u64 = 8 * 1024 * 1024;
    /// Bytes of a block, the unit in which file systems punch.
    pub const BLOCK_BYTES: u64 = 4096;
    /// Bytes written between two looks at the free space while there is plenty.
    pub const SPACE_LOOK_BYTES_MAX: u64 = 8 * 1024 * 1024;
    /// Bytes written between two looks at the free space when it is nearly gone.
    pub const SPACE_LOOK_BYTES_MIN: u64 = 64 * 1024;
    /// Milliseconds between two looks while output is being dropped.
    pub const SPACE_RETRY_MS: u64 = 1_000;

    /// Milliseconds without a byte after which a task whose process has ended is final.
    pub const DRAIN_QUIET_MS: u64 = 250;
    /// Milliseconds after which it is final in any case: a descendant may print for ever.
    pub const DRAIN_CAP_MS: u64 = 2_000;
    /// Milliseconds that a foreground task waits for its first holder.
    pub const HOLDER_WAIT_MS: u64 = 10_000;
    /// Milliseconds of a stop after the grace; who lives then is a survivor.
    pub const STOP_CAP_MS: u64 = 5_000;
    /// Looks for newcomers while one signal is sent to a tree that forks.
    pub const SIGNAL_ROUNDS_MAX: usize = 8;
    /// Milliseconds in which all of the tree must come to rest before it is killed as it is: one who sleeps in
    /// the kernel may not stop at all.
    pub const FREEZE_CAP_MS: u64 = 1_000;
    /// Milliseconds between two rounds of SIGSTOP while one of the signalled still runs.
    pub const FREEZE_PAUSE_MS: u64 = 1;
    /// Milliseconds between two rounds of SIGKILL; most ends are told by SIGCHLD before.
    pub const KILL_PAUSE_MS: u64 = 50;

    /// Rounds in which the processes of a lost task are looked for.
    pub const LOST_ROUNDS_MAX: usize = 16;

    /// Connections that a control socket serves at a time.
    pub const CONNECTIONS_MAX: usize = 64;
    /// Bytes of a line `/proc/PID/stat`: some fifty numbers and a name of at most 64 bytes.
    pub const STAT_BYTES_MAX: usize = 2048;
    /// Bytes of one request: 64 KiB of input in base64, and room.
    pub const REQUEST_BYTES_MAX: usize = 128 * 1024;
    /// Bytes of answers that a connection may leave unread before it is dropped.
    pub const UNREAD_BYTES_MAX: usize = 64 * 1024;
    /// Questions that one connection may leave open.
    pub const OPEN_ASKS_MAX: usize = 64;
    /// Bytes of input that a task has not read yet.
    pub const INPUT_BYTES_MAX: usize = 1024 * 1024;
    /// Bytes of a line that a terminal in line mode keeps, without its end; the kernel drops what comes behind.
    pub const TERMINAL_LINE_BYTES_MAX: usize = 4095;
    /// Milliseconds for telling all connections of the end.
    pub const FAREWELL_MS: u64 = 500;
    /// Milliseconds for the one post of the completion.
    pub const POST_MS: u64 = 5_000;
    /// Milliseconds in which a node that the shim started must answer.
    pub const NODE_START_MS: u64 = 10_000;
    /// Milliseconds between two looks at a node that is starting, where the kernel tells nothing.
    pub const NODE_LOOK_MS: u64 = 50;
    /// The first pause after a node that failed to start.
    pub const NODE_PAUSE_MS: u64 = 1_000;
    /// The longest pause.
    pub const NODE_PAUSE_MS_MAX: u64 = 600_000;

    /// Bytes of a block in which the reader looks for lines from the end.
    pub const LINE_LOOK_BYTES: usize = 64 * 1024;
    /// Times a reader begins again because bytes were dropped under it.
    pub const READ_AGAIN_MAX: usize = 8;
    /// The longest character in bytes.
    pub const CHAR_BYTES_MAX: usize = 4;

    const _: () = assert!(READ_BYTES_FIRST <= PIPE_BYTES_STEPS[0]);
    const _: () = assert!(DRAIN_QUIET_MS < DRAIN_CAP_MS);
    // A survivor's number has at most 7 digits and a comma.
    const _: () = assert!((SURVIVORS_NAMED_MAX as u64) * 8 + 4096 <= RECEIPT_ROOM_BYTES);
}
