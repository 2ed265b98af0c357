//! Every way in which a token can be bad, each refused by its name, and none of them shown.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use sha2::{Digest, Sha256};
use weft_grants::{
    AccessClaims, Fault, GrantClaims, Refusal, limits::TOKEN_BYTES_MAX, mint_access, mint_grant,
};

use crate::home::{GRANT, Home, NOW, access_claims, body, grant_claims, json, malformed};

#[test]
fn a_good_token_gives_its_claims_and_is_always_the_same() {
    let home = Home::new();
    let token = mint_grant(&home.keys, &grant_claims());
    assert_eq!(home.grant(token.expose()), Ok(grant_claims()));
    assert_eq!(mint_grant(&home.keys, &grant_claims()), token);

    let token = mint_access(&home.keys, &access_claims());
    assert_eq!(home.access(token.expose()), Ok(access_claims()));
    assert_eq!(mint_access(&home.keys, &access_claims()), token);
}

#[test]
fn a_token_with_all_its_claims_comes_back_whole() {
    let home = Home::new();
    let claims = GrantClaims {
        topic: "t".repeat(128),
        kind: Some("k".repeat(64)),
        eid: Some("completion:t-1".to_owned()),
        uses: 10_000,
        nbf: Some(NOW),
        ..grant_claims()
    };
    let token = mint_grant(&home.keys, &claims);
    assert_eq!(home.grant(token.expose()), Ok(claims));

    let pattern = "a".repeat(110);
    let scope = vec![format!("mesh:read:{pattern}"); 32].join(" ");
    let claims = AccessClaims {
        scope,
        nbf: Some(NOW),
        ..access_claims()
    };
    let token = mint_access(&home.keys, &claims);
    assert_eq!(home.access(token.expose()), Ok(claims));
}

#[test]
fn a_changed_byte_anywhere_is_refused() {
    let home = Home::new();
    let token = mint_grant(&home.keys, &grant_claims());
    let good = token.expose().as_bytes();
    let others = (b' '..=b'~').chain([0, b'\n', 0x7f]);
    for (at, &was) in good.iter().enumerate() {
        for other in others.clone().filter(|other| *other != was) {
            let mut bad = good.to_vec();
            bad[at] = other;
            let refused = home.grant(std::str::from_utf8(&bad).unwrap());
            assert!(
                matches!(refused, Err(Refusal::Malformed(_) | Refusal::Signature)),
                "byte {at} as {other}: {refused:?}"
            );
        }
    }
    assert!(home.grant(token.expose()).is_ok());
}

#[test]
fn a_byte_more_or_less_anywhere_is_refused() {
    let home = Home::new();
    let token = mint_grant(&home.keys, &grant_claims());
    let good = token.expose();
    for at in 0..good.len() {
        let mut bad = good.to_owned();
        bad.remove(at);
        assert!(home.grant(&bad).is_err(), "without byte {at}");
        assert!(home.grant(&good[..at]).is_err(), "up to byte {at}");
    }
    for at in 0..=good.len() {
        for more in ["A", ".", "=", " ", "\n", "\0", "é"] {
            let mut bad = good.to_owned();
            bad.insert_str(at, more);
            assert!(home.grant(&bad).is_err(), "{more:?} at byte {at}");
        }
    }
}

#[test]
fn one_turned_bit_of_the_signature_is_a_bad_signature() {
    let home = Home::new();
    let token = mint_grant(&home.keys, &grant_claims());
    let (body, signature) = token.expose().rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    for bit in 0..signature.len() * 8 {
        let mut bad = signature.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let bad = format!("{body}.{}", URL_SAFE_NO_PAD.encode(bad));
        assert_eq!(home.grant(&bad), Err(Refusal::Signature), "bit {bit}");
    }
}

#[test]
fn a_second_spelling_of_the_signature_is_refused() {
    let home = Home::new();
    let token = mint_grant(&home.keys, &grant_claims());
    let (body, text) = token.expose().rsplit_once('.').unwrap();
    let mut signature = URL_SAFE_NO_PAD.decode(text).unwrap();

    // 64 bytes leave four bits of the last character unused; sixteen characters mean the same.
    let last = text.chars().last().unwrap();
    let spelling = |last| format!("{body}.{}{last}", &text[..text.len() - 1]);
    for other in ('A'..='Z')
        .chain('a'..='z')
        .chain('0'..='9')
        .chain(['-', '_'])
    {
        assert!(
            other == last || home.grant(&spelling(other)).is_err(),
            "{other}"
        );
    }

    // The scalar of the signature, the order of the group added to it, proves the same in a lenient
    // check.
    let order: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut carry = 0;
    for (byte, more) in signature[32..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + u16::from(more) + carry;
        *byte = sum as u8;
        carry = sum >> 8;
    }
    let bad = format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature));
    assert_eq!(home.grant(&bad), Err(Refusal::Signature));
}

