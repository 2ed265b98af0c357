//! Grants, access tokens and keys from the outside.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod any_text;
mod bad_claims;
mod bad_tokens;
mod home;
mod interop;
mod keys;
