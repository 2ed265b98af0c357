//! What an action is, and the list of all. CLI, HTTP, MCP and the documents are thin over this list.
//!
//! Adding a verb is adding a file under `actions/` and a line in [`all`].

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weft_grants::scope::Right;

use crate::actions;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::house::House;

/// What a running action has in hand.
#[derive(Clone)]
pub struct Ctx {
    /// The node's parts.
    pub house: Arc<House>,
    /// Who calls.
    pub caller: Caller,
}

/// One verb: a ref, a scope, an input, an output and the function between them.
pub trait Verb {
    /// The ref it is called by, `tasks.read`.
    const REF: &'static str;
    /// One line for lists and help.
    const SUMMARY: &'static str;
    /// What a token needs.
    const SCOPE: Right;
    /// Whether it changes anything; then it takes a `requestId`.
    const CHANGES: bool;
    /// The JSON object it takes; unknown fields are refused by name.
    type In: DeserializeOwned + JsonSchema + Send;
    /// The JSON object it answers.
    type Out: Serialize + JsonSchema + Send;
    /// Does it.
    fn run(ctx: Ctx, input: Self::In) -> impl Future<Output = Result<Self::Out>> + Send;
}

type Call =
    Box<dyn Fn(Ctx, Value) -> Pin<Box<dyn Future<Output = Result<Value>> + Send>> + Send + Sync>;

/// A verb with its types erased: what the doors hold.
pub struct Action {
    /// The ref it is called by.
    pub reference: &'static str,
    /// One line for lists and help.
    pub summary: &'static str,
    /// What a token needs.
    pub scope: Right,
    /// Whether it changes anything.
    pub changes: bool,
    /// The schema of its input.
    pub input: fn() -> Schema,
    /// The schema of its output.
    pub output: fn() -> Schema,
    call: Call,
}

/// Erases the types of a verb.
pub fn of<V: Verb + 'static>() -> Action {
    Action {
        reference: V::REF,
        summary: V::SUMMARY,
        scope: V::SCOPE,
        changes: V::CHANGES,
        input: schema::<V::In>,
        output: schema::<V::Out>,
        call: Box::new(|ctx, input| {
            Box::pin(async move {
                let input = parse::<V::In>(input)?;
                let output = V::run(ctx, input).await?;
                serde_json::to_value(output).map_err(|error| {
                    Error::Internal(format!("{}: the answer is no JSON: {error}", V::REF))
                })
            })
        }),
    }
}

fn schema<T: JsonSchema>() -> Schema {
    schemars::SchemaGenerator::default().into_root_schema_for::<T>()
}

/// Reads an action's input. What does not fit is refused with the name of the field.
pub fn parse<T: DeserializeOwned>(input: Value) -> Result<T> {
    if !input.is_object() {
        return Err(Error::invalid("input", "takes one JSON object"));
    }
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        // A field that is unknown or missing is named by serde alone, in quotes: the path ends above it.
        let named = reason.split('`').nth(1).filter(|_| {
            reason.starts_with("unknown field `") || reason.starts_with("missing field `")
        });
        let field = match (path.as_str(), named) {
            (".", Some(name)) => name.to_owned(),
            (".", None) => "input".to_owned(),
            (path, Some(name)) if !path.ends_with(name) => format!("{path}.{name}"),
            (path, _) => path.to_owned(),
        };
        Error::Invalid { field, reason }
    })
}

static ALL: LazyLock<Vec<Action>> = LazyLock::new(|| {
    let mut list = actions::all();
    list.sort_by_key(|action| action.reference);
    list
});

/// Every action, by ref.
pub fn all() -> &'static [Action] {
    &ALL
}

/// The action called `reference`.
pub fn find(reference: &str) -> Result<&'static Action> {
    let list = all();
    list.binary_search_by_key(&reference, |action| action.reference)
        .map(|index| &list[index])
        .map_err(|_| Error::UnknownAction(reference.to_owned()))
}

/// Calls `reference` with `input`, as `ctx.caller`.
pub async fn call(ctx: Ctx, reference: &str, input: Value) -> Result<Value> {
    let action = find(reference)?;
    ctx.caller.require(action.scope)?;
    (action.call)(ctx, input).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::task::plan::RunInput;

    #[test]
    fn what_does_not_fit_is_refused_by_the_name_of_its_field() {
        for (input, field) in [
            (json!({"argv": "ls"}), "argv"),
            (json!({"argv": ["ls", 1]}), "argv[1]"),
            (json!({"argv": ["ls"], "lease": "forever"}), "lease"),
            (json!({"argv": ["ls"], "surprise": 1}), "surprise"),
            (json!({"argv": ["ls"], "notify": {}}), "notify.topic"),
            (
                json!({"argv": ["ls"], "notify": {"topic": "a", "kinds": "b"}}),
                "notify.kinds",
            ),
            (json!([]), "input"),
        ] {
            match parse::<RunInput>(input.clone()) {
                Err(Error::Invalid { field: named, .. }) => assert_eq!(named, field, "{input}"),
                other => panic!("{input}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_action_has_a_ref_of_its_own_and_schemas_that_are_objects() {
        let refs: Vec<_> = all().iter().map(|action| action.reference).collect();
        assert!(refs.windows(2).all(|pair| pair[0] < pair[1]), "{refs:?}");
        for action in all() {
            for schema in [(action.input)(), (action.output)()] {
                assert_eq!(
                    schema.get("type"),
                    Some(&json!("object")),
                    "{}",
                    action.reference
                );
            }
            assert!(find(action.reference).is_ok());
        }
    }
}
