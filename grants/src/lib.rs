//! Who may post what, and how often: the keys of a home, and the two kinds of token they sign.
//!
//! - A *grant* lets a process outside post a bounded number of events of one kind to one topic.
//! - An *access token* lets a client call the API within its scopes.
//!
//! Both are JWTs signed with Ed25519, so that any holder of the public keys can check them offline.
//! What cannot be checked offline, how often a grant was used and whether it was revoked, is kept
//! by the mesh. This crate is pure but for the key files: time is always passed in.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! use weft_grants::{GrantClaims, Keys, mint_grant, verify_grant};
//!
//! let keys = Keys::load_or_create(home.path(), 1_700_000_000_000)?;
//! let claims = GrantClaims {
//!     iss: "n-1".into(),
//!     aud: "weft:mesh:m-1".into(),
//!     jti: "g-1".into(),
//!     topic: "builds".into(),
//!     kind: Some("task.completed".into()),
//!     eid: None,
//!     uses: 1,
//!     iat: 1_700_000_000,
//!     nbf: None,
//!     exp: 1_700_086_400,
//! };
//! let token = mint_grant(&keys, &claims);
//! let checked = verify_grant(token.expose(), &keys, "weft:mesh:m-1", "n-1", 1_700_000_010)?;
//! assert_eq!(checked, claims);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod claims;
mod error;
mod frame;
mod keyfile;
mod keys;
pub mod limits;
mod mint;
pub mod scope;
mod verify;

pub use claims::{AccessClaims, GrantClaims};
pub use error::{Fault, KeyError, Part, Refusal, ScopeError};
pub use keys::Keys;
pub use mint::{Token, mint_access, mint_grant};
pub use scope::{Right, Scope, Scopes};
pub use verify::{verify_access, verify_grant};