#[test]
fn no_algorithm_is_no_way_in() {
    let home = Home::new();
    for alg in ["none", "None", "nOnE", "NONE"] {
        let header = home.header(GRANT).replace("EdDSA", alg);
        let body = body(&header, &json(&grant_claims()));
        assert_eq!(
            home.grant(&format!("{body}.")),
            malformed(Fault::SignatureLength)
        );
        let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
        assert_eq!(
            home.grant(&format!("{body}.{zeros}")),
            malformed(Fault::Algorithm)
        );
        let signed = home.signed(&header, &json(&grant_claims()));
        assert_eq!(home.grant(&signed), malformed(Fault::Algorithm));
    }
}

#[test]
fn the_public_key_is_no_shared_secret() {
    let home = Home::new();
    let public = home.secret.verifying_key();
    // An Ed25519 SubjectPublicKeyInfo is this prefix and the key.
    let prefix = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
    let der = [&prefix[..], public.as_bytes()].concat();
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(&der)
    );
    let jwk = home.keys.jwks()["keys"][0].to_string();
    let set = home.keys.jwks().to_string();
    let secrets: [&[u8]; 7] = [
        public.as_bytes(),
        &der,
        pem.as_bytes(),
        pem.trim_end().as_bytes(),
        jwk.as_bytes(),
        set.as_bytes(),
        home.keys.kid().as_bytes(),
    ];
    for secret in secrets {
        let header = home.header(GRANT).replace("EdDSA", "HS256");
        let body = body(&header, &json(&grant_claims()));
        let mac = hmac(secret, body.as_bytes());
        let token = format!("{body}.{}", URL_SAFE_NO_PAD.encode(mac));
        assert_eq!(home.grant(&token), malformed(Fault::SignatureLength));
        // As long as an Ed25519 signature, so that it is the header that refuses it.
        let token = format!("{body}.{}", URL_SAFE_NO_PAD.encode([mac, mac].concat()));
        assert_eq!(home.grant(&token), malformed(Fault::Algorithm));
        // And said to be EdDSA.
        let body = self::body(&home.header(GRANT), &json(&grant_claims()));
        let mac = hmac(secret, body.as_bytes());
        let token = format!("{body}.{}", URL_SAFE_NO_PAD.encode([mac, mac].concat()));
        assert_eq!(home.grant(&token), Err(Refusal::Signature));
    }
}

