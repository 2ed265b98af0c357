//! Tokens as an attacker would make them, and a few that only the home's own key can make.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use weft_tests::Stage;

/// A key with its id.
pub(super) struct Key {
    pub(super) kid: String,
    signing: SigningKey,
}

impl Key {
    /// The key that the home's node signs with.
    pub(super) fn of(stage: &Stage) -> Self {
        let homes = std::fs::read_dir(stage.state().join("homes")).expect("the folder of homes");
        let file = homes
            .flatten()
            .filter_map(|home| std::fs::read_dir(home.path().join("keys")).ok())
            .flat_map(Iterator::flatten)
            .find(|file| file.path().extension().is_some_and(|it| it == "ed25519"))
            .expect("a key");
        let jwk: Value =
            serde_json::from_slice(&std::fs::read(file.path()).expect("the key")).expect("a JWK");
        let secret = BASE64
            .decode(jwk["d"].as_str().expect("d"))
            .expect("base64url");
        Self::new(&secret.try_into().expect("32 bytes"))
    }

    /// A key that no home knows.
    pub(super) fn strange() -> Self {
        Self::new(&[7; 32])
    }

    fn new(secret: &[u8; 32]) -> Self {
        let signing = SigningKey::from_bytes(secret);
        let x = BASE64.encode(signing.verifying_key().as_bytes());
        let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        Key {
            kid: BASE64.encode(Sha256::digest(canonical)),
            signing,
        }
    }

    /// The public half: raw, as PEM, and as the text of its JWK.
    pub(super) fn public_forms(&self) -> [Vec<u8>; 3] {
        let raw = self.signing.verifying_key().to_bytes();
        // The fixed head of a SubjectPublicKeyInfo for Ed25519 (RFC 8410).
        let mut info = vec![
            0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
        ];
        info.extend_from_slice(&raw);
        let text = base64::prelude::BASE64_STANDARD.encode(&info);
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "alg": "EdDSA", "use": "sig", "x": BASE64.encode(raw)});
        [raw.to_vec(), pem.into_bytes(), jwk.to_string().into_bytes()]
    }

    /// The header of a grant signed with this key.
    pub(super) fn header(&self) -> Value {
        json!({"alg": "EdDSA", "typ": "weft-grant+jwt", "kid": self.kid})
    }

    /// A token with a good signature of this key, whatever it says.
    pub(super) fn sign(&self, header: &str, claims: &Value) -> String {
        let head = unsigned(header, claims);
        let signature = BASE64.encode(self.signing.sign(head.as_bytes()).to_bytes());
        format!("{head}.{signature}")
    }
}

/// The first two parts of a token.
pub(super) fn unsigned(header: &str, claims: &Value) -> String {
    format!(
        "{}.{}",
        BASE64.encode(header),
        BASE64.encode(claims.to_string())
    )
}

/// A token signed by HMAC-SHA256 with `secret`.
pub(super) fn hs256(secret: &[u8], header: &str, claims: &Value) -> String {
    const BLOCK: usize = 64;
    let mut key = if secret.len() > BLOCK {
        Sha256::digest(secret).to_vec()
    } else {
        secret.to_vec()
    };
    key.resize(BLOCK, 0);
    let pad = |with: u8| key.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
    let head = unsigned(header, claims);
    let inner = Sha256::digest([pad(0x36), head.clone().into_bytes()].concat());
    let outer = Sha256::digest([pad(0x5c), inner.to_vec()].concat());
    format!("{head}.{}", BASE64.encode(outer))
}

/// The claims of a token.
pub(super) fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect("three parts");
    serde_json::from_slice(&BASE64.decode(payload).expect("base64url")).expect("JSON")
}
