//! The one place where a task's end becomes known: its row, the event on its topic, its owner's inbox item and the spent grant,
//! in one transaction.
//!
//! Invariant: an end is announced at most once for ever. Kept by `announced` on the row, which this transaction looks at and
//! sets; the shim's post and every reconcile end here, and who comes second gets the first answer.
//! (tests: `completion.rs`, `crash.rs`)

use serde_json::{Value, json};
use tracing::debug;
use weft_mesh::{Draft, EventId, Tx};

use super::record::{End, NotifyState};
use super::row::{self, TaskRow};
use super::wire::Lease;
use crate::error::{Error, Result};
use crate::inbox::{self, Item, ItemType};

/// What announcing answered.
#[derive(Debug, Clone)]
pub struct Announced {
    /// The event's sequence, for a task with a notify whose grant was not revoked.
    pub sequence: Option<u64>,
    /// Whether the end had been announced before.
    pub before: bool,
}

/// The key that waiters of a task's end watch.
pub fn wake_key(id: &str) -> String {
    format!("task:{id}")
}

/// The event id of a task's completion.
pub fn event_id(id: &str) -> String {
    format!("completion:{id}")
}

/// Announces that task `id` ended as `end`; `summary` is the end of its output.
pub fn announce(
    tx: &mut Tx<'_>,
    id: &str,
    end: &End,
    summary: Option<String>,
) -> Result<Announced> {
    let row = row::get(tx.sql(), id)?.ok_or_else(|| Error::no_task(id))?;
    if row.announced {
        return Ok(Announced {
            sequence: tx.sequence_of(&EventId::completion(id)?)?,
            before: true,
        });
    }
    let (sequence, notify) = publish(tx, &row, end)?;
    row::set_announced(
        tx.sql(),
        id,
        end,
        notify
            .as_ref()
            .map(|(state, reason)| (*state, reason.as_deref())),
    )?;
    if wants_item(&row) {
        let item = Item {
            state: Some(end.state),
            exit_code: end.exit_code,
            label: row.spec.label.clone(),
            summary,
            ..Item::about(ItemType::Finished, id, tx.now())
        };
        inbox::put(tx, &row.session, &item)?;
    }
    tx.wake(&wake_key(id));
    Ok(Announced {
        sequence,
        before: false,
    })
}

/// The caller of a foreground run sees the end itself; an owner that stopped its task knows.
fn wants_item(row: &TaskRow) -> bool {
    row.lease != Lease::Foreground && !row.discard_item && inbox::has_inbox(&row.session)
}

type NotifyOutcome = Option<(NotifyState, Option<String>)>;

fn publish(tx: &mut Tx<'_>, row: &TaskRow, end: &End) -> Result<(Option<u64>, NotifyOutcome)> {
    let Some(notify) = &row.spec.notify else {
        return Ok((None, None));
    };
    // Only a person's revoke means "no event". An expired or spent grant, or a ledger that was replaced, does not: the node
    // announces from the receipt in its own right, under the same id.
    let grant = tx.grant(&notify.grant_id)?;
    if grant.is_some_and(|grant| grant.revoked_at.is_some() && grant.epoch == tx.epoch()) {
        return Ok((
            None,
            Some((NotifyState::Revoked, Some("its grant was revoked".into()))),
        ));
    }
    let mut draft = Draft::by_weft(
        notify.topic.parse()?,
        notify.kind.parse()?,
        format!("task:{}", row.spec.id),
    )
    .with_id(EventId::completion(&row.spec.id)?)
    .with_data(&data(row, end))
    .external();
    draft.grant_id = Some(notify.grant_id.clone());
    let appended = tx.append(&draft)?;
    if let Err(error) = tx.spend(&notify.grant_id) {
        debug!(task = %row.spec.id, %error, "announced without its grant");
    }
    Ok((
        Some(appended.event.sequence),
        Some((NotifyState::Posted, None)),
    ))
}

/// The event's data: what the receipt tells, in the words of the contract.
fn data(row: &TaskRow, end: &End) -> Value {
    let mut data = json!({
        "taskId": row.spec.id,
        "exitCode": end.exit_code,
        "state": end.state,
        "signal": end.signal,
        "reason": end.reason,
    });
    if let (Some(label), Value::Object(map)) = (&row.spec.label, &mut data) {
        map.insert("description".into(), Value::String(label.clone()));
    }
    data
}
