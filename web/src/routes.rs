//! Every route, in the order of the documentation.
//!
//! Most are one line of [`THIN`]: a method and a path that stand for an action. The parameters of a path are named after
//! the fields of the action's input.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Method;
use axum::routing::{MethodFilter, get, on, post};

use crate::door::Door;
use crate::error::Refused;
use crate::query::Form::{Flag, List, Number, Text};
use crate::query::Table;
use crate::thin::{Answer, Ask};
use crate::{body, events, health, topics};

/// A route that is nothing but an action.
struct Thin {
    method: MethodFilter,
    path: &'static str,
    action: &'static str,
    input: Input,
}

/// Where an action's input comes from, beside the path.
#[derive(Clone, Copy)]
enum Input {
    Body,
    Query(Table),
}

const fn reads(path: &'static str, action: &'static str, query: Table) -> Thin {
    Thin {
        method: MethodFilter::GET,
        path,
        action,
        input: Input::Query(query),
    }
}

const fn posts(path: &'static str, action: &'static str) -> Thin {
    Thin {
        method: MethodFilter::POST,
        path,
        action,
        input: Input::Body,
    }
}

const fn deletes(path: &'static str, action: &'static str) -> Thin {
    Thin {
        method: MethodFilter::DELETE,
        path,
        action,
        input: Input::Query(&[]),
    }
}

const OUTPUT: Table = &[
    ("stream", Text),
    ("offset", Number),
    ("lines", Number),
    ("max", Number),
    ("waitMs", Number),
    ("encoding", Text),
];

const THIN: &[Thin] = &[
    posts("/v1/tasks", "tasks.run"),
    reads(
        "/v1/tasks",
        "tasks.list",
        &[("all", Flag), ("states", List)],
    ),
    reads("/v1/tasks/{id}", "tasks.get", &[]),
    reads("/v1/tasks/{id}/output", "tasks.read", OUTPUT),
    posts("/v1/tasks/{id}/input", "tasks.write"),
    posts("/v1/tasks/{id}/signal", "tasks.signal"),
    posts("/v1/tasks/{id}/resize", "tasks.resize"),
    posts("/v1/tasks/{id}/stop", "tasks.stop"),
    posts("/v1/tasks/{jobId}/adopt", "tasks.adopt"),
    posts("/v1/tasks/{id}/lease", "tasks.setLease"),
    reads("/v1/external", "tasks.external", &[]),
    posts("/v1/external/{jobId}/adopt", "tasks.adopt"),
    reads(
        "/v1/sessions/{session}/inbox",
        "inbox.read",
        &[("after", Number), ("waitMs", Number), ("max", Number)],
    ),
    posts("/v1/sessions/{session}/inbox/ack", "inbox.ack"),
    // The same by its shorter name.
    posts("/v1/sessions/{session}/ack", "inbox.ack"),
    posts("/v1/grants", "mesh.grant"),
    reads("/v1/grants", "mesh.grants", &[]),
    deletes("/v1/grants/{grantId}", "mesh.revoke"),
    posts("/v1/residents", "residents.create"),
    reads("/v1/residents", "residents.list", &[]),
    reads("/v1/residents/{name}", "residents.get", &[]),
    deletes("/v1/residents/{name}", "residents.remove"),
    reads(
        "/v1/residents/{name}/log",
        "residents.log",
        &[("after", Number), ("limit", Number)],
    ),
    posts("/v1/residents/{name}/pause", "residents.pause"),
    posts("/v1/residents/{name}/resume", "residents.resume"),
    posts("/v1/residents/{name}/tell", "residents.tell"),
    posts("/v1/tokens", "tokens.create"),
    reads("/v1/tokens", "tokens.list", &[]),
    deletes("/v1/tokens/{tokenId}", "tokens.revoke"),
    reads("/v1/topics", "mesh.topics", &[]),
];

/// The router of one listener.
pub(crate) fn router(door: Arc<Door>) -> Router {
    let mut router = Router::new()
        .route("/v1/call/{ref}", post(call))
        .route(
            "/v1/topics/{topic}/events",
            post(topics::publish).get(topics::read),
        )
        .route("/v1/events", get(events::open));
    for Thin {
        method,
        path,
        action,
        input,
    } in THIN
    {
        router = router.route(
            path,
            on(*method, move |ask, body| thin(ask, body, action, *input)),
        );
    }
    router
        .route("/.well-known/jwks.json", get(health::jwks))
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .fallback(|| async { Refused::NoRoute })
        .method_not_allowed_fallback(
            |method: Method| async move { Refused::Method(method.to_string()) },
        )
        .with_state(door)
}

async fn thin(ask: Ask, body: Body, action: &'static str, input: Input) -> Answer {
    // A HEAD comes here as a GET. Looking at a task acknowledges its deliveries, which nobody would have seen.
    if ask.method == Method::HEAD && action == "tasks.get" {
        return Err(Refused::Method("HEAD".to_owned()));
    }
    // Before the body is read, so that nobody without a credential makes us read one.
    let who = ask.who().await?;
    let mut fields = match input {
        Input::Body => body::object(&body::whole(body).await?)?,
        Input::Query(table) => ask.query(table)?,
    };
    ask.add_path(&mut fields)?;
    ask.call(who, action, fields).await
}

async fn call(ask: Ask, body: Body) -> Answer {
    let who = ask.who().await?;
    let input = body::object(&body::whole(body).await?)?;
    ask.call(who, ask.path("ref"), input).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thin_route_names_an_action() {
        for thin in THIN {
            let action = weft_actors::action::find(thin.action).unwrap();
            let changes = !matches!(thin.method, MethodFilter::GET);
            assert_eq!(action.changes, changes, "{}", thin.path);
        }
    }
}
