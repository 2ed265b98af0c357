//! Every size, count and time of this crate, with its reason.

use std::ops::RangeInclusive;

const MINUTE_MS: u64 = 60 * 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// How far the clocks of minter and checker may differ, in seconds; applies to `iat`, `nbf` and `exp`.
pub const LEEWAY_SECS: u64 = 30;

/// The longest token that is looked at, in bytes. A full access token has about 5600.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// How long a grant may live, in milliseconds: a minute to thirty days.
pub const GRANT_TTL_MS: RangeInclusive<u64> = MINUTE_MS..=30 * DAY_MS;
/// How long a grant lives unless asked otherwise, in milliseconds: a day.
pub const GRANT_TTL_MS_DEFAULT: u64 = DAY_MS;
/// How long the grant of a task's completion lives, in milliseconds: seven days.
pub const COMPLETION_TTL_MS: u64 = 7 * DAY_MS;

/// How many events a grant may post.
pub const GRANT_USES: RangeInclusive<u32> = 1..=10_000;
/// How many events a grant posts unless asked otherwise.
pub const GRANT_USES_DEFAULT: u32 = 1;

/// How long an access token may live, in milliseconds: a minute to a year.
pub const ACCESS_TTL_MS: RangeInclusive<u64> = MINUTE_MS..=365 * DAY_MS;
/// How long an access token lives unless asked otherwise, in milliseconds: thirty days.
pub const ACCESS_TTL_MS_DEFAULT: u64 = 30 * DAY_MS;

/// How long a key still verifies after a newer one took over signing, in milliseconds. No token
/// that it signed can be valid for longer than this.
pub const KEY_OVERLAP_MS: u64 = *ACCESS_TTL_MS.end() + LEEWAY_SECS * 1000;
/// How many keys a home may hold at once. Keys pile up when they are rotated often within their
/// overlap, and each is published and searched.
pub const KEYS_MAX: usize = 64;
/// The largest key file that is read, in bytes. One that weft writes has about 250.
pub const KEY_FILE_BYTES_MAX: u64 = 4 * 1024;

/// How many scopes a token may carry.
pub const SCOPES_MAX: usize = 32;
/// The longest list of scopes, in bytes, as it stands in a token.
pub const SCOPES_BYTES_MAX: usize = 4 * 1024;
/// The longest topic pattern of a scope, in bytes; a topic has the same limit.
pub const PATTERN_BYTES_MAX: usize = 128;
