//! The keys of a home: made once, taken only when all is in order, rotated with an overlap.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use weft_grants::{
    KeyError, Keys, Refusal,
    limits::{KEY_OVERLAP_MS, KEYS_MAX},
    mint_access, mint_grant, verify_grant,
};

use crate::home::{AUD, Home, ISS, NOW, NOW_MS, access_claims, grant_claims};

fn folder(home: &Home) -> PathBuf {
    home.dir.path().join("keys")
}

fn file(home: &Home) -> PathBuf {
    folder(home).join(format!("{}.ed25519", home.keys.kid()))
}

fn load(home: &Home) -> Result<Keys, KeyError> {
    Keys::load_or_create(home.dir.path(), NOW_MS + 1)
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn ids(keys: &Keys) -> Vec<String> {
    keys.thumbprints().map(str::to_owned).collect()
}

#[test]
fn a_key_is_made_once_and_for_its_owner_alone() {
    let home = Home::new();
    assert_eq!(fs::metadata(folder(&home)).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(file(&home)).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::read_dir(folder(&home)).unwrap().count(), 1);

    let again = load(&home).unwrap();
    assert_eq!(again.kid(), home.keys.kid());
    let token = mint_grant(&home.keys, &grant_claims());
    assert_eq!(mint_grant(&again, &grant_claims()), token);
    assert!(verify_grant(token.expose(), &again, AUD, ISS, NOW).is_ok());
}

#[test]
fn the_folder_is_made_with_all_above_it() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("weft/homes/h-1");
    let keys = Keys::load_or_create(&deep, NOW_MS).unwrap();
    assert!(
        deep.join("keys")
            .join(format!("{}.ed25519", keys.kid()))
            .is_file()
    );
}

