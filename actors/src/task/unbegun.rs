//! Starts that a node's death cut off between the row and the command's first byte.
//!
//! Whoever asked has no answer and asks again, with the same request id, as soon as the next node is up. So such a task is not
//! called lost at once: for a while the repeat takes it over and starts it, and its one end is that of the command.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::folder::Folder;
use super::row::{self, TaskRow};
use super::view::blocking;
use crate::error::{Error, Result};
use crate::house::House;
use crate::limits::UNBEGUN_MS;
use crate::requests::{self, RequestKey};
use crate::root::Tend;

/// Ids of tasks whose start may still be asked for again.
#[derive(Debug, Default)]
pub struct Unbegun(Mutex<HashSet<String>>);

impl Unbegun {
    fn ids(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one out; `true` for one caller alone.
    fn take(&self, id: &str) -> bool {
        self.ids().remove(id)
    }
}

/// Keeps a task that never began for a repeat of its request, if it was asked for with one. To be called before a door opens.
///
/// What is left of its folder goes at once: a shim that comes late finds itself in a folder that is no more, and starts nothing.
pub async fn keep(house: &Arc<House>, row: &TaskRow) -> Result<bool> {
    let id = row.spec.id.clone();
    let is_asked_for = {
        let id = id.clone();
        house.look(move |sql| requests::has_made(sql, &id)).await?
    };
    if !is_asked_for {
        return Ok(false);
    }
    let path = house.home.task(&id);
    blocking(move || {
        Folder::delete(&path).map_err(|error| Error::io("removing a task's folder", error))
    })
    .await?;
    house.unbegun.ids().insert(id.clone());
    let (house, session) = (house.clone(), row.session.clone());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(UNBEGUN_MS)).await;
        // Where nobody asked again, the task's actor finds out that it is lost, and tells.
        if house.unbegun.take(&id)
            && let Ok(root) = house.root()
        {
            root.do_send(Tend { session, id });
        }
    });
    Ok(true)
}

/// The row of the task that this request was to start, if it never began: for this caller to start, without waiting for anything
/// before it asks for the start, or with [`leave`].
pub async fn take_over(house: &House, request: Option<&RequestKey>) -> Result<Option<TaskRow>> {
    let Some(request) = request.filter(|_| !house.unbegun.ids().is_empty()) else {
        return Ok(None);
    };
    let request = request.clone();
    let row = house
        .look(move |sql| match request.made::<String>(sql)? {
            Some(id) => row::get(sql, &id),
            None => Ok(None),
        })
        .await?;
    Ok(row.filter(|row| house.unbegun.take(&row.spec.id)))
}

/// Gives back what was taken over and cannot be started: its actor tells its end.
pub fn leave(house: &House, row: TaskRow) -> Result<()> {
    house.root()?.do_send(Tend {
        session: row.session,
        id: row.spec.id,
    });
    Ok(())
}
