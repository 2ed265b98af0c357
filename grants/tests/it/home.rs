//! A home with keys, good claims, and a forge for bad tokens.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::Value;
use tempfile::TempDir;
use weft_grants::{AccessClaims, Fault, GrantClaims, Keys, Refusal, verify_access, verify_grant};

pub(crate) const NOW: u64 = 1_700_000_000;
pub(crate) const NOW_MS: u64 = NOW * 1000;
pub(crate) const AUD: &str = "weft:mesh:m-1";
pub(crate) const ISS: &str = "n-1";
pub(crate) const GRANT: &str = "weft-grant+jwt";
pub(crate) const ACCESS: &str = "at+jwt";

/// A home's keys, and the secret of the one that signs, as a thief or a second node would have it.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    pub(crate) keys: Keys,
    pub(crate) secret: SigningKey,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::load_or_create(dir.path(), NOW_MS).unwrap();
        let file = dir
            .path()
            .join("keys")
            .join(format!("{}.ed25519", keys.kid()));
        let jwk: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let seed = URL_SAFE_NO_PAD.decode(jwk["d"].as_str().unwrap()).unwrap();
        let secret = SigningKey::from_bytes(&seed.try_into().unwrap());
        Self { dir, keys, secret }
    }

    pub(crate) fn grant(&self, token: &str) -> Result<GrantClaims, Refusal> {
        verify_grant(token, &self.keys, AUD, ISS, NOW)
    }

    pub(crate) fn access(&self, token: &str) -> Result<AccessClaims, Refusal> {
        verify_access(token, &self.keys, AUD, ISS, NOW)
    }

    /// A token of any header and claims, rightly signed with this home's key.
    pub(crate) fn signed(&self, header: &str, claims: &str) -> String {
        let body = body(header, claims);
        let signature = self.secret.sign(body.as_bytes()).to_bytes();
        format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The header of a good token of type `typ`.
    pub(crate) fn header(&self, typ: &str) -> String {
        format!(
            r#"{{"alg":"EdDSA","typ":"{typ}","kid":"{}"}}"#,
            self.keys.kid()
        )
    }

    /// A good header for a grant with more fields at its end.
    pub(crate) fn header_with(&self, more: &str) -> String {
        let header = self.header(GRANT);
        format!("{},{more}}}", header.trim_end_matches('}'))
    }
}

/// The first two parts of a token.
pub(crate) fn body(header: &str, claims: &str) -> String {
    let (header, claims) = (
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims),
    );
    format!("{header}.{claims}")
}

pub(crate) fn grant_claims() -> GrantClaims {
    GrantClaims {
        iss: ISS.to_owned(),
        aud: AUD.to_owned(),
        jti: "g-1".to_owned(),
        topic: "builds".to_owned(),
        kind: Some("task.completed".to_owned()),
        eid: None,
        uses: 1,
        iat: NOW,
        nbf: None,
        exp: NOW + 3600,
    }
}

pub(crate) fn access_claims() -> AccessClaims {
    AccessClaims {
        iss: ISS.to_owned(),
        aud: AUD.to_owned(),
        jti: "k-1".to_owned(),
        sub: "ci".to_owned(),
        scope: "mesh:read:builds.* tasks:read".to_owned(),
        iat: NOW,
        nbf: None,
        exp: NOW + 3600,
    }
}

pub(crate) fn json(claims: &impl serde::Serialize) -> String {
    serde_json::to_string(claims).unwrap()
}

pub(crate) fn malformed<T>(fault: Fault) -> Result<T, Refusal> {
    Err(Refusal::Malformed(fault))
}
