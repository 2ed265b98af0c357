//! The Ed25519 keys of a home: the newest signs, older ones still verify for their overlap.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::{SigningKey, VerifyingKey};
use jsonwebtoken::{
    Algorithm, Header,
    jwk::{
        AlgorithmParameters, CommonParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm,
        OctetKeyPairParameters, OctetKeyPairType, PublicKeyUse,
    },
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    error::KeyError,
    keyfile::{self, StoredKey},
    limits::{KEY_OVERLAP_MS, KEYS_MAX},
    mint::{ACCESS_TYP, GRANT_TYP, plain},
};

/// The keys of a home, decoded once. A clone is cheap and sees the same keys.
#[derive(Clone)]
pub struct Keys(Arc<Ring>);

struct Ring {
    dir: PathBuf,
    /// The id of `signer`.
    kid: String,
    /// Only the newest key is kept with its secret half.
    signer: SigningKey,
    /// All keys, the newest first; never empty.
    known: Vec<Known>,
    /// The first parts of tokens, which are the same for every token of a key.
    grant_header: String,
    access_header: String,
    jwks: Value,
}

struct Known {
    kid: String,
    key: VerifyingKey,
}

impl Keys {
    /// Loads the keys in `dir/keys`; makes the folder, and a first key, where there is none. `now_ms`
    /// is milliseconds since 1970. The caller holds the home's lock: two at once would make two keys.
    ///
    /// # Errors
    /// [`KeyError`] when the folder or a file in it is open to others, belongs to another user, is
    /// damaged, or is nothing that weft made. Nothing is repaired, skipped or overwritten, but for
    /// the remains of a key whose writing was cut short, which was never used.
    pub fn load_or_create(dir: &Path, now_ms: u64) -> Result<Self, KeyError> {
        let folder = keyfile::open_folder(dir)?;
        let mut stored = keyfile::read_all(&folder)?;
        let newest = if stored.is_empty() {
            keyfile::make(&folder, now_ms)?
        } else {
            stored.remove(0)
        };
        Ok(Self::assemble(dir, newest, &stored))
    }

    /// Makes a new key, which signs from now on, and forgets those that were retired longer than
    /// [`KEY_OVERLAP_MS`] ago: whatever they signed has expired. These `Keys` stay as they are; the
    /// caller puts the returned ones in their place. The caller holds the home's lock.
    ///
    /// # Errors
    /// As [`Keys::load_or_create`]; [`KeyError::TooMany`] when there are [`KEYS_MAX`] keys, all still
    /// within their overlap.
    pub fn rotate(&self, now_ms: u64) -> Result<Self, KeyError> {
        let dir = &self.0.dir;
        let folder = keyfile::open_folder(dir)?;
        let mut kept = keyfile::read_all(&folder)?;
        let outlived = kept.split_off(within_overlap(&kept, now_ms));
        if kept.len() >= KEYS_MAX {
            return Err(KeyError::TooMany(folder));
        }
        // First, so that a crash in between does not leave more keys than may be loaded.
        keyfile::remove(&folder, &outlived)?;
        // The clock may have gone back, yet the newest key must be the newest for every reader.
        let newest = kept.first().map_or(0, |key| key.created_at_ms);
        let made = keyfile::make(&folder, now_ms.max(newest.saturating_add(1)))?;
        Ok(Self::assemble(dir, made, &kept))
    }

    /// The id of the key that signs: its RFC 7638 thumbprint.
    pub fn kid(&self) -> &str {
        &self.0.kid
    }

    /// The ids of all keys that verify, the newest first.
    pub fn thumbprints(&self) -> impl Iterator<Item = &str> {
        self.0.known.iter().map(|known| known.kid.as_str())
    }

    /// The public keys as a JWK set, for `/.well-known/jwks.json`.
    pub fn jwks(&self) -> Value {
        self.0.jwks.clone()
    }

    pub(crate) fn find(&self, kid: &str) -> Option<&VerifyingKey> {
        let known = self.0.known.iter().find(|known| known.kid == kid)?;
        Some(&known.key)
    }

    pub(crate) fn signer(&self) -> &SigningKey {
        &self.0.signer
    }

    pub(crate) fn grant_header(&self) -> &str {
        &self.0.grant_header
    }

    pub(crate) fn access_header(&self) -> &str {
        &self.0.access_header
    }

