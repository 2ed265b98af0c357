//! Waiting for a task's end: register, look, wait. The row is the truth, the wake-up a hint.

use crate::error::{Error, Result};
use crate::house::House;
use crate::task::announce;
use crate::task::row::{self, TaskRow};
use crate::task::view::record;

/// Waits until task `id` has its end and answers its row. Refused when the node begins to stop.
pub async fn wait_end(house: &House, id: &str) -> Result<TaskRow> {
    wait_until(house, id, |row| row.end.is_some()).await
}

/// As [`wait_end`], and satisfied with an end that the record shows though it cannot be announced yet, for want of space say: then
/// the row has none.
pub async fn wait_shown_end(house: &House, id: &str) -> Result<TaskRow> {
    wait_until(house, id, |row| !record(house, row).running).await
}

async fn wait_until(
    house: &House,
    id: &str,
    has_ended: impl Fn(&TaskRow) -> bool,
) -> Result<TaskRow> {
    let mut watcher = house.store.watch_key(&announce::wake_key(id));
    loop {
        let row = {
            let id = id.to_owned();
            house.look(move |sql| row::get(sql, &id)).await?
        };
        match row {
            None => return Err(Error::no_task(id)),
            Some(row) if has_ended(&row) => return Ok(row),
            Some(_) => house.unless_stopping(watcher.changed()).await?,
        }
    }
}
