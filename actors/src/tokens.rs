//! Access tokens: rows beside the signature, so that a token can be listed and revoked.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use rusqlite::{Connection, OptionalExtension, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::AccessClaims;
use weft_mesh::Tx;

use crate::caller::{Caller, Identity};
use crate::error::{Error, Result};
use crate::house::House;

/// The table of tokens.
pub const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS tokens (
  jti        TEXT PRIMARY KEY,
  name       TEXT,
  session    TEXT NOT NULL,
  scope      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked_at INTEGER
) WITHOUT ROWID;
";

/// A token as it is listed. The token itself is shown once, when it is made.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenRow {
    /// Its id.
    pub token_id: String,
    /// A person's name for it.
    pub name: Option<String>,
    /// The owner session that it acts as, an own one.
    pub session: String,
    /// What it may do.
    pub scope: String,
    /// Epoch milliseconds.
    pub created_at: u64,
    /// Epoch milliseconds.
    pub expires_at: u64,
    /// Epoch milliseconds; null while it is good.
    pub revoked_at: Option<u64>,
}

fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<TokenRow> {
    Ok(TokenRow {
        token_id: row.get(0)?,
        name: row.get(1)?,
        session: row.get(2)?,
        scope: row.get(3)?,
        created_at: row.get(4)?,
        expires_at: row.get(5)?,
        revoked_at: row.get(6)?,
    })
}

const COLUMNS: &str = "jti, name, session, scope, created_at, expires_at, revoked_at";

/// Enters a new token.
pub fn insert(tx: &mut Tx<'_>, row: &TokenRow) -> Result<()> {
    tx.sql()
        .prepare_cached("INSERT INTO tokens (jti, name, session, scope, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![row.token_id, row.name, row.session, row.scope, row.created_at, row.expires_at])?;
    Ok(())
}

/// All tokens, newest first.
pub fn all(sql: &Connection) -> Result<Vec<TokenRow>> {
    let mut statement = sql.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM tokens ORDER BY created_at DESC"
    ))?;
    let rows = statement
        .query_map([], from_row)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(rows)
}

/// The token of this id.
pub fn get(sql: &Connection, jti: &str) -> Result<Option<TokenRow>> {
    Ok(sql
        .prepare_cached(&format!("SELECT {COLUMNS} FROM tokens WHERE jti = ?1"))?
        .query_row([jti], from_row)
        .optional()?)
}

/// Revokes a token.
pub fn revoke(tx: &mut Tx<'_>, jti: &str) -> Result<TokenRow> {
    let now = tx.now();
    tx.sql()
        .prepare_cached("UPDATE tokens SET revoked_at = coalesce(revoked_at, ?2) WHERE jti = ?1")?
        .execute(params![jti, now])?;
    get(tx.sql(), jti)?.ok_or_else(|| Error::NotFound {
        what: "token",
        id: jti.to_owned(),
    })
}

/// The rows of tokens in use, so that a call with one costs no look into the store. All changes go through this node, which keeps
/// it true.
#[derive(Debug, Default)]
pub struct TokenBook(RwLock<HashMap<String, TokenRow>>);

impl TokenBook {
    fn get(&self, jti: &str) -> Option<TokenRow> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(jti)
            .cloned()
    }

    /// Notes a row of the store. A revoked one is never replaced by one that is not: that was read before.
    pub fn put(&self, row: TokenRow) {
        let mut rows = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if rows
            .get(&row.token_id)
            .is_none_or(|known| known.revoked_at.is_none())
        {
            rows.insert(row.token_id.clone(), row);
        }
    }
}

/// The caller that a token with these (verified) claims makes: known here, and not revoked.
pub async fn check(house: &House, claims: &AccessClaims) -> Result<Caller> {
    let scopes = claims.scopes().map_err(|error| {
        Error::Unauthorized(format!("the token's scopes cannot be read: {error}"))
    })?;
    let mut row = house.tokens.get(&claims.jti);
    if row.is_none() {
        let jti = claims.jti.clone();
        row = house.look(move |sql| get(sql, &jti)).await?;
        if let Some(row) = &row {
            house.tokens.put(row.clone());
        }
    }
    match row {
        Some(row) if row.revoked_at.is_none() => Ok(Caller {
            identity: Identity::Token {
                jti: row.token_id,
                scopes,
            },
            session: row.session,
        }),
        Some(_) => Err(Error::TokenRevoked),
        None => Err(Error::Unauthorized(
            "the token is not known to this store; make another with `weft token create`".into(),
        )),
    }
}

/// The key that streams of a token watch, to end with it.
pub fn wake_key(jti: &str) -> String {
    format!("token:{jti}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_token_stays_revoked_whatever_was_read_before() {
        let row = TokenRow {
            token_id: "k-1".into(),
            name: None,
            session: "token-1".into(),
            scope: "admin".into(),
            created_at: 1,
            expires_at: 2,
            revoked_at: None,
        };
        let book = TokenBook::default();
        book.put(TokenRow {
            revoked_at: Some(1),
            ..row.clone()
        });
        book.put(row);
        assert_eq!(book.get("k-1").and_then(|row| row.revoked_at), Some(1));
    }
}
