//! A shim's post with its completion grant: the end is announced from the receipt, whatever the post itself says.

use serde_json::{Value, json};
use weft_grants::GrantClaims;
use weft_mesh::MeshError;

use crate::error::{Error, Result};
use crate::house::House;
use crate::task::announce::event_id;
use crate::task::row;
use crate::task::settle::announce_receipt;

/// Announces the end of the task that the (verified) grant is for. Before its receipt is there the answer is `grant-early`; after
/// it was announced, the first answer again.
pub async fn post(house: &House, claims: &GrantClaims) -> Result<Value> {
    let eid = claims.eid.as_deref().unwrap_or_default();
    let task = eid
        .strip_prefix("completion:")
        .ok_or_else(|| Error::Internal(format!("a grant names the event id {eid:?}")))?
        .to_owned();
    look(house, claims, &task).await?;
    // Announced, and yet without an event: its grant was revoked.
    let sequence = announce_receipt(house, &task)
        .await?
        .sequence
        .ok_or(Error::Mesh(MeshError::GrantRevoked))?;
    Ok(json!({
        "ok": true,
        "id": event_id(&task),
        "sequence": sequence,
        "topic": claims.topic,
        "kind": claims.kind,
        "grantId": claims.jti,
        "usesLeft": 0,
    }))
}

/// Refuses a grant that is not the one of its task's row: another store's, or one that was revoked.
async fn look(house: &House, claims: &GrantClaims, task: &str) -> Result<()> {
    let (id, jti) = (task.to_owned(), claims.jti.clone());
    let row = house.look(move |sql| row::get(sql, &id)).await?;
    let named = row
        .and_then(|row| row.spec.notify)
        .is_some_and(|notify| notify.grant_id == jti);
    if named {
        Ok(())
    } else {
        Err(Error::Mesh(MeshError::GrantRevoked))
    }
}
