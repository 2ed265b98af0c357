//! The files of the keys: `keys/<kid>.ed25519` in a folder of their own, one private JWK each.
//!
//! A file is only ever whole: it is written under another name, flushed, renamed, and its folder is
//! flushed. What is read must be exactly what was written, or nothing is taken from it.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::{SECRET_KEY_LENGTH, SigningKey};
use rustix::fs::OFlags;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{
    error::KeyError,
    keys::{public_text, thumbprint},
    limits::{KEY_FILE_BYTES_MAX, KEYS_MAX},
};

const FOLDER: &str = "keys";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const EXTENSION: &str = "ed25519";
/// How the name of a key begins that is still being written. No thumbprint has a dot.
const UNFINISHED: &str = ".new-";
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// A key as it lies on disk.
pub(crate) struct StoredKey {
    /// The RFC 7638 thumbprint of the public half.
    pub(crate) kid: String,
    /// Milliseconds since 1970; kept in the file, since a copy has other file times.
    pub(crate) created_at_ms: u64,
    pub(crate) secret: SigningKey,
}

/// The file's content: a private JWK of RFC 8037, and when it was made. The public half and the
/// thumbprint follow from `d`, so that damage to any byte shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jwk<'a> {
    kty: &'a str,
    crv: &'a str,
    kid: &'a str,
    x: &'a str,
    d: &'a str,
    #[serde(rename = "createdAt")]
    created_at_ms: u64,
}

/// The folder of the keys below `dir`, made where it is missing and looked at where it is not.
pub(crate) fn open_folder(dir: &Path) -> Result<PathBuf, KeyError> {
    let folder = dir.join(FOLDER);
    let found = match fs::symlink_metadata(&folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_folder(dir, &folder)?,
        Err(error) => return Err(failed("look at", &folder)(error)),
    };
    if !found.is_dir() {
        return Err(KeyError::NotAFolder(folder));
    }
    private(&folder, &found, FOLDER_MODE)?;
    Ok(folder)
}

fn make_folder(dir: &Path, folder: &Path) -> Result<Metadata, KeyError> {
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)
        .map_err(failed("make", folder))?;
    flush(dir)?;
    fs::symlink_metadata(folder).map_err(failed("look at", folder))
}

/// All keys in the folder, the newest first. Anything else in it is an error, but for a key whose
/// writing was cut short, which is removed: nobody can have used it.
pub(crate) fn read_all(folder: &Path) -> Result<Vec<StoredKey>, KeyError> {
    let mut keys = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
        let path = entry.map_err(failed("list", folder))?.path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.starts_with(UNFINISHED) {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
            continue;
        }
        let Some((kid, EXTENSION)) = name.rsplit_once('.') else {
            return Err(KeyError::Stray(path));
        };
        if keys.len() == KEYS_MAX {
            return Err(KeyError::TooMany(folder.to_owned()));
        }
        keys.push(read(&path, kid)?);
    }
    // By id where two have one time, so that every reader agrees on the newest.
    keys.sort_by(|a, b| (b.created_at_ms, &b.kid).cmp(&(a.created_at_ms, &a.kid)));
    Ok(keys)
}

fn read(path: &Path, kid: &str) -> Result<StoredKey, KeyError> {
    // Not through a link, and not waiting for the other end should this be a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(failed("open", path))?;
    let found = file.metadata().map_err(failed("look at", path))?;
    if !found.is_file() {
        return Err(KeyError::Stray(path.to_owned()));
    }
    private(path, &found, FILE_MODE)?;

    let damaged = |reason| KeyError::Damaged {
        path: path.to_owned(),
        reason,
    };
    if found.len() > KEY_FILE_BYTES_MAX {
        return Err(damaged("it is longer than any key"));
    }
    // Room for all of it at once, since a buffer that grows would leave copies behind.
    let room = KEY_FILE_BYTES_MAX as usize + 1;
    let mut text = Zeroizing::new(Vec::with_capacity(room));
    file.take(KEY_FILE_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(failed("read", path))?;
    parse(&text, kid).map_err(damaged)
}

/// A key out of its file's content, if that is wholly of one piece and of the name `kid`.
fn parse(text: &[u8], kid: &str) -> Result<StoredKey, &'static str> {
    let jwk: Jwk<'_> =
        serde_json::from_slice(text).map_err(|_| "it is no key as weft writes it")?;
    if (jwk.kty, jwk.crv) != ("OKP", "Ed25519") {
        return Err("it is no Ed25519 key");
    }
    // One byte more than a seed has: the decoder counts on whole groups of four characters.
    let mut seed = Zeroizing::new([0; SECRET_KEY_LENGTH + 1]);
    let length = URL_SAFE_NO_PAD.decode_slice(jwk.d, &mut *seed);
    if length != Ok(SECRET_KEY_LENGTH) {
        return Err("its d is no seed of 32 bytes in base64url");
    }
    let (seed, _) = seed.split_first_chunk().ok_or("its d is too short")?;
    let secret = SigningKey::from_bytes(seed);
    let public = secret.verifying_key();
    if jwk.x != public_text(&public) {
        return Err("its x does not belong to its d");
    }
    if jwk.kid != thumbprint(&public) {
        return Err("its kid is not its thumbprint");
    }
    if jwk.kid != kid {
        return Err("it is the key of another file name");
    }
    Ok(StoredKey {
        kid: kid.to_owned(),
        created_at_ms: jwk.created_at_ms,
        secret,
    })
}

