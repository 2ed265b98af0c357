//! Tokens that must not work, by what is wrong with them.

use serde_json::{Value, json};

use super::forge::{Key, claims, hs256, unsigned};

pub(super) const FORM: &[&str] = &["grant-malformed"];
pub(super) const FORM_OR_SIGNATURE: &[&str] = &["grant-malformed", "grant-signature"];

/// A token that must not work, with the names under which it may be refused.
pub(super) struct Bad {
    pub(super) what: String,
    pub(super) token: String,
    pub(super) slugs: &'static [&'static str],
}

pub(super) fn bad(what: impl Into<String>, token: String, slugs: &'static [&'static str]) -> Bad {
    Bad {
        what: what.into(),
        token,
        slugs,
    }
}

fn now() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    since.as_secs()
}

/// `base` with some members replaced; null removes.
fn with(base: &Value, changes: Value) -> Value {
    let mut made = base.clone();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            made.as_object_mut().unwrap().remove(name);
        } else {
            made[name] = value.clone();
        }
    }
    made
}

/// Algorithms and signatures that are not the one.
pub(super) fn of_algorithm(key: &Key, good: &str) -> Vec<Bad> {
    let claims = claims(good);
    let mut list = Vec::new();
    for alg in ["none", "None", "nOnE", ""] {
        let head = unsigned(
            &with(&key.header(), json!({"alg": alg})).to_string(),
            &claims,
        );
        list.push(bad(
            format!("alg {alg:?} without a signature"),
            format!("{head}."),
            FORM,
        ));
        list.push(bad(format!("alg {alg:?} in two parts"), head, FORM));
    }
    let header = with(&key.header(), json!({"alg": "HS256"})).to_string();
    for secret in key.public_forms() {
        list.push(bad(
            "HS256 with the public key",
            hs256(&secret, &header, &claims),
            FORM_OR_SIGNATURE,
        ));
        let honest = key.header().to_string();
        list.push(bad(
            "HMAC under EdDSA",
            hs256(&secret, &honest, &claims),
            FORM_OR_SIGNATURE,
        ));
    }
    for alg in ["Ed25519", "ES256", "RS256", "EdDSA "] {
        let header = with(&key.header(), json!({"alg": alg})).to_string();
        list.push(bad(
            format!("alg {alg:?}"),
            key.sign(&header, &claims),
            FORM,
        ));
    }
    list
}

/// Headers that ask for something else, all with a good signature of the home's key.
pub(super) fn of_header(key: &Key, good: &str) -> Vec<Bad> {
    let claims = claims(good);
    let strange = Key::strange();
    let jwk: Value = serde_json::from_slice(&strange.public_forms()[2]).unwrap();
    let mut list: Vec<Bad> = [
        json!({"jku": "http://127.0.0.1:1/jwks.json"}),
        json!({"jwk": jwk}),
        json!({"x5u": "http://127.0.0.1:1/cert.pem"}),
        json!({"x5c": ["AAAA"]}),
        json!({"crit": ["exp"]}),
        json!({"b64": false}),
        json!({"typ": "JWT"}),
        json!({"typ": "at+jwt"}),
        json!({"typ": null}),
        json!({"alg": null}),
        json!({"kid": null}),
    ]
    .into_iter()
    .map(|change| {
        bad(
            format!("header {change}"),
            key.sign(&with(&key.header(), change).to_string(), &claims),
            FORM_SCOPE,
        )
    })
    .collect();
    let kid = &key.kid;
    let twice = format!(r#"{{"alg":"none","alg":"EdDSA","typ":"weft-grant+jwt","kid":"{kid}"}}"#);
    list.push(bad("alg twice", key.sign(&twice, &claims), FORM));
    let embedded = with(&strange.header(), json!({"jwk": jwk})).to_string();
    list.push(bad(
        "a key that comes with the token",
        strange.sign(&embedded, &claims),
        FORM,
    ));
    for unknown in [&strange.kid, "nobody", "", "../../keys/x"] {
        let header = with(&key.header(), json!({"kid": unknown})).to_string();
        list.push(bad(
            format!("kid {unknown:?}"),
            key.sign(&header, &claims),
            FORM_OR_SIGNATURE,
        ));
    }
    list.push(bad(
        "another key under its own kid",
        strange.sign(&strange.header().to_string(), &claims),
        FORM_OR_SIGNATURE,
    ));
    list.push(bad(
        "another key under ours",
        strange.sign(&key.header().to_string(), &claims),
        FORM_OR_SIGNATURE,
    ));
    list
}

/// A grant that says it is another kind of token is looked at as that, and is no such token either.
pub(super) const FORM_SCOPE: &[&str] = &["grant-malformed", "unauthorized"];

/// Claims that are not ours or not now, all with a good signature of the home's key.
pub(super) fn of_claims(key: &Key, good: &str) -> Vec<Bad> {
    let claims = claims(good);
    let sign = |change: Value| key.sign(&key.header().to_string(), &with(&claims, change));
    let mut list = vec![
        bad(
            "expired",
            sign(json!({"iat": now() - 7200, "exp": now() - 60})),
            &["grant-expired"],
        ),
        bad(
            "before iat",
            sign(json!({"iat": now() + 3600, "exp": now() + 7200})),
            &["grant-early"],
        ),
        bad(
            "before nbf",
            sign(json!({"nbf": now() + 3600})),
            &["grant-early"],
        ),
        bad(
            "a jti that nobody minted",
            sign(json!({"jti": "g-nobody"})),
            &["grant-revoked"],
        ),
    ];
    for change in [
        json!({"aud": "weft:mesh:other"}),
        json!({"aud": [claims["aud"], "weft:mesh:other"]}),
        json!({"aud": null}),
        json!({"iss": "n-other"}),
        json!({"iss": null}),
        json!({"exp": null}),
        json!({"iat": null}),
        json!({"jti": null}),
        json!({"topic": null}),
        json!({"uses": 0}),
        json!({"uses": 10_001}),
        json!({"uses": -1}),
        json!({"exp": "soon"}),
        json!({"scope": "admin"}),
    ] {
        list.push(bad(format!("claims {change}"), sign(change), FORM));
    }
    list
}

/// Cuts, additions and changes of the text.
pub(super) fn of_text(good: &str) -> Vec<Bad> {
    let (head, signature) = good.rsplit_once('.').unwrap();
    let mut list = vec![
        bad("two parts", head.to_owned(), FORM),
        bad("four parts", format!("{good}.AAAA"), FORM),
        bad(
            "bytes after the signature",
            format!("{good}AA"),
            FORM_OR_SIGNATURE,
        ),
        bad("padding", format!("{good}=="), FORM),
        bad("an empty signature", format!("{head}."), FORM),
        bad(
            "half a signature",
            format!("{head}.{}", &signature[..43]),
            FORM,
        ),
        bad(
            "longer than any token",
            format!("{head}.{}", "A".repeat(16 * 1024)),
            FORM,
        ),
        bad("three dots", "...".to_owned(), FORM),
        bad("a word", "hello".to_owned(), FORM),
    ];
    for bit in 0..6 {
        let mut changed = signature.as_bytes().to_vec();
        changed[10 + bit] = turned(changed[10 + bit], bit);
        list.push(bad(
            "a bit of the signature",
            format!("{head}.{}", String::from_utf8(changed).unwrap()),
            FORM_OR_SIGNATURE,
        ));
    }
    list
}

/// Another letter of base64url, one bit of its six away.
pub(super) fn turned(letter: u8, bit: usize) -> u8 {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let value = LETTERS.iter().position(|known| *known == letter).unwrap();
    LETTERS[value ^ (1 << bit)]
}
