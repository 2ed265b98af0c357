//! Request bodies: bounded, in time, JSON, and with every name said once.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::error::Refused;
use crate::limits::{BODY_BYTES_MAX, BODY_MS};

/// Reads a whole body.
pub(crate) async fn whole(body: Body) -> Result<Bytes, Refused> {
    let whole = tokio::time::timeout(
        Duration::from_millis(BODY_MS),
        Limited::new(body, BODY_BYTES_MAX).collect(),
    );
    match whole.await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refused::BodyTooLarge),
        Ok(Err(_)) => Err(Refused::BodyCut),
        Err(_elapsed) => Err(Refused::BodySlow),
    }
}

/// Reads a JSON object; no body at all is an empty one.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, Refused> {
    if bytes.is_empty() {
        Ok(Map::new())
    } else {
        parse::<Object>(bytes).map(|object| object.0)
    }
}

/// Reads a JSON object of a known shape. What does not fit is refused with the name of the field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refused> {
    // serde would take a list for an object whose fields it knows, one after another.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Refused::invalid("body", "takes one JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        if !error.is_data() {
            return Refused::Json(text);
        }
        // serde quotes the field it means: "unknown field `x`, …", "duplicate field `id`".
        let field = text
            .split('`')
            .nth(1)
            .filter(|_| text.contains("field `"))
            .unwrap_or("body");
        Refused::invalid(field, text.clone())
    })
}

/// An object in which each name stands once: with two, reader and writer could each mean another.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Object;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("one JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
                let mut map = Map::new();
                while let Some((name, value)) = access.next_entry::<String, Value>()? {
                    if map.contains_key(&name) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    map.insert(name, value);
                }
                Ok(Object(map))
            }
        }
        deserializer.deserialize_map(Once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> (&'static str, String) {
        let refused = object(text.as_bytes()).unwrap_err();
        (refused.slug(), refused.to_string())
    }

    #[test]
    fn objects_are_read_and_nothing_is_an_empty_one() {
        assert!(object(b"").unwrap().is_empty());
        assert_eq!(object(br#"{"a":1}"#).unwrap()["a"], 1);
    }

    #[test]
    fn what_is_no_object_is_refused_with_what_is_wrong() {
        assert_eq!(refusal("{").0, "invalid-json");
        assert_eq!(refusal("argv=1").0, "invalid-json");
        assert_eq!(refusal("[1]").0, "invalid-argument");
        assert_eq!(refusal("{} x").0, "invalid-json");
        let (slug, text) = refusal(r#"{"id":1,"id":2}"#);
        assert_eq!(slug, "invalid-argument");
        assert!(text.starts_with("id: "), "{text}");
        assert_eq!(refusal(&"[".repeat(100_000)).0, "invalid-argument");
        assert_eq!(
            refusal(&format!("{{\"a\":{}", "[".repeat(100_000))).0,
            "invalid-json"
        );
    }
}
