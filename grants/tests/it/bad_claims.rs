//! Tokens rightly signed by the home's own key that still do not say what they must.

use weft_grants::{
    AccessClaims, Fault, GrantClaims, Refusal, mint_access, mint_grant, verify_access, verify_grant,
};

use crate::home::{
    ACCESS, AUD, GRANT, Home, ISS, NOW, access_claims, grant_claims, json, malformed,
};

#[test]
fn kinds_of_token_do_not_stand_for_each_other() {
    let home = Home::new();
    let (grant, access) = (json(&grant_claims()), json(&access_claims()));
    for typ in [
        "JWT",
        "jwt",
        "WEFT-GRANT+JWT",
        "application/weft-grant+jwt",
        ACCESS,
        "",
    ] {
        let token = home.signed(&home.header(typ), &grant);
        assert_eq!(home.grant(&token), malformed(Fault::Type(GRANT)), "{typ}");
    }
    let token = mint_grant(&home.keys, &grant_claims());
    assert_eq!(home.access(token.expose()), malformed(Fault::Type(ACCESS)));
    // The type of the one with the claims of the other.
    let mixed = home.signed(&home.header(GRANT), &access);
    assert_eq!(home.grant(&mixed), malformed(Fault::Claims("grant")));
    let mixed = home.signed(&home.header(ACCESS), &grant);
    assert_eq!(home.access(&mixed), malformed(Fault::Claims("API")));
}

#[test]
fn claims_are_exactly_those_of_the_kind() {
    let home = Home::new();
    let good = json(&grant_claims());
    let cases = [
        good.replace(r#""uses":1"#, r#""uses":1,"admin":true"#),
        good.replace(r#""uses":1"#, r#""uses":1,"uses":2"#),
        good.replace(r#""uses":1"#, r#""uses":"1""#),
        good.replace(r#""uses":1"#, r#""uses":-1"#),
        good.replace(r#""uses":1"#, r#""uses":1.0"#),
        good.replace(r#""uses":1"#, r#""uses":4294967297"#),
        good.replace(r#""uses":1,"#, ""),
        good.replace(r#""topic":"builds""#, r#""topic":null"#),
        good.replace(&format!(r#""aud":"{AUD}""#), &format!(r#""aud":["{AUD}"]"#)),
        good.replace(&format!(r#""exp":{}"#, NOW + 3600), r#""exp":1e300"#),
        good.replace(&format!(r#","exp":{}"#, NOW + 3600), ""),
        good.replace(&format!(r#""iat":{NOW},"#), ""),
        format!("[{good}]"),
        format!(
            r#"["{ISS}","{AUD}","g-1","builds",null,null,1,{NOW},null,{}]"#,
            NOW + 60
        ),
        format!("{good}{good}"),
        String::new(),
        "null".to_owned(),
        "[".repeat(4000),
    ];
    for claims in cases {
        assert_ne!(claims, good);
        let token = home.signed(&home.header(GRANT), &claims);
        assert_eq!(
            home.grant(&token),
            malformed(Fault::Claims("grant")),
            "{claims}"
        );
    }
    for uses in [0, 10_001, u32::MAX] {
        let token = mint_grant(
            &home.keys,
            &GrantClaims {
                uses,
                ..grant_claims()
            },
        );
        assert_eq!(home.grant(token.expose()), malformed(Fault::Uses), "{uses}");
    }
    for scope in ["", " ", "root", "admin admin:x", "mesh:read:a..b"] {
        let scope = scope.to_owned();
        let token = mint_access(
            &home.keys,
            &AccessClaims {
                scope,
                ..access_claims()
            },
        );
        assert_eq!(home.access(token.expose()), malformed(Fault::Scope));
    }
}

#[test]
fn audience_and_issuer_are_exact() {
    let home = Home::new();
    for aud in [
        "",
        "weft:mesh:m-2",
        "weft:mesh:m-1 ",
        "weft:mesh:m-",
        "WEFT:mesh:m-1",
        "*",
    ] {
        let aud = aud.to_owned();
        let token = mint_grant(
            &home.keys,
            &GrantClaims {
                aud: aud.clone(),
                ..grant_claims()
            },
        );
        assert_eq!(home.grant(token.expose()), malformed(Fault::Audience));
        let token = mint_access(
            &home.keys,
            &AccessClaims {
                aud,
                ..access_claims()
            },
        );
        assert_eq!(home.access(token.expose()), malformed(Fault::Audience));
    }
    for iss in ["", "n-2", "n-1 ", "n-"] {
        let iss = iss.to_owned();
        let token = mint_grant(
            &home.keys,
            &GrantClaims {
                iss: iss.clone(),
                ..grant_claims()
            },
        );
        assert_eq!(home.grant(token.expose()), malformed(Fault::Issuer));
        let token = mint_access(
            &home.keys,
            &AccessClaims {
                iss,
                ..access_claims()
            },
        );
        assert_eq!(home.access(token.expose()), malformed(Fault::Issuer));
    }
}

#[test]
fn time_is_checked_with_thirty_seconds_of_leeway() {
    let home = Home::new();
    let late = GrantClaims {
        nbf: Some(NOW + 100),
        ..grant_claims()
    };
    let grant = mint_grant(&home.keys, &grant_claims());
    let late = mint_grant(&home.keys, &late);
    let access = mint_access(&home.keys, &access_claims());
    let at = |token, now| verify_grant(token, &home.keys, AUD, ISS, now).map(|_| ());
    let end = NOW + 3600;
    for (now, right) in [
        (0, Err(Refusal::Early)),
        (NOW - 86_400, Err(Refusal::Early)),
        (NOW - 31, Err(Refusal::Early)),
        (NOW - 30, Ok(())),
        (end + 29, Ok(())),
        (end + 30, Err(Refusal::Expired)),
        (u64::MAX, Err(Refusal::Expired)),
    ] {
        assert_eq!(at(grant.expose(), now), right, "{now}");
        let access = verify_access(access.expose(), &home.keys, AUD, ISS, now);
        assert_eq!(access.map(|_| ()), right, "{now}");
    }
    assert_eq!(at(late.expose(), NOW + 69), Err(Refusal::Early));
    assert_eq!(at(late.expose(), NOW + 70), Ok(()));
}
