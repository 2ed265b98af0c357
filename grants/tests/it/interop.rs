//! Others can check our tokens with what we publish: a JWT library reads the key set, finds the same
//! thumbprints, and takes a token under the key that its header names and under no other.

use ed25519_dalek::{Signature, VerifyingKey};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    decode,
    errors::ErrorKind,
    jwk::{JwkSet, ThumbprintHash},
    signature::{Error, Verifier},
};
use sha2::{Digest, Sha256};
use weft_grants::{AccessClaims, GrantClaims, mint_access, mint_grant};

use crate::home::{AUD, GRANT, Home, ISS, access_claims, grant_claims};

struct Ed25519(VerifyingKey);

impl Verifier<Vec<u8>> for Ed25519 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        self.0
            .verify_strict(message, &Signature::from_slice(signature)?)
    }
}

impl JwtVerifier for Ed25519 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |_, key| {
        let bytes = key.try_get_as_bytes()?.try_into().unwrap();
        Ok(Box::new(Ed25519(VerifyingKey::from_bytes(bytes).unwrap())))
    },
    key_utils: KeyUtils {
        compute_digest: |bytes, hash| {
            assert_eq!(hash, ThumbprintHash::SHA256);
            Ok(Sha256::digest(bytes).to_vec())
        },
        ..KeyUtils::new_unimplemented()
    },
};

#[test]
fn a_library_takes_our_tokens_by_the_published_keys() {
    PROVIDER.install_default().unwrap();
    let home = Home::new();
    let rotated = home.keys.rotate(u64::from(u32::MAX) * 1000).unwrap();
    let published: JwkSet = serde_json::from_value(rotated.jwks()).unwrap();
    for jwk in &published.keys {
        let kid = jwk.common.key_id.as_ref().unwrap();
        assert_eq!(jwk.thumbprint(ThumbprintHash::SHA256).as_ref(), Ok(kid));
    }

    let mut validation = Validation::new(Algorithm::EdDSA);
    validation.set_audience(&[AUD]);
    validation.set_issuer(&[ISS]);
    // The library reads the clock itself, and our times are fixed.
    validation.validate_exp = false;

    let key = published.find(home.keys.kid()).unwrap();
    let key = DecodingKey::from_jwk(key).unwrap();
    let token = mint_grant(&home.keys, &grant_claims());
    let read = decode::<GrantClaims>(token.expose(), &key, &validation).unwrap();
    assert_eq!(read.claims, grant_claims());
    assert_eq!(read.header.typ.as_deref(), Some(GRANT));
    assert_eq!(read.header.kid.as_deref(), Some(home.keys.kid()));

    let token = mint_access(&home.keys, &access_claims());
    let read = decode::<AccessClaims>(token.expose(), &key, &validation).unwrap();
    assert_eq!(read.claims, access_claims());

    let other = mint_grant(&rotated, &grant_claims());
    assert!(decode::<GrantClaims>(other.expose(), &key, &validation).is_err());
}
