//! Forgetting finished tasks: a day after their end, or beyond the newest 256 of their owner. Never one that is unannounced or whose
//! delivery waits for its owner, and that only for seven days.

use rusqlite::{Connection, params};
use tracing::debug;

use super::folder::Folder;
use super::view::blocking;
use crate::error::{Error, Result};
use crate::house::{House, now_ms};
use crate::limits::{FINISHED_KEPT, FINISHED_KEPT_MS, SWEEP_BATCH, UNREAD_KEPT_MS};

/// Forgets what is due. Answers when the next one will be, in epoch milliseconds; none while nothing is finished.
pub async fn sweep(house: &House) -> Result<Option<u64>> {
    let now = now_ms();
    expire_deliveries(house, now).await?;
    loop {
        let due = house.look(move |sql| Ok(due(sql, now)?)).await?;
        if due.is_empty() {
            break;
        }
        debug!(count = due.len(), "forgetting finished tasks");
        let paths: Vec<_> = due.iter().map(|id| house.home.task(id)).collect();
        // The folder goes first: a row without a folder is found again and finished, a folder without a row is not.
        blocking(move || {
            paths.iter().try_for_each(|path| {
                Folder::delete(path)
                    .map_err(|error| Error::io(format!("removing {}", path.display()), error))
            })
        })
        .await?;
        house
            .commit(move |tx| {
                let mut delete = tx
                    .sql()
                    .prepare_cached("DELETE FROM tasks WHERE id = ?1 AND announced = 1")?;
                due.iter()
                    .try_for_each(|id| delete.execute([id]).map(drop))
                    .map_err(Error::from)
            })
            .await?;
    }
    house
        .look(|sql| {
            Ok(sql.query_row(
                "SELECT min(finished_at) FROM tasks WHERE announced = 1",
                [],
                |row| row.get::<_, Option<u64>>(0),
            )?)
        })
        .await
        .map(|oldest| oldest.map(|oldest| oldest + FINISHED_KEPT_MS))
}

/// Ids of finished tasks that are over age or over their owner's number, and wait for nobody.
fn due(sql: &Connection, now: u64) -> rusqlite::Result<Vec<String>> {
    let mut statement = sql.prepare_cached(
        "SELECT id FROM (
           SELECT id, finished_at, row_number() OVER (PARTITION BY session ORDER BY finished_at DESC, id) AS place
           FROM tasks WHERE announced = 1)
         WHERE (finished_at < ?1 OR place > ?2)
           AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.task_id = id)
         LIMIT ?3",
    )?;
    statement
        .query_map(
            params![
                now.saturating_sub(FINISHED_KEPT_MS),
                FINISHED_KEPT as i64,
                SWEEP_BATCH as i64
            ],
            |row| row.get(0),
        )?
        .collect()
}

/// Deliveries that nobody took for seven days are settled as expired; outcomes are forgotten after as long.
async fn expire_deliveries(house: &House, now: u64) -> Result<()> {
    let before = now.saturating_sub(UNREAD_KEPT_MS);
    let any = house.look(move |sql| Ok(sql.prepare_cached("SELECT 1 FROM inbox WHERE created_at < ?1 UNION ALL SELECT 1 FROM outcomes WHERE at < ?1 LIMIT 1")?.exists([before])?)).await?;
    if !any {
        return Ok(());
    }
    house
        .commit(move |tx| {
            tx.sql().execute(
                "INSERT OR IGNORE INTO outcomes (seq, session, type, task_id, outcome, at)
                 SELECT seq, session, type, task_id, 'expired', ?2 FROM inbox WHERE created_at < ?1",
                params![before, now],
            )?;
            tx.sql().execute("DELETE FROM inbox WHERE created_at < ?1", [before])?;
            tx.sql().execute("DELETE FROM outcomes WHERE at < ?1", [before])?;
            Ok(())
        })
        .await
}
