//! Every size, count and time of this crate, each with its reason.

/// Milliseconds that a connection which the node ends is still read from, so that its last answer arrives.
pub const LINGER_MS: u64 = 2_000;
/// Bytes of a request's body: words and environment of a launch are together at most 2 MiB with the usual limit on stacks,
/// and JSON writes some letters as two.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Milliseconds in which a body must have come whole: a slow link needs some, a stalled client none.
pub const BODY_MS: u64 = 30_000;
/// Bytes of a request's head. The largest token has 8 KiB, the longest filter of topics about as much.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Header lines of a request: three times what a browser sends.
pub const HEADERS_MAX: usize = 64;
/// Milliseconds from a request's first byte, or from the connection's start, in which its head must have come.
pub const HEAD_MS: u64 = 10_000;
/// Milliseconds that a connection may lie idle between two requests.
pub const IDLE_MS: u64 = 300_000;
/// Milliseconds that a write may make no progress: then the reader is gone, or may resume from its cursor.
pub const STALL_MS: u64 = 60_000;
/// Bytes that one connection buffers each way: what a stalled reader costs, beside one page of events.
pub const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Connections of one listener. Each costs a task and some kilobytes while idle.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections over that number which are told so at a time; more are dropped without a word.
pub const REFUSALS_MAX: usize = 32;
/// Milliseconds in which a connection over the number must have asked and been refused.
pub const REFUSAL_MS: u64 = 2_000;
/// Streams of events of one listener.
pub const STREAMS_MAX: usize = 256;
/// Milliseconds to wait when no connection can be accepted, as when the process has no descriptors left.
pub const ACCEPT_PAUSE_MS: u64 = 100;
/// Seconds a client is told to wait where a bound was met.
pub const RETRY_AFTER_SECS: u64 = 1;

/// Milliseconds that a changing call has to finish once the node begins to end; then it is answered `node-stopping`.
pub const STOP_CALL_MS: u64 = 2_000;
/// Milliseconds that all connections have to finish once the node begins to end.
pub const STOP_MS: u64 = 4_000;

/// Bytes of events in one read for a stream: one write of it, and all that is held for a slow reader.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Events in one read for a stream.
pub const PAGE_EVENTS: usize = 256;
/// Milliseconds between two signs of life on a stream that has nothing to say: under the 60 s of every proxy.
pub const HEARTBEAT_MS: u64 = 15_000;
/// Milliseconds a client of a stream is told to wait before it connects again.
pub const RETRY_MS: u64 = 1_000;

/// Milliseconds a read may wait for its first event: callers renew, so that a dead one costs at most this.
pub const WAIT_MS_MAX: u64 = 300_000;
/// Milliseconds the store has to show that it can be written.
pub const READY_MS: u64 = 2_000;
/// Seconds the public keys may be cached.
pub const JWKS_CACHE_SECS: u64 = 300;

const _: () = assert!(STOP_CALL_MS < STOP_MS);
const _: () = assert!(PAGE_EVENTS <= weft_mesh::limits::READ_EVENTS_MAX);
const _: () = assert!(weft_grants::limits::TOKEN_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(weft_mesh::limits::EVENT_BYTES_MAX < BODY_BYTES_MAX);
