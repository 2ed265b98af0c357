//! The way from a route to an action: who calls, with what input, and the answer or a problem.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use serde_json::{Map, Value};
use weft_actors::action::{self, Ctx};
use weft_actors::error::Error;
use weft_actors::house::House;

use crate::auth::{self, Poster, Who};
use crate::connection::Connection;
use crate::credential::unless_revoked;
use crate::door::Door;
use crate::error::Refused;
use crate::limits::STOP_CALL_MS;
use crate::problem::json_answer;
use crate::query::{self, Table};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const REQUEST_ID: &str = "requestId";

/// What every handler answers.
pub(crate) type Answer = Result<Response, Refused>;

/// A request as the handlers see it, but for its body.
pub(crate) struct Ask {
    /// The listener.
    pub(crate) door: Arc<Door>,
    /// What is to be done.
    pub(crate) method: Method,
    /// What is said beside it.
    pub(crate) headers: HeaderMap,
    uri: Uri,
    connection: Arc<Connection>,
    path: RawPathParams,
}

impl FromRequestParts<Arc<Door>> for Ask {
    type Rejection = Refused;

    async fn from_request_parts(head: &mut Parts, door: &Arc<Door>) -> Result<Self, Refused> {
        let path = RawPathParams::from_request_parts(head, door)
            .await
            .map_err(|_| Refused::BadRequest("a part of the path is not UTF-8"))?;
        let connection = head
            .extensions
            .remove::<Arc<Connection>>()
            .ok_or_else(|| Error::Internal("a request without a connection".into()))?;
        // Taken, since nothing after this needs them.
        let (method, uri) = (
            std::mem::take(&mut head.method),
            std::mem::take(&mut head.uri),
        );
        Ok(Ask {
            door: door.clone(),
            method,
            headers: std::mem::take(&mut head.headers),
            uri,
            connection,
            path,
        })
    }
}

impl Ask {
    /// The path's parameter `name`.
    pub(crate) fn path(&self, name: &str) -> &str {
        self.path
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, value)| value)
    }

    /// Who calls.
    pub(crate) async fn who(&self) -> Result<Who, Refused> {
        auth::who(&self.door, &self.connection, &self.headers).await
    }

    /// Who posts to a topic.
    pub(crate) async fn poster(&self) -> Result<Poster, Refused> {
        auth::poster(&self.door, &self.connection, &self.headers).await
    }

    /// The query's fields.
    pub(crate) fn query(&self, table: Table) -> Result<Map<String, Value>, Refused> {
        query::fields(self.uri.query(), table)
    }

    /// The key that makes a repeat of this request the same request.
    pub(crate) fn idempotency_key(&self) -> Result<Option<&str>, Refused> {
        let refuse = |why: &str| Refused::invalid("Idempotency-Key", why);
        let mut keys = self.headers.get_all(IDEMPOTENCY_KEY).iter();
        match (keys.next(), keys.next()) {
            (None, _) => Ok(None),
            (Some(key), None) => key.to_str().map(Some).map_err(|_| refuse("is not text")),
            _ => Err(refuse("given twice")),
        }
    }

    /// Adds the parameters of the path to an action's input. A body cannot say them a second time.
    pub(crate) fn add_path(&self, input: &mut Map<String, Value>) -> Result<(), Refused> {
        for (name, value) in &self.path {
            if input.insert(name.to_owned(), value.into()).is_some() {
                return Err(Refused::invalid(
                    name,
                    "stands in the path; leave it out of the body",
                ));
            }
        }
        Ok(())
    }

    /// Calls an action with `input`, as `who`.
    pub(crate) async fn call(
        &self,
        who: Who,
        reference: &str,
        mut input: Map<String, Value>,
    ) -> Answer {
        let action = action::find(reference)?;
        if action.changes
            && let Some(key) = self.idempotency_key()?
        {
            match input.insert(REQUEST_ID.to_owned(), key.into()) {
                Some(other) if other != key => {
                    return Err(Refused::invalid(
                        REQUEST_ID,
                        "differs from the header Idempotency-Key",
                    ));
                }
                _ => {}
            }
        }
        let house = &self.door.house;
        let ctx = Ctx {
            house: house.clone(),
            caller: who.caller,
        };
        let work = action::call(ctx, reference, Value::Object(input));
        let value = if action.changes {
            settle(house, work).await?
        } else {
            let work = house.unless_stopping(work);
            unless_revoked(&self.door, who.claims.as_ref(), work).await???
        };
        to_answer(&value)
    }
}

/// Lets a changing call finish when the node begins to end, for a while.
async fn settle<T>(
    house: &House,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let too_late = async {
        house.stopping().await;
        tokio::time::sleep(Duration::from_millis(STOP_CALL_MS)).await;
    };
    tokio::select! {
        biased;
        done = work => done,
        () = too_late => Err(Error::NodeStopping),
    }
}

/// A value as the body of a good answer.
pub(crate) fn to_answer(value: &impl serde::Serialize) -> Answer {
    let body = serde_json::to_vec(value)
        .map_err(|error| Error::Internal(format!("the answer is no JSON: {error}")))?;
    Ok(json_answer(body))
}
