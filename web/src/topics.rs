//! Events of one topic: publish, post with a grant, read. These call the store directly, since everything that waits for
//! an event waits for them.

use std::time::Duration;

use axum::body::Body;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;
use weft_actors::caller::Caller;
use weft_actors::requests;
use weft_grants::{GrantClaims, Right};
use weft_mesh::{
    Cursor, Draft, Event, EventId, Kind, MeshError, Page, Pattern, Query, Topic, Watcher,
};

use crate::auth::Poster;
use crate::body;
use crate::credential::unless_revoked;
use crate::door::Door;
use crate::error::Refused;
use crate::limits::WAIT_MS_MAX;
use crate::query::Form::{List, Number, Text};
use crate::query::Table;
use crate::thin::{Answer, Ask, to_answer};

/// First part of the id of an event that tells a task's end.
const COMPLETION: &str = "completion:";

const READ: Table = &[
    ("after", Text),
    ("limit", Number),
    ("waitMs", Number),
    ("kinds", List),
];

/// The body of a publish or post; the topic stands in the path.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Post {
    kind: Option<String>,
    text: Option<String>,
    data: Option<Box<RawValue>>,
    to: Option<String>,
    id: Option<String>,
    request_id: Option<String>,
}

/// The answer to a publish.
#[derive(Serialize)]
struct Published {
    #[serde(flatten)]
    event: Event,
    duplicate: bool,
}

/// The answer to a post with a grant.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Posted {
    ok: bool,
    id: EventId,
    sequence: u64,
    topic: Topic,
    kind: Kind,
    grant_id: String,
    uses_left: u32,
}

/// `POST /v1/topics/{topic}/events`
pub(crate) async fn publish(ask: Ask, body: Body) -> Answer {
    // Before the body is read, so that nobody without a credential makes us read one.
    let poster = ask.poster().await?;
    let body = parse(&body::whole(body).await?)?;
    match poster {
        Poster::Grant(claims) => post(&ask, claims, body).await,
        Poster::Caller(caller) => append(&ask, &caller, body).await,
    }
}

fn parse(bytes: &[u8]) -> Result<Post, Refused> {
    if bytes.is_empty() {
        Ok(Post::default())
    } else {
        body::parse(bytes)
    }
}

impl Post {
    fn into_draft(self, topic: Topic, kind: Kind, from: String) -> Result<Draft, MeshError> {
        let mut draft = Draft::new(topic, kind, from);
        draft.id = self.id.map(EventId::try_from).transpose()?;
        draft.to = self.to;
        draft.text = self.text;
        draft.data = self.data;
        Ok(draft)
    }

    fn kind(&self) -> Result<Option<Kind>, MeshError> {
        self.kind.as_deref().map(Kind::try_from).transpose()
    }

    /// The id that the request goes by, in the body or beside it.
    fn request_id<'a>(&'a self, ask: &'a Ask) -> Result<Option<&'a str>, Refused> {
        match (self.request_id.as_deref(), ask.idempotency_key()?) {
            (Some(inside), Some(beside)) if inside != beside => Err(Refused::invalid(
                "requestId",
                "differs from the header Idempotency-Key",
            )),
            (inside, beside) => Ok(inside.or(beside)),
        }
    }
}

async fn append(ask: &Ask, caller: &Caller, body: Post) -> Answer {
    let topic = Topic::parse_public(ask.path("topic"))?;
    caller.require_on(Right::MeshPublish, topic.as_str())?;
    let kind = body.kind()?.unwrap_or_default();
    let request = body.request_id(ask)?.map(str::to_owned);
    let mut draft = body.into_draft(topic, kind, caller.from())?;
    draft.origin = caller.origin();
    draft.untrusted = caller.untrusted();
    let appended = requests::publish(&ask.door.house, caller, request.as_deref(), draft).await?;
    to_answer(&Published {
        event: appended.event,
        duplicate: appended.duplicate,
    })
}

