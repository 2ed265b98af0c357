//! What can go wrong. No message here ever holds text of a token or of a private key.

use std::{io, path::PathBuf};

use crate::limits;

/// Why a token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The token is not of the one form we accept, or is not meant for us.
    #[error("the token is refused: {0}")]
    Malformed(#[from] Fault),
    /// The token was not signed by a key of this home.
    #[error("the token is not signed by a key of this home; ask for one where you mean to use it")]
    Signature,
    /// The token's time is over.
    #[error("the token has expired; ask for a new one")]
    Expired,
    /// The token's time has not come.
    #[error(
        "the token is not valid yet; compare the clocks of this machine and of the one that made it"
    )]
    Early,
}

impl Refusal {
    /// The public name of this refusal.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "grant-malformed",
            Self::Signature => "grant-signature",
            Self::Expired => "grant-expired",
            Self::Early => "grant-early",
        }
    }
}

/// One of the three parts of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Which key and which kind of token.
    Header,
    /// What the token allows.
    Claims,
    /// The proof.
    Signature,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Claims => "claims",
            Self::Signature => "signature",
        })
    }
}

/// What is wrong with a token whose form or address we do not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The token is longer than [`limits::TOKEN_BYTES_MAX`].
    #[error("it is longer than {} bytes", limits::TOKEN_BYTES_MAX)]
    TooLong,
    /// The token does not have exactly three parts.
    #[error("it does not have three parts with dots between them; paste it whole, without spaces")]
    Parts,
    /// A part is not base64url in its one canonical spelling.
    #[error("its {0} is not base64url without padding; paste it whole, without spaces")]
    Encoding(Part),
    /// The signature does not have 64 bytes.
    #[error("its signature does not have the length of an Ed25519 signature")]
    SignatureLength,
    /// The header is not a JSON object with exactly `alg`, `typ` and `kid`.
    #[error("its header does not have exactly the fields alg, typ and kid")]
    Header,
    /// The header's `alg` is not `EdDSA`.
    #[error("its alg is not EdDSA")]
    Algorithm,
    /// The header's `typ` is that of another kind of token.
    #[error("its typ is not {0}; a grant and an API token cannot stand for each other")]
    Type(&'static str),
    /// The claims are not exactly those of this kind of token.
    #[error("its claims are not those of a {0} token")]
    Claims(&'static str),
    /// `aud` names another mesh.
    #[error("its aud names another mesh; use it where it was made")]
    Audience,
    /// `iss` names another node.
    #[error("its iss names another node; use it where it was made")]
    Issuer,
    /// `uses` is outside [`limits::GRANT_USES`].
    #[error(
        "its uses are not between {} and {}",
        limits::GRANT_USES.start(),
        limits::GRANT_USES.end()
    )]
    Uses,
    /// `scope` is not a list of scopes that this version knows.
    #[error("its scope is not a list of scopes that this version knows")]
    Scope,
}

/// Why a scope, or a list of them, was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// No scope at all.
    #[error("scope: give at least one scope, for example mesh:read")]
    Empty,
    /// More than [`limits::SCOPES_MAX`] scopes.
    #[error("scope: at most {} scopes fit into one token", limits::SCOPES_MAX)]
    TooMany,
    /// The list is longer than [`limits::SCOPES_BYTES_MAX`].
    #[error("scope: the list is longer than {} bytes", limits::SCOPES_BYTES_MAX)]
    TooLong,
    /// A name that no scope has.
    #[error(
        "scope: there is no scope of this name; there are {}",
        crate::scope::names()
    )]
    Unknown,
    /// A pattern behind a scope that takes none.
    #[error("scope: {0} takes no topic pattern")]
    NoPattern(&'static str),
    /// A topic pattern that is not one.
    #[error(
        "scope: the topic pattern behind {0} must have 1 to {max} characters: tokens of \
         A-Z a-z 0-9 _ - with dots between them, where * stands for one token and a final > \
         for one or more",
        max = limits::PATTERN_BYTES_MAX
    )]
    Pattern(&'static str),
}

/// Why the keys of a home could not be loaded, made or rotated.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The folder of the keys is something else.
    #[error("{} is not a folder of its own (no link); move it away, then start again", .0.display())]
    NotAFolder(PathBuf),
    /// A file or folder is open to others.
    #[error(
        "{} can be read or changed by others (mode {mode:04o}); if nobody did, run: chmod {want:o} {}",
        path.display(),
        path.display()
    )]
    Exposed {
        /// The file or folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The permission bits that it should have.
        want: u32,
    },
    /// A file or folder belongs to another user.
    #[error("{} belongs to user {owner}, not to the user that runs weft", path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// The number of the user that owns it.
        owner: u32,
    },
    /// Something that is no key lies among the keys.
    #[error("{} is not a key that weft made; move it out of this folder", .0.display())]
    Stray(PathBuf),
    /// A key file does not hold what its name says.
    #[error("the key file {} is damaged: {reason}; restore it, or move it away", path.display())]
    Damaged {
        /// The key file.
        path: PathBuf,
        /// What does not fit.
        reason: &'static str,
    },
    /// As many keys as there may be.
    #[error(
        "{} holds {} keys, as many as there may be; a retired key goes {} days after the next one came",
        .0.display(),
        limits::KEYS_MAX,
        limits::KEY_OVERLAP_MS / 86_400_000
    )]
    TooMany(PathBuf),
    /// The operating system gave no random bytes.
    #[error("cannot make a key without random bytes from the operating system: {0}")]
    Random(#[from] getrandom::Error),
}