    fn assemble(dir: &Path, newest: StoredKey, older: &[StoredKey]) -> Self {
        let known: Vec<Known> = std::iter::once(&newest)
            .chain(older)
            .map(|stored| Known {
                kid: stored.kid.clone(),
                key: stored.secret.verifying_key(),
            })
            .collect();
        Self(Arc::new(Ring {
            dir: dir.to_owned(),
            grant_header: header(GRANT_TYP, &newest.kid),
            access_header: header(ACCESS_TYP, &newest.kid),
            jwks: jwks(&known),
            kid: newest.kid,
            signer: newest.secret,
            known,
        }))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.thumbprints()).finish()
    }
}

/// How many of `stored`, newest first, may still have signed something that is valid: a key retires
/// when the next newer one is made.
fn within_overlap(stored: &[StoredKey], now_ms: u64) -> usize {
    let retired_at = |index: usize| stored[index - 1].created_at_ms;
    (1..stored.len())
        .find(|&index| retired_at(index).saturating_add(KEY_OVERLAP_MS) < now_ms)
        .unwrap_or(stored.len())
}

/// The first part of every token of type `typ` that the key `kid` signs.
fn header(typ: &str, kid: &str) -> String {
    let header = Header {
        typ: Some(typ.to_owned()),
        kid: Some(kid.to_owned()),
        ..Header::new(Algorithm::EdDSA)
    };
    URL_SAFE_NO_PAD.encode(plain(serde_json::to_vec(&header)))
}

fn jwks(known: &[Known]) -> Value {
    let keys = known.iter().map(|Known { kid, key }| Jwk {
        common: CommonParameters {
            public_key_use: Some(PublicKeyUse::Signature),
            key_algorithm: Some(KeyAlgorithm::EdDSA),
            key_id: Some(kid.clone()),
            ..CommonParameters::default()
        },
        algorithm: AlgorithmParameters::OctetKeyPair(OctetKeyPairParameters {
            key_type: OctetKeyPairType::OctetKeyPair,
            curve: EllipticCurve::Ed25519,
            x: public_text(key),
        }),
    });
    let keys = keys.collect();
    plain(serde_json::to_value(JwkSet { keys }))
}

/// The public key as `x` of a JWK.
pub(crate) fn public_text(key: &VerifyingKey) -> String {
    URL_SAFE_NO_PAD.encode(key.as_bytes())
}

/// The RFC 7638 thumbprint: a digest of the key's required JWK members, in order, without spaces.
pub(crate) fn thumbprint(key: &VerifyingKey) -> String {
    let members = format!(
        r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#,
        public_text(key)
    );
    URL_SAFE_NO_PAD.encode(Sha256::digest(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(created_at_ms: u64) -> StoredKey {
        StoredKey {
            kid: created_at_ms.to_string(),
            created_at_ms,
            secret: SigningKey::from_bytes(&[7; 32]),
        }
    }

    #[test]
    fn the_thumbprint_is_that_of_the_rfc() {
        // RFC 8037, appendix A.3.
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let bytes: [u8; 32] = URL_SAFE_NO_PAD.decode(x).unwrap().try_into().unwrap();
        let key = VerifyingKey::from_bytes(&bytes).unwrap();
        assert_eq!(public_text(&key), x);
        assert_eq!(
            thumbprint(&key),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
    }

    #[test]
    fn a_key_is_kept_until_its_overlap_is_over() {
        let keys = [stored(3000), stored(2000), stored(1000)];
        assert_eq!(within_overlap(&[], u64::MAX), 0);
        assert_eq!(within_overlap(&keys[..1], u64::MAX), 1);
        assert_eq!(within_overlap(&keys, 0), 3);
        assert_eq!(within_overlap(&keys, 2000 + KEY_OVERLAP_MS), 3);
        assert_eq!(within_overlap(&keys, 2001 + KEY_OVERLAP_MS), 2);
        assert_eq!(within_overlap(&keys, 3001 + KEY_OVERLAP_MS), 1);
    }

    #[test]
    fn the_header_has_exactly_three_fields() {
        let bytes = URL_SAFE_NO_PAD.decode(header(GRANT_TYP, "k")).unwrap();
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"alg": "EdDSA", "typ": "weft-grant+jwt", "kid": "k"})
        );
    }
}