async fn post(ask: &Ask, claims: GrantClaims, body: Post) -> Answer {
    let topic: Topic = ask.path("topic").parse()?;
    let request = body.request_id(ask)?.map(str::to_owned);
    // Without a word the event is of the kind that the grant allows.
    let kind = match body.kind()? {
        Some(kind) => kind,
        None => claims
            .kind
            .as_deref()
            .map(Kind::try_from)
            .transpose()?
            .unwrap_or_default(),
    };
    if claims
        .eid
        .as_deref()
        .is_some_and(|eid| eid.starts_with(COMPLETION))
    {
        check_completion(&claims, &topic, &kind, &body)?;
        return to_answer(&weft_actors::completion::post(&ask.door.house, &claims).await?);
    }
    let (grant_id, from) = (claims.jti.clone(), format!("grant:{}", claims.jti));
    let request = request.filter(|_| body.id.is_none());
    let made = request
        .as_deref()
        .map(|request| requests::event_id(&from, request))
        .transpose()?;
    let mut draft = body.into_draft(topic, kind, from)?.external();
    // A repeat is the same event and spends nothing.
    draft.id = draft.id.or(made);
    draft.grant_id = Some(grant_id.clone());
    let posted = ask.door.house.store.post(claims, draft).await;
    let posted = posted.map_err(|error| requests::refusal(error, request.as_deref()))?;
    let event = posted.appended.event;
    to_answer(&Posted {
        ok: true,
        id: event.id,
        sequence: event.sequence,
        topic: event.topic,
        kind: event.kind,
        grant_id,
        uses_left: posted.uses_left,
    })
}

/// A completion says only that its task has ended; what there is to say stands in the receipt.
fn check_completion(
    claims: &GrantClaims,
    topic: &Topic,
    kind: &Kind,
    body: &Post,
) -> Result<(), MeshError> {
    if claims.topic != topic.as_str() {
        return Err(MeshError::GrantTopic {
            granted: claims.topic.clone(),
        });
    }
    if let Some(granted) = claims
        .kind
        .as_deref()
        .filter(|granted| *granted != kind.as_str())
    {
        return Err(MeshError::GrantKind {
            granted: granted.to_owned(),
        });
    }
    if let Some(id) = body
        .id
        .as_ref()
        .filter(|id| Some(id.as_str()) != claims.eid.as_deref())
    {
        return Err(MeshError::IdReserved { id: id.clone() });
    }
    let reason = "the end of a task is told by its receipt; send an empty object".to_owned();
    match (&body.data, &body.text, &body.to) {
        (None, None, None) => Ok(()),
        (Some(_), _, _) => Err(MeshError::PayloadInvalid {
            field: "data",
            reason,
        }),
        (_, Some(_), _) => Err(MeshError::PayloadInvalid {
            field: "text",
            reason,
        }),
        _ => Err(MeshError::PayloadInvalid {
            field: "to",
            reason,
        }),
    }
}

/// `GET /v1/topics/{topic}/events`
pub(crate) async fn read(ask: Ask) -> Answer {
    let who = ask.who().await?;
    let topic: Topic = ask.path("topic").parse()?;
    who.caller.require_on(Right::MeshRead, topic.as_str())?;
    let mut fields = ask.query(READ)?;
    let wait = wait_of(&fields)?;
    let patterns = vec![Pattern::from(&topic)];
    let mut query = Query::new(patterns, after(&mut fields)?.unwrap_or_default());
    query.kinds = kinds(&mut fields)?;
    query.limit = limit_of(&fields, query.limit)?;
    let house = &ask.door.house;
    let page = house.unless_stopping(first_page(&ask.door, query, wait));
    let page = unless_revoked(&ask.door, who.claims.as_ref(), page).await???;
    to_answer(&page)
}

/// Reads, and where there is nothing waits for a while: registered before the first look, so that nothing is missed.
async fn first_page(door: &Door, mut query: Query, wait: Duration) -> Result<Page, MeshError> {
    let until = Instant::now() + wait;
    let mut watcher: Option<Watcher> =
        (!wait.is_zero()).then(|| door.house.store.watch(&query.patterns));
    loop {
        let page = door.house.store.read_events(query.clone()).await?;
        let has_news = !page.events.is_empty() || !page.omitted.is_empty();
        let Some(watcher) = watcher.as_mut().filter(|_| !has_news) else {
            return Ok(page);
        };
        query.after = page.next.into();
        if !page.more
            && tokio::time::timeout_at(until, watcher.changed())
                .await
                .is_err()
        {
            return Ok(page);
        }
    }
}