/// Makes a key and puts it on stable storage before anything can be signed with it.
pub(crate) fn make(folder: &Path, now_ms: u64) -> Result<StoredKey, KeyError> {
    let mut seed = Zeroizing::new([0; SECRET_KEY_LENGTH]);
    getrandom::fill(&mut *seed)?;
    let secret = SigningKey::from_bytes(&seed);
    let key = StoredKey {
        kid: thumbprint(&secret.verifying_key()),
        created_at_ms: now_ms,
        secret,
    };
    let path = path_of(folder, &key.kid);
    let unfinished = folder.join(format!("{UNFINISHED}{}", key.kid));
    write(&unfinished, &render(&key)).map_err(failed("write", &unfinished))?;
    fs::rename(&unfinished, &path).map_err(failed("name", &path))?;
    flush(folder)?;
    Ok(key)
}

fn render(key: &StoredKey) -> Zeroizing<String> {
    let seed = Zeroizing::new(URL_SAFE_NO_PAD.encode(key.secret.as_bytes()));
    let parts = [
        r#"{"kty":"OKP","crv":"Ed25519","kid":""#,
        &key.kid,
        r#"","x":""#,
        &public_text(&key.secret.verifying_key()),
        r#"","d":""#,
        &seed,
        r#"","createdAt":"#,
        &key.created_at_ms.to_string(),
        "}\n",
    ];
    // Again room for all at once.
    let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX as usize));
    text.extend(parts);
    text
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    // The umask may have taken bits away that we need.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Removes the files of keys.
pub(crate) fn remove(folder: &Path, keys: &[StoredKey]) -> Result<(), KeyError> {
    if keys.is_empty() {
        return Ok(());
    }
    for key in keys {
        let path = path_of(folder, &key.kid);
        fs::remove_file(&path).map_err(failed("remove", &path))?;
    }
    flush(folder)
}

fn path_of(folder: &Path, kid: &str) -> PathBuf {
    folder.join(format!("{kid}.{EXTENSION}"))
}

/// Whether a file or folder is ours alone.
fn private(path: &Path, found: &Metadata, want: u32) -> Result<(), KeyError> {
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(KeyError::Foreign {
            path: path.to_owned(),
            owner: found.uid(),
        });
    }
    let mode = found.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(KeyError::Exposed {
            path: path.to_owned(),
            mode,
            want,
        });
    }
    Ok(())
}

/// Makes the names in a folder durable.
fn flush(folder: &Path) -> Result<(), KeyError> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(failed("flush", folder))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyError {
    move |source| KeyError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut path = dir.path().to_owned();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        } else {
            path = PathBuf::from("/");
        }
        let found = fs::symlink_metadata(&path).unwrap();
        let refused = private(&path, &found, FOLDER_MODE);
        assert!(matches!(refused, Err(KeyError::Foreign { owner, .. }) if owner == found.uid()));
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let secret = SigningKey::from_bytes(&[7; SECRET_KEY_LENGTH]);
        let key = StoredKey {
            kid: thumbprint(&secret.verifying_key()),
            created_at_ms: u64::MAX,
            secret,
        };
        let text = render(&key);
        let read = parse(text.as_bytes(), &key.kid).unwrap_or_else(|reason| panic!("{reason}"));
        assert_eq!(read.secret, key.secret);
        assert_eq!(read.created_at_ms, key.created_at_ms);

        let refused = |text: &str| parse(text.as_bytes(), &key.kid).err();
        assert_eq!(
            refused(&text.replace("OKP", "EC")),
            Some("it is no Ed25519 key")
        );
        assert_eq!(
            parse(text.as_bytes(), "other").err(),
            Some("it is the key of another file name")
        );
        for (from, to) in [
            (r#","createdAt""#, r#","use":"sig","createdAt""#),
            (r#""kty":"OKP","#, r#""kty":"OKP","kty":"OKP","#),
            (r#""kty":"OKP","#, ""),
        ] {
            let bad = text.replace(from, to);
            assert_eq!(
                refused(&bad),
                Some("it is no key as weft writes it"),
                "{to}"
            );
        }
    }
}
