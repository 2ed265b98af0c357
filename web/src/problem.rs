//! All refusals as RFC 9457 problem documents. The only file that knows status codes.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use weft_actors::error::Error;
use weft_mesh::MeshError;

use crate::error::Refused;
use crate::limits::RETRY_AFTER_SECS;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The status of a reason. A name that is not listed is a failure of ours.
fn status_of(slug: &str) -> StatusCode {
    match slug {
        "invalid-json" | "bad-request" | "body-cut" | "token-in-query" => StatusCode::BAD_REQUEST,
        "unauthorized" | "grant-malformed" | "grant-signature" | "grant-expired"
        | "grant-early" | "grant-revoked" | "token-expired" | "token-revoked" => {
            StatusCode::UNAUTHORIZED
        }
        "forbidden" | "stranger" | "peer-gone" | "origin-refused" | "topic-reserved"
        | "id-reserved" | "grant-topic" | "grant-kind" => StatusCode::FORBIDDEN,
        "not-found" | "no-route" | "unknown-action" => StatusCode::NOT_FOUND,
        "method-not-allowed" => StatusCode::METHOD_NOT_ALLOWED,
        "body-slow" => StatusCode::REQUEST_TIMEOUT,
        "ambiguous-id" | "exists" | "wrong-state" | "stale-incarnation" | "id-conflict"
        | "resync" | "topic-limit" => StatusCode::CONFLICT,
        "grant-spent" => StatusCode::GONE,
        "body-too-large" | "payload-too-large" => StatusCode::PAYLOAD_TOO_LARGE,
        "content-type" => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "host-refused" => StatusCode::MISDIRECTED_REQUEST,
        "invalid-argument" | "topic-invalid" | "pattern-invalid" | "kind-invalid"
        | "id-invalid" | "payload-invalid" | "not-started" | "request-id-reused" => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        "too-many" => StatusCode::TOO_MANY_REQUESTS,
        "no-answer" => StatusCode::GATEWAY_TIMEOUT,
        "too-many-connections"
        | "too-many-streams"
        | "node-stopping"
        | "not-ready"
        | "actor-failed"
        | "store-busy"
        | "store-closed"
        | "store-locked" => StatusCode::SERVICE_UNAVAILABLE,
        "no-space" => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Whether the same request may succeed soon without being changed.
fn is_worth_a_retry(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::INSUFFICIENT_STORAGE
    )
}

/// The problem document of a refusal, with the status it goes out under.
pub(crate) fn document(refused: &Refused) -> (StatusCode, Value) {
    let slug = refused.slug();
    let status = status_of(slug);
    let mut document = Map::new();
    document.insert("type".into(), format!("urn:weft:problem:{slug}").into());
    document.insert("title".into(), title(slug).into());
    document.insert("status".into(), status.as_u16().into());
    document.insert("detail".into(), without_tokens(&refused.to_string()).into());
    if let Refused::Action(error) = refused {
        add_extras(error, &mut document);
    }
    (status, Value::Object(document))
}

/// `grant-spent` as a title for people.
fn title(slug: &str) -> String {
    let words = slug.replace('-', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_ascii_uppercase().to_string() + letters.as_str()
    })
}

/// A field as a JSON pointer: of `env.NAME` and `size[1]` the inner ones.
fn pointer(field: &str) -> String {
    let field = field.replace('~', "~0").replace('/', "~1");
    if let Some((list, rest)) = field.split_once('[')
        && let Some(index) = rest.strip_suffix(']')
    {
        return format!("/{list}/{index}");
    }
    format!("/{}", field.replacen('.', "/", 1))
}

/// What a program needs beside the name of the reason.
fn add_extras(error: &Error, document: &mut Map<String, Value>) {
    let mut add = |name: &str, value: Value| {
        document.insert(name.to_owned(), value);
    };
    match error {
        Error::Invalid { field, reason } => {
            let pointer = pointer(field);
            add("field", without_tokens(field).into());
            add(
                "errors",
                json!([{"pointer": without_tokens(&pointer), "detail": without_tokens(reason)}]),
            );
        }
        Error::Ambiguous { candidates, .. } => add("candidates", candidates.clone().into()),
        Error::NotStarted { errno, .. } => add("errno", (*errno).into()),
        Error::Mesh(MeshError::Resync { epoch, oldest }) => {
            add("epoch", epoch.clone().into());
            add("oldest", (*oldest).into());
        }
        Error::Mesh(MeshError::PayloadTooLarge { field, size, limit }) => {
            add("field", (*field).into());
            add("size", (*size).into());
            add("limit", (*limit).into());
        }
        Error::Mesh(MeshError::PayloadInvalid { field, .. }) => add("field", (*field).into()),
        Error::Mesh(MeshError::OutcomeUnknown { ids, .. }) => add("ids", ids.clone().into()),
        _ => {}
    }
}