/// The cursor that a query names.
pub(crate) fn after(fields: &mut Map<String, Value>) -> Result<Option<Cursor>, MeshError> {
    match fields.remove("after") {
        Some(Value::String(text)) => text.parse().map(Some),
        _ => Ok(None),
    }
}

/// The kinds that a query names.
pub(crate) fn kinds(fields: &mut Map<String, Value>) -> Result<Vec<Kind>, MeshError> {
    texts(fields.remove("kinds"))
        .iter()
        .map(|kind| kind.parse())
        .collect()
}

/// The strings of a list.
pub(crate) fn texts(list: Option<Value>) -> Vec<String> {
    let Some(Value::Array(list)) = list else {
        return Vec::new();
    };
    list.into_iter()
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

fn wait_of(fields: &Map<String, Value>) -> Result<Duration, Refused> {
    let Some(given) = fields.get("waitMs") else {
        return Ok(Duration::ZERO);
    };
    match given.as_u64().filter(|ms| *ms <= WAIT_MS_MAX) {
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => Err(Refused::invalid(
            "waitMs",
            format!("takes 0 to {WAIT_MS_MAX} milliseconds"),
        )),
    }
}

fn limit_of(fields: &Map<String, Value>, default: usize) -> Result<usize, Refused> {
    let Some(given) = fields.get("limit") else {
        return Ok(default);
    };
    let most = weft_mesh::limits::READ_EVENTS_MAX;
    match given
        .as_u64()
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|limit| (1..=most).contains(limit))
    {
        Some(limit) => Ok(limit),
        None => Err(Refused::invalid("limit", format!("takes 1 to {most}"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_and_doubled_fields_are_refused_by_name() {
        for (body, field) in [
            (r#"{"topic":"a"}"#, "topic"),
            (r#"{"text":"a","text":"b"}"#, "text"),
            (r#"{"from":"x"}"#, "from"),
        ] {
            let refused = parse(body.as_bytes()).unwrap_err();
            assert_eq!(refused.slug(), "invalid-argument");
            assert!(
                refused.to_string().starts_with(&format!("{field}: ")),
                "{refused}"
            );
        }
        assert_eq!(parse(b"{").unwrap_err().slug(), "invalid-json");
    }

    #[test]
    fn a_completion_takes_nothing_but_what_its_grant_says() {
        let claims = GrantClaims {
            iss: "n".into(),
            aud: "m".into(),
            jti: "g".into(),
            topic: "builds".into(),
            kind: Some("task.completed".into()),
            eid: Some("completion:t-1".into()),
            uses: 1,
            iat: 0,
            nbf: None,
            exp: 9,
        };
        let check = |topic: &str, kind: &str, body: &str| {
            let (topic, kind) = (topic.parse().unwrap(), kind.parse().unwrap());
            check_completion(&claims, &topic, &kind, &parse(body.as_bytes()).unwrap())
                .map_err(|error| error.slug())
        };
        assert_eq!(check("builds", "task.completed", "{}"), Ok(()));
        assert_eq!(
            check("builds", "task.completed", r#"{"id":"completion:t-1"}"#),
            Ok(())
        );
        assert_eq!(check("other", "task.completed", "{}"), Err("grant-topic"));
        assert_eq!(check("builds", "message", "{}"), Err("grant-kind"));
        assert_eq!(
            check("builds", "task.completed", r#"{"id":"completion:t-2"}"#),
            Err("id-reserved")
        );
        assert_eq!(
            check("builds", "task.completed", r#"{"data":1}"#),
            Err("payload-invalid")
        );
    }

    #[test]
    fn an_answer_keeps_data_as_it_was_written() {
        let event = json!({"id": "e", "sequence": 1, "topic": "a", "kind": "message", "from": "session:cli", "to": null,
            "text": null, "data": null, "createdAt": 1, "origin": "local", "untrusted": false, "grantId": null, "scheduled": null});
        let mut event: Event = serde_json::from_value(event).unwrap();
        event.data = Some(RawValue::from_string("12345678901234567890.5".into()).unwrap());
        let text = serde_json::to_string(&Published {
            event,
            duplicate: false,
        })
        .unwrap();
        assert!(text.contains(r#""data":12345678901234567890.5,"#), "{text}");
        assert!(text.ends_with(r#""duplicate":false}"#), "{text}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
        }
    }
}
