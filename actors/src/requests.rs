//! Request ids: a change that is asked for again, because its answer was lost, happens once and is answered as before.
//!
//! What makes rows keeps its request in the same transaction. One event needs no row: its id is made of the request, and the
//! log knows its ids longer than a request has to be known.

use std::fmt::Write as _;

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use weft_mesh::limits::BATCH_EVENTS_MAX;
use weft_mesh::{Appended, Draft, EventId, MeshError, Tx};

use crate::caller::Caller;
use crate::check;
use crate::error::{Error, Result};
use crate::house::House;
use crate::limits::{KEY_CHARS_MAX, REQUEST_KEPT_MS};
use crate::task::wire::Mark;

/// The table.
pub(crate) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS requests (
  caller     TEXT NOT NULL,
  request_id TEXT NOT NULL,
  digest     BLOB NOT NULL,
  made       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (caller, request_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_age ON requests (created_at);
";

/// A request id with whose it is and what it asked.
#[derive(Debug, Clone)]
pub struct RequestKey {
    /// Whose: see [`Caller::request_space`].
    space: String,
    /// The id.
    id: String,
    /// The digest of the body.
    digest: Vec<u8>,
}

impl RequestKey {
    /// The key of request `id` of this caller, with the digest of its body; none for none.
    ///
    /// # Errors
    /// For an id that is empty or longer than [`KEY_CHARS_MAX`].
    pub fn of(caller: &Caller, id: Option<&str>, body: &impl Serialize) -> Result<Option<Self>> {
        let Some(id) = id else { return Ok(None) };
        check::text("requestId", Some(id), KEY_CHARS_MAX)?;
        let body = serde_json::to_vec(body)
            .map_err(|error| Error::Internal(format!("a request is no JSON: {error}")))?;
        Ok(Some(RequestKey {
            space: caller.request_space(),
            id: id.to_owned(),
            digest: Sha256::digest(&body).to_vec(),
        }))
    }

    /// What a shim knows this request by, since it does it without the store.
    pub fn mark(&self) -> Mark {
        Mark {
            id: hex(&Sha256::digest(format!("{}\n{}", self.space, self.id))),
            body: hex(&self.digest),
        }
    }

    /// What this request made, where it was kept before.
    ///
    /// # Errors
    /// [`Error::RequestIdReused`] where it asked for something else then.
    pub fn made<T: DeserializeOwned>(&self, sql: &Connection) -> Result<Option<T>> {
        let found: Option<(Vec<u8>, String)> = sql
            .prepare_cached(
                "SELECT digest, made FROM requests WHERE caller = ?1 AND request_id = ?2",
            )?
            .query_row([&self.space, &self.id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        match found {
            None => Ok(None),
            Some((known, made)) if known == self.digest => {
                serde_json::from_str(&made).map(Some).map_err(|error| {
                    Error::Internal(format!("what a request made is no JSON: {error}"))
                })
            }
            Some(_) => Err(Error::RequestIdReused(self.id.clone())),
        }
    }

    /// Remembers what this request made, in the transaction that makes it, and forgets requests that are over their time.
    pub fn keep(&self, tx: &Tx<'_>, made: &impl Serialize) -> Result<()> {
        let made = text_of(made)?;
        let now = tx.now();
        tx.sql()
            .prepare_cached("DELETE FROM requests WHERE created_at < ?1")?
            .execute([now.saturating_sub(REQUEST_KEPT_MS)])?;
        tx.sql()
            .prepare_cached("INSERT INTO requests (caller, request_id, digest, made, created_at) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![self.space, self.id, self.digest, made, now])?;
        Ok(())
    }
}

/// Whether a request that is still known made `made`.
pub fn has_made(sql: &Connection, made: &impl Serialize) -> Result<bool> {
    let known = sql
        .prepare_cached("SELECT 1 FROM requests WHERE made = ?1")?
        .exists([text_of(made)?])?;
    Ok(known)
}

/// What a request made, as it is kept.
fn text_of(made: &impl Serialize) -> Result<String> {
    serde_json::to_string(made)
        .map_err(|error| Error::Internal(format!("what a request made is no JSON: {error}")))
}

/// Forgets the request that made `made`: that came to nothing, and a repeat is to try again.
pub fn forget(sql: &Connection, made: &impl Serialize) -> Result<()> {
    sql.prepare_cached("DELETE FROM requests WHERE made = ?1")?
        .execute([text_of(made)?])?;
    Ok(())
}

/// Appends an event, and for one request once.
///
/// # Errors
/// As [`weft_mesh::Store::publish`]; [`Error::RequestIdReused`] where the request published something else before.
pub async fn publish(
    house: &House,
    caller: &Caller,
    request: Option<&str>,
    mut draft: Draft,
) -> Result<Appended> {
    let request = request.filter(|_| draft.id.is_none());
    if let Some(request) = request {
        draft.id = Some(event_id(&caller.request_space(), request)?);
    }
    let appended = house.store.publish(draft).await;
    appended.map_err(|error| refusal(error, request))
}

/// What a refusal of an event means whose id was made of `request`: whoever took that id is the same request with another body.
pub fn refusal(error: MeshError, request: Option<&str>) -> Error {
    match (error, request) {
        (MeshError::IdConflict { .. }, Some(request)) => Error::RequestIdReused(request.to_owned()),
        (error, _) => error.into(),
    }
}

/// Appends all of these events or none, and for one request once.
///
/// # Errors
/// As [`weft_mesh::Store::publish_batch`]; [`Error::RequestIdReused`] where the request published something else before.
pub async fn publish_batch(
    house: &House,
    request: Option<RequestKey>,
    mut drafts: Vec<Draft>,
) -> Result<Vec<Appended>> {
    // That there are too many the log says in its own words.
    let Some(request) = request.filter(|_| drafts.len() <= BATCH_EVENTS_MAX) else {
        return Ok(house.store.publish_batch(drafts).await?);
    };
    // Ids of their own for all, by which a repeat finds its events, or what is left of them.
    for draft in &mut drafts {
        draft.id.get_or_insert_with(EventId::make);
    }
    house
        .commit(move |tx| {
            if let Some(made) = request.made::<Vec<EventId>>(tx.sql())? {
                for (draft, id) in drafts.iter_mut().zip(made) {
                    draft.id = Some(id);
                }
            } else {
                let ids: Vec<_> = drafts
                    .iter()
                    .filter_map(|draft| draft.id.as_ref())
                    .collect();
                request.keep(tx, &ids)?;
            }
            drafts.iter().map(|draft| Ok(tx.append(draft)?)).collect()
        })
        .await
}

/// The id of a request's event: the same for every repeat, and no other caller's.
///
/// # Errors
/// For a request id that is empty or longer than [`KEY_CHARS_MAX`].
pub fn event_id(space: &str, request: &str) -> Result<EventId> {
    const BYTES: usize = 16;
    check::text("requestId", Some(request), KEY_CHARS_MAX)?;
    // A length keeps apart what would be the same one after the other.
    let digest = Sha256::new()
        .chain_update(space.len().to_le_bytes())
        .chain_update(space)
        .chain_update(request)
        .finalize();
    Ok(format!("r-{}", hex(&digest[..BYTES])).parse()?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
