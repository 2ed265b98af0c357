//! Whatever is handed in is read or refused, and never brings the process down.

use std::sync::OnceLock;

use proptest::prelude::*;
use weft_grants::{GrantClaims, Refusal, mint_grant, verify_grant};

use crate::home::{AUD, GRANT, Home, ISS, grant_claims, json};

const CLAIMS: &str = "{}";

proptest! {
    #[test]
    fn any_text_is_refused_without_a_panic(text in ".*", dotted in "[A-Za-z0-9_.=-]{0,200}") {
        let home = shared();
        for text in [text, dotted] {
            prop_assert!(home.grant(&text).is_err());
            prop_assert!(home.access(&text).is_err());
        }
    }

    #[test]
    fn any_signed_content_is_read_or_refused(
        claims in ".*",
        topic in ".*",
        times in any::<(u64, Option<u64>, u64)>(),
        now in any::<u64>(),
    ) {
        let home = shared();
        let token = home.signed(&home.header(GRANT), &claims);
        prop_assert!(verify_grant(&token, &home.keys, AUD, ISS, now).is_err());
        let (iat, nbf, exp) = times;
        let claims = GrantClaims { topic, iat, nbf, exp, ..grant_claims() };
        let token = mint_grant(&home.keys, &claims);
        match verify_grant(token.expose(), &home.keys, AUD, ISS, now) {
            Ok(read) => prop_assert_eq!(read, claims),
            Err(refusal) => prop_assert!(matches!(refusal, Refusal::Early | Refusal::Expired)),
        }
    }

    #[test]
    fn any_header_is_refused_without_a_panic(header in ".*", kid in ".*") {
        let home = shared();
        prop_assert!(home.grant(&home.signed(&header, CLAIMS)).is_err());
        let header = serde_json::json!({"alg": "EdDSA", "typ": GRANT, "kid": kid}).to_string();
        let refused = home.grant(&home.signed(&header, &json(&grant_claims())));
        prop_assert_eq!(refused, Err(Refusal::Signature));
    }
}

/// One home for all rounds of a property; none of them changes it.
fn shared() -> &'static Home {
    static HOME: OnceLock<Home> = OnceLock::new();
    HOME.get_or_init(Home::new)
}