/// HMAC-SHA-256 of RFC 2104.
fn hmac(secret: &[u8], message: &[u8]) -> [u8; 32] {
    let mut key = [0; 64];
    if secret.len() > key.len() {
        key[..32].copy_from_slice(&Sha256::digest(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret);
    }
    let inner = Sha256::digest([&key.map(|byte| byte ^ 0x36)[..], message].concat());
    Sha256::digest([&key.map(|byte| byte ^ 0x5c)[..], &inner[..]].concat()).into()
}

#[test]
fn the_forge_makes_right_macs() {
    // RFC 4231, test case 2.
    let mac = hmac(b"Jefe", b"what do ya want for nothing?");
    assert_eq!(
        STANDARD.encode(mac),
        "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM="
    );
}

#[test]
fn other_headers_are_refused_even_when_signed() {
    let home = Home::new();
    let claims = json(&grant_claims());
    let jwk = home.keys.jwks()["keys"][0].to_string();
    let chosen_key = format!(r#""jwk":{jwk}"#);
    let more = [
        r#""jku":"https://evil.example/jwks.json""#,
        &chosen_key,
        r#""x5u":"https://evil.example/cert.pem""#,
        r#""x5c":["AAAA"]"#,
        r#""x5t":"AAAA""#,
        r#""x5t#S256":"AAAA""#,
        r#""crit":["exp"]"#,
        r#""crit":[]"#,
        r#""crit":["b64"],"b64":true"#,
        r#""b64":true"#,
        r#""cty":"JWT""#,
        r#""zip":"DEF""#,
        r#""alg":"EdDSA""#,
        r#""alg":"none""#,
        r#""\u0061lg":"EdDSA""#,
        r#""typ":"weft-grant+jwt""#,
        r#""kid":"x""#,
        r#""":1"#,
    ];
    for more in more {
        let token = home.signed(&home.header_with(more), &claims);
        assert_eq!(home.grant(&token), malformed(Fault::Header), "{more}");
    }
    assert!(
        home.grant(&home.signed(&home.header(GRANT), &claims))
            .is_ok()
    );
}

#[test]
fn a_key_that_is_not_ours_is_a_bad_signature() {
    let (home, other) = (Home::new(), Home::new());
    let claims = json(&grant_claims());
    // The other node's whole token, its key under our id, ours under its id, and ids of no key.
    assert_eq!(
        home.grant(mint_grant(&other.keys, &grant_claims()).expose()),
        Err(Refusal::Signature)
    );
    let stolen_id = other.signed(&home.header(GRANT), &claims);
    assert_eq!(home.grant(&stolen_id), Err(Refusal::Signature));
    let foreign_id = home.signed(&other.header(GRANT), &claims);
    assert_eq!(home.grant(&foreign_id), Err(Refusal::Signature));
    for kid in ["", "x", "../x", "*", "' OR 1=1 --"] {
        let header = home.header(GRANT).replace(home.keys.kid(), kid);
        assert_eq!(
            home.grant(&home.signed(&header, &claims)),
            Err(Refusal::Signature),
            "{kid}"
        );
    }
}

#[test]
fn the_size_is_bounded_before_anything() {
    let home = Home::new();
    let claims = GrantClaims {
        topic: "t".repeat(TOKEN_BYTES_MAX),
        ..grant_claims()
    };
    let token = mint_grant(&home.keys, &claims);
    assert_eq!(home.grant(token.expose()), malformed(Fault::TooLong));
    assert_eq!(
        home.grant(&"é".repeat(TOKEN_BYTES_MAX)),
        malformed(Fault::TooLong)
    );
}

#[test]
fn only_three_parts_are_a_token() {
    let home = Home::new();
    let token = mint_grant(&home.keys, &grant_claims());
    let parts: Vec<&str> = token.expose().split('.').collect();
    for bad in [
        String::new(),
        parts[0].to_owned(),
        parts[..2].join("."),
        format!("{}.", token.expose()),
        format!(".{}", token.expose()),
        format!("{}.{}", token.expose(), parts[2]),
        format!("{0}..{1}", parts[0], parts[1..].join(".")),
    ] {
        assert_eq!(home.grant(&bad), malformed(Fault::Parts), "{}", bad.len());
    }
    for bad in [
        format!("Bearer {}", token.expose()),
        format!("{} ", token.expose()),
    ] {
        let refused = home.grant(&bad);
        assert!(matches!(
            refused,
            Err(Refusal::Malformed(Fault::Encoding(_)))
        ));
    }
}

#[test]
fn refusals_have_public_names_and_show_no_token() {
    let home = Home::new();
    let secret = "s3cret-claim";
    let claims = GrantClaims {
        iss: secret.to_owned(),
        ..grant_claims()
    };
    let token = mint_grant(&home.keys, &claims);
    let header = home.header_with(&format!(r#""{secret}":1"#));
    let unknown = home.header(GRANT).replace(home.keys.kid(), secret);
    let body = json(&grant_claims());
    let cases = [
        ("grant-malformed", token.expose().to_owned()),
        ("grant-malformed", home.signed(&header, &body)),
        ("grant-malformed", home.signed(&home.header(secret), &body)),
        ("grant-malformed", format!("{secret}.{secret}.{secret}")),
        (
            "grant-malformed",
            home.signed(&home.header(GRANT), &format!(r#"{{"{secret}":1}}"#)),
        ),
        ("grant-signature", home.signed(&unknown, &body)),
    ];
    for (name, token) in cases {
        let refusal = home.grant(&token).unwrap_err();
        assert_eq!(refusal.name(), name);
        let shown = format!("{refusal} {refusal:?}");
        assert!(!shown.contains(secret), "{shown}");
        assert!(
            token.split('.').all(|part| !shown.contains(part)),
            "{shown}"
        );
    }
    assert_eq!(Refusal::Expired.name(), "grant-expired");
    assert_eq!(Refusal::Early.name(), "grant-early");
}