#[test]
fn what_is_open_to_others_is_refused() {
    let home = Home::new();
    for mode in [0o640, 0o604, 0o660, 0o644, 0o620, 0o601] {
        chmod(&file(&home), mode);
        let error = load(&home).unwrap_err();
        assert!(
            matches!(error, KeyError::Exposed { want: 0o600, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    chmod(&file(&home), 0o600);
    for mode in [0o750, 0o705, 0o755, 0o770, 0o777] {
        chmod(&folder(&home), mode);
        let error = load(&home).unwrap_err();
        assert!(
            matches!(error, KeyError::Exposed { want: 0o700, .. }),
            "{error}"
        );
    }
    chmod(&folder(&home), 0o700);
    chmod(&file(&home), 0o400);
    assert!(load(&home).is_ok());
}

#[test]
fn what_is_no_key_is_refused_by_name() {
    let home = Home::new();
    let kid = home.keys.kid();
    let names = [
        "notes.txt".to_owned(),
        ".hidden".to_owned(),
        kid.to_owned(),
        format!("{kid}.ed25519~"),
        format!("{kid}.ED25519"),
    ];
    for name in names {
        let stray = folder(&home).join(name);
        fs::write(&stray, "x").unwrap();
        let error = load(&home).unwrap_err();
        assert!(
            matches!(&error, KeyError::Stray(path) if *path == stray),
            "{error}"
        );
        fs::remove_file(&stray).unwrap();
    }
    let stray = folder(&home).join("x.ed25519");
    fs::create_dir(&stray).unwrap();
    assert!(matches!(load(&home), Err(KeyError::Stray(path)) if path == stray));
    fs::remove_dir(&stray).unwrap();
    symlink(file(&home), &stray).unwrap();
    assert!(matches!(load(&home), Err(KeyError::Io { action: "open", path, .. }) if path == stray));
    fs::remove_file(&stray).unwrap();
    assert!(load(&home).is_ok());
}

#[test]
fn a_folder_that_is_a_link_or_a_file_is_refused() {
    let home = Home::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let keys = elsewhere.path().join("keys");
    symlink(folder(&home), &keys).unwrap();
    let refused = Keys::load_or_create(elsewhere.path(), NOW_MS);
    assert!(matches!(refused, Err(KeyError::NotAFolder(_))));
    fs::remove_file(&keys).unwrap();
    symlink("nowhere", &keys).unwrap();
    let refused = Keys::load_or_create(elsewhere.path(), NOW_MS);
    assert!(matches!(refused, Err(KeyError::NotAFolder(_))));
    fs::remove_file(&keys).unwrap();
    fs::write(&keys, "").unwrap();
    let refused = Keys::load_or_create(elsewhere.path(), NOW_MS);
    assert!(matches!(refused, Err(KeyError::NotAFolder(_))));
    assert_eq!(fs::read(&keys).unwrap(), b"");
}

#[test]
fn a_changed_byte_in_a_key_file_is_noticed_and_not_shown() {
    let home = Home::new();
    let good = fs::read(file(&home)).unwrap();
    let created = String::from_utf8_lossy(&good).find("createdAt").unwrap() + "createdAt\":".len();
    let seed = String::from_utf8_lossy(&good).find("\"d\":\"").unwrap() + 5;
    let seed = String::from_utf8_lossy(&good[seed..seed + 43]).into_owned();
    // The time of making is what nothing else follows from; its digits are any key's.
    for at in 0..created {
        for other in [b'A', b'"', b'}', 0xff, good[at] ^ 1] {
            let mut bad = good.clone();
            bad[at] = other;
            if bad == good {
                continue;
            }
            fs::write(file(&home), &bad).unwrap();
            let error = load(&home).unwrap_err();
            assert!(
                matches!(error, KeyError::Damaged { .. }),
                "byte {at}: {error}"
            );
            assert!(!format!("{error} {error:?}").contains(&seed));
        }
    }
    for cut in [0, 1, good.len() / 2, good.len() - 2] {
        fs::write(file(&home), &good[..cut]).unwrap();
        assert!(
            matches!(load(&home), Err(KeyError::Damaged { .. })),
            "{cut}"
        );
    }
    fs::write(file(&home), [&good[..], &b" ".repeat(5000)].concat()).unwrap();
    assert!(matches!(load(&home), Err(KeyError::Damaged { .. })));
    fs::write(file(&home), &good).unwrap();
    assert!(load(&home).is_ok());
}

#[test]
fn a_key_under_another_name_is_refused() {
    let (home, other) = (Home::new(), Home::new());
    fs::copy(file(&other), file(&home)).unwrap();
    assert!(matches!(load(&home), Err(KeyError::Damaged { .. })));
}

#[test]
fn a_key_whose_writing_was_cut_short_is_cleared_away() {
    let home = Home::new();
    let cut = folder(&home).join(".new-abc");
    fs::write(&cut, "{\"kty\"").unwrap();
    assert_eq!(load(&home).unwrap().kid(), home.keys.kid());
    assert!(!cut.exists());
}

#[test]
fn rotation_overlaps() {
    let home = Home::new();
    let (grant, access) = (
        mint_grant(&home.keys, &grant_claims()),
        mint_access(&home.keys, &access_claims()),
    );
    let rotated = home.keys.rotate(NOW_MS + 1000).unwrap();
    assert_ne!(rotated.kid(), home.keys.kid());
    assert_eq!(ids(&rotated), [rotated.kid(), home.keys.kid()]);
    assert_eq!(ids(&load(&home).unwrap()), ids(&rotated));

    // The old key's tokens are good under the new keys, and the new key signs.
    let after = Home {
        keys: rotated,
        ..home
    };
    assert!(after.grant(grant.expose()).is_ok());
    assert!(after.access(access.expose()).is_ok());
    let fresh = mint_grant(&after.keys, &grant_claims());
    assert_ne!(fresh, grant);
    assert!(after.grant(fresh.expose()).is_ok());
}

#[test]
fn who_has_the_old_keys_only_refuses_the_new_signature() {
    let home = Home::new();
    let rotated = home.keys.rotate(NOW_MS + 1000).unwrap();
    let fresh = mint_grant(&rotated, &grant_claims());
    assert_eq!(home.grant(fresh.expose()), Err(Refusal::Signature));
}

#[test]
fn a_key_is_forgotten_when_all_it_signed_has_expired() {
    let home = Home::new();
    let first = home.keys.kid().to_owned();
    let second = home.keys.rotate(NOW_MS + 1000).unwrap();
    let third = second.rotate(NOW_MS + 1000 + KEY_OVERLAP_MS).unwrap();
    assert_eq!(ids(&third), [third.kid(), second.kid(), &first]);
    let fourth = third.rotate(NOW_MS + 1001 + KEY_OVERLAP_MS).unwrap();
    assert_eq!(ids(&fourth), [fourth.kid(), third.kid(), second.kid()]);
    assert!(!file(&home).exists());
    assert_eq!(ids(&load(&home).unwrap()), ids(&fourth));
}

#[test]
fn the_newest_key_signs_whatever_the_clock_says() {
    let home = Home::new();
    let rotated = home.keys.rotate(5).unwrap();
    assert_eq!(load(&home).unwrap().kid(), rotated.kid());
    let rotated = rotated.rotate(0).unwrap();
    assert_eq!(load(&home).unwrap().kid(), rotated.kid());
}

#[test]
fn keys_do_not_pile_up_without_end() {
    let home = Home::new();
    let mut keys = home.keys.clone();
    for round in 1..KEYS_MAX as u64 {
        keys = keys.rotate(NOW_MS + round).unwrap();
    }
    let before = ids(&keys);
    let refused = keys.rotate(NOW_MS + 1000);
    assert!(matches!(refused, Err(KeyError::TooMany(_))));
    assert_eq!(ids(&load(&home).unwrap()), before);
    // Once the overlap is over there is room again.
    assert_eq!(ids(&keys.rotate(NOW_MS * 2).unwrap()).len(), 2);
}

#[test]
fn nothing_secret_is_shown_or_published() {
    let home = Home::new();
    let text = fs::read_to_string(file(&home)).unwrap();
    let jwk: serde_json::Value = serde_json::from_str(&text).unwrap();
    let seed = jwk["d"].as_str().unwrap();
    assert!(!format!("{:?}", home.keys).contains(seed));
    assert!(!home.keys.jwks().to_string().contains(seed));
    assert_eq!(
        home.keys.jwks(),
        serde_json::json!({"keys": [{
            "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA",
            "kid": home.keys.kid(), "x": jwk["x"],
        }]})
    );
}