/// The text with everything taken out that looks like a token. Readers of JSON quote what they did not expect, and a
/// token may have been pasted into any field.
pub(crate) fn without_tokens(text: &str) -> String {
    const START: &str = "eyJ";
    if !text.contains(START) {
        return text.to_owned();
    }
    let is_of_token =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '=');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(START) {
        out.push_str(&rest[..at]);
        out.push('…');
        rest = rest[at..].trim_start_matches(is_of_token);
    }
    out + rest
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, document) = document(&self);
        if status.is_server_error() && !is_worth_a_retry(status) {
            tracing::error!(slug = self.slug(), detail = %without_tokens(&self.to_string()), "a request failed");
        }
        let mut response = Response::new(Body::from(document.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        headers.insert(CACHE_CONTROL, NO_STORE);
        if is_worth_a_retry(status) {
            headers.insert(RETRY_AFTER, RETRY_AFTER_SECS.into());
        }
        if matches!(self, Refused::Action(Error::NodeStopping)) {
            // Asked again on this connection, the same node could only say the same.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Adds the challenge of RFC 6750 where a credential is missing, bad or too narrow.
pub(crate) fn add_challenge(response: &mut Response, was_presented: bool) {
    let challenge = match (response.status(), was_presented) {
        (StatusCode::UNAUTHORIZED, false) => r#"Bearer realm="weft""#,
        (StatusCode::UNAUTHORIZED, true) => r#"Bearer realm="weft", error="invalid_token""#,
        (StatusCode::FORBIDDEN, true) => r#"Bearer realm="weft", error="insufficient_scope""#,
        _ => return,
    };
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
}

/// A good answer: JSON that no cache keeps and no browser takes for a page.
pub(crate) fn json_answer(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: impl Into<Error>, status: u16, slug: &str) -> Value {
        let (got, document) = document(&Refused::Action(error.into()));
        assert_eq!(got.as_u16(), status, "{slug}");
        assert_eq!(document["type"], format!("urn:weft:problem:{slug}"));
        assert_eq!(document["status"], status);
        document
    }

    #[test]
    fn fields_within_fields_have_pointers() {
        for (field, expected) in [
            ("label", "/label"),
            ("env.A=B", "/env/A=B"),
            ("env.A.B", "/env/A.B"),
            ("size[1]", "/size/1"),
            ("a/b~c", "/a~1b~0c"),
        ] {
            assert_eq!(pointer(field), expected);
        }
    }

    #[test]
    fn each_reason_has_its_status_and_what_programs_need() {
        check(MeshError::GrantSpent { uses: 1 }, 410, "grant-spent");
        check(
            MeshError::GrantTopic {
                granted: "a".into(),
            },
            403,
            "grant-topic",
        );
        check(
            MeshError::TopicReserved {
                topic: "weft.x".into(),
            },
            403,
            "topic-reserved",
        );
        check(weft_grants::Refusal::Signature, 401, "grant-signature");
        check(Error::NodeStopping, 503, "node-stopping");
        check(Error::RequestIdReused("r".into()), 422, "request-id-reused");
        let resync = check(
            MeshError::Resync {
                epoch: "e".into(),
                oldest: 7,
            },
            409,
            "resync",
        );
        assert_eq!(
            (&resync["epoch"], &resync["oldest"]),
            (&json!("e"), &json!(7))
        );
        let candidates = vec!["t-1".to_owned(), "t-12".to_owned()];
        let ambiguous = check(
            Error::Ambiguous {
                prefix: "t-1".into(),
                candidates,
            },
            409,
            "ambiguous-id",
        );
        assert_eq!(ambiguous["candidates"], json!(["t-1", "t-12"]));
        let invalid = check(
            Error::invalid("waitMs", "too long"),
            422,
            "invalid-argument",
        );
        assert_eq!(
            invalid["errors"][0],
            json!({"pointer": "/waitMs", "detail": "too long"})
        );
        let missing = Error::NotStarted {
            command: "x".into(),
            message: "no".into(),
            errno: Some(2),
        };
        assert_eq!(check(missing, 422, "not-started")["errno"], 2);
    }

    #[test]
    fn no_reason_of_the_door_is_taken_for_a_failure_of_ours() {
        let all = [
            Refused::NoRoute,
            Refused::Method("PUT".into()),
            Refused::Json("x".into()),
            Refused::ContentType,
            Refused::BodyTooLarge,
            Refused::BodySlow,
            Refused::BodyCut,
            Refused::Host,
            Refused::BadRequest("x"),
            Refused::Origin,
            Refused::TokenInQuery,
            Refused::Stranger,
            Refused::PeerGone,
            Refused::Connections,
            Refused::Streams,
            Refused::NotReady("x".into()),
            Refused::StreamExpired,
        ];
        for refused in all {
            assert_ne!(
                document(&refused).0,
                StatusCode::INTERNAL_SERVER_ERROR,
                "{}",
                refused.slug()
            );
        }
    }

    #[test]
    fn no_text_shows_a_token() {
        let text = r#"invalid type: string "eyJhbGciOiJFZERTQSJ9.eyJh.c2ln", expected u64"#;
        assert_eq!(
            without_tokens(text),
            r#"invalid type: string "…", expected u64"#
        );
        assert_eq!(without_tokens("plain"), "plain");
    }

    #[test]
    fn busy_answers_say_when_to_come_again_and_bad_credentials_how() {
        let busy = Refused::Streams.into_response();
        assert_eq!(busy.headers()[RETRY_AFTER], "1");
        let mut bad = Refused::from(weft_grants::Refusal::Expired).into_response();
        add_challenge(&mut bad, true);
        assert!(
            bad.headers()[WWW_AUTHENTICATE]
                .to_str()
                .unwrap()
                .contains("invalid_token")
        );
        let mut narrow = Refused::Action(Error::Forbidden("no".into())).into_response();
        add_challenge(&mut narrow, true);
        assert!(
            narrow.headers()[WWW_AUTHENTICATE]
                .to_str()
                .unwrap()
                .contains("insufficient_scope")
        );
    }
}
