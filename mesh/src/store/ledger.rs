//! The grant ledger: who may still post how often. Rows outlive their grants' time.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::append::stored_time;
use crate::error::MeshError;
use crate::grant::{GrantRow, NewGrant};
use crate::limits::GRANT_KEPT_MS;

const COLUMNS: &str = "jti, topic, kind, eid, uses, used, exp, description, created_at, revoked_at, last_used_at, minted_by, epoch";

pub(super) fn insert(
    conn: &Connection,
    grant: &NewGrant,
    epoch: &str,
    now: u64,
) -> Result<(), MeshError> {
    let mut insert = conn.prepare_cached(
        "INSERT INTO grants (jti, topic, kind, eid, uses, exp, description, created_at, minted_by, epoch) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    insert.execute(params![
        grant.jti,
        grant.topic.as_str(),
        grant.kind.as_ref().map(AsRef::<str>::as_ref),
        grant.eid.as_ref().map(AsRef::<str>::as_ref),
        grant.uses,
        stored_time(grant.exp),
        grant.description,
        stored_time(now),
        grant.minted_by,
        epoch,
    ])?;
    Ok(())
}

/// What decides whether a grant may be spent.
pub(super) struct Balance {
    pub(super) uses: u32,
    pub(super) used: u32,
}

/// The balance of a grant that is of this epoch and not revoked. A grant the ledger does not know was in a store that
/// was replaced.
pub(super) fn balance(conn: &Connection, jti: &str, epoch: &str) -> Result<Balance, MeshError> {
    let mut select = conn.prepare_cached(
        "SELECT uses, used FROM grants WHERE jti = ?1 AND epoch = ?2 AND revoked_at IS NULL",
    )?;
    let found = select
        .query_row((jti, epoch), |row| {
            Ok(Balance {
                uses: row.get(0)?,
                used: row.get(1)?,
            })
        })
        .optional()?;
    found.ok_or(MeshError::GrantRevoked)
}

/// Spends one use and gives those left.
///
/// Invariant: at most `uses` posts a grant. The check and the count are in the writer's one transaction.
pub(super) fn spend(
    conn: &Connection,
    jti: &str,
    balance: &Balance,
    now: u64,
) -> Result<u32, MeshError> {
    let uses = balance.uses;
    let left = uses
        .checked_sub(balance.used + 1)
        .ok_or(MeshError::GrantSpent { uses })?;
    conn.prepare_cached("UPDATE grants SET used = used + 1, last_used_at = ?2 WHERE jti = ?1")?
        .execute((jti, stored_time(now)))?;
    Ok(left)
}

pub(super) fn revoke(conn: &Connection, jti: &str, now: u64) -> Result<bool, MeshError> {
    let mut update = conn
        .prepare_cached("UPDATE grants SET revoked_at = ifnull(revoked_at, ?2) WHERE jti = ?1")?;
    Ok(update.execute((jti, stored_time(now)))? > 0)
}

/// Revokes what an older epoch left behind.
pub(super) fn revoke_other_epochs(
    conn: &Connection,
    epoch: &str,
    now: u64,
) -> Result<(), MeshError> {
    conn.execute(
        "UPDATE grants SET revoked_at = ?2 WHERE epoch <> ?1 AND revoked_at IS NULL",
        (epoch, stored_time(now)),
    )?;
    Ok(())
}

/// When a grant may be forgotten, in epoch milliseconds.
pub(super) fn forgotten_at(exp_secs: u64) -> u64 {
    exp_secs.saturating_mul(1000).saturating_add(GRANT_KEPT_MS)
}

/// When the first of all grants may be forgotten, in epoch milliseconds.
pub(super) fn next_to_forget(conn: &Connection) -> Result<u64, MeshError> {
    let exp: Option<u64> = conn.query_row("SELECT min(exp) FROM grants", [], |row| row.get(0))?;
    Ok(exp.map_or(u64::MAX, forgotten_at))
}

/// Forgets grants whose time was over long ago, at most `rows_max`, and gives their number.
pub(super) fn forget(conn: &Connection, now: u64, rows_max: usize) -> Result<usize, MeshError> {
    let mut delete = conn.prepare_cached(
        "DELETE FROM grants WHERE jti IN (SELECT jti FROM grants WHERE exp < ?1 ORDER BY exp LIMIT ?2)",
    )?;
    Ok(delete.execute((now.saturating_sub(GRANT_KEPT_MS) / 1000, rows_max))?)
}

pub(super) fn find(conn: &Connection, jti: &str) -> Result<Option<GrantRow>, MeshError> {
    let mut select =
        conn.prepare_cached(&format!("SELECT {COLUMNS} FROM grants WHERE jti = ?1"))?;
    select.query_row([jti], read_row).optional()?.transpose()
}

/// All grants, newest first.
pub(super) fn list(conn: &Connection) -> Result<Vec<GrantRow>, MeshError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM grants ORDER BY created_at DESC, jti"
    ))?;
    let rows = select.query_map([], read_row)?;
    rows.map(|row| row?).collect()
}

/// The inner result is for names that no longer parse, which only a damaged store has.
fn read_row(row: &Row<'_>) -> rusqlite::Result<Result<GrantRow, MeshError>> {
    let (topic, kind, eid): (String, Option<String>, Option<String>) =
        (row.get(1)?, row.get(2)?, row.get(3)?);
    let names = || {
        Ok((
            topic.parse()?,
            kind.map(|kind| kind.parse()).transpose()?,
            eid.map(|eid| eid.parse()).transpose()?,
        ))
    };
    let (topic, kind, eid) = match names() {
        Ok(names) => names,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(GrantRow {
        jti: row.get(0)?,
        topic,
        kind,
        eid,
        uses: row.get(4)?,
        used: row.get(5)?,
        exp: row.get(6)?,
        description: row.get(7)?,
        created_at: row.get(8)?,
        revoked_at: row.get(9)?,
        last_used_at: row.get(10)?,
        minted_by: row.get(11)?,
        epoch: row.get(12)?,
    }))
}
