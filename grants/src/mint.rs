//! Claims and a key in, a token out.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::Signer;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::{
    claims::{AccessClaims, GrantClaims},
    keys::Keys,
};

/// The `typ` of a grant.
pub(crate) const GRANT_TYP: &str = "weft-grant+jwt";
/// The `typ` of an access token, of RFC 9068.
pub(crate) const ACCESS_TYP: &str = "at+jwt";

/// A signed token: who has its text can use it. So it is never shown by `Debug` or `Display`, has
/// no place in serde, and leaves no copy in memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Holds a text that was read from a file or an environment as a token.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself, to be handed to whom it was made for and to nobody else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Signs a grant with the newest key. The same claims and key always give the same token, so a
/// caller that lost it can make it again instead of storing it.
///
/// The caller has checked the claims against [`limits`](crate::limits); what lies outside of them
/// is signed, but refused by [`verify_grant`](crate::verify_grant).
pub fn mint_grant(keys: &Keys, claims: &GrantClaims) -> Token {
    sign(keys, keys.grant_header(), claims)
}

/// Signs an access token with the newest key; the same claims and key always give the same token.
///
/// The caller has checked that the scopes are covered by its own and the end not later than its own.
pub fn mint_access(keys: &Keys, claims: &AccessClaims) -> Token {
    sign(keys, keys.access_header(), claims)
}

fn sign(keys: &Keys, header: &str, claims: &impl Serialize) -> Token {
    let mut text = format!("{header}.");
    URL_SAFE_NO_PAD.encode_string(plain(serde_json::to_vec(claims)), &mut text);
    let signature = keys.signer().sign(text.as_bytes());
    text.push('.');
    URL_SAFE_NO_PAD.encode_string(signature.to_bytes(), &mut text);
    Token::new(text)
}

/// What serde makes of a header, of claims or of public keys.
#[expect(
    clippy::expect_used,
    reason = "structs of strings and integers have no way to fail, whatever they hold"
)]
pub(crate) fn plain<T>(serialised: serde_json::Result<T>) -> T {
    serialised.expect("plain structs serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown() {
        let token = Token::new("secret".to_owned());
        assert_eq!(format!("{token:?} {token}"), "Token(…) Token(…)");
        assert_eq!(token.expose(), "secret");
    }
}
