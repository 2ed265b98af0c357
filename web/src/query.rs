//! Query strings as the JSON fields of an action's input. Pure.

use serde_json::{Map, Value};

use crate::error::Refused;

/// What a parameter becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A string, as it stands.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`; the bare name is `true`.
    Flag,
    /// Strings with commas between them.
    List,
}

/// The parameters that a route takes, by name.
pub(crate) type Table = &'static [(&'static str, Form)];

/// Reads a query string. Unknown and repeated names, and values that do not fit, are refused by name.
pub(crate) fn fields(query: Option<&str>, table: Table) -> Result<Map<String, Value>, Refused> {
    let mut fields = Map::new();
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) => (decode(name)?, Some(decode(value)?)),
            None => (decode(pair)?, None),
        };
        let Some((_, form)) = table.iter().find(|(known, _)| *known == name) else {
            return Err(Refused::invalid(
                name,
                format!("no such parameter; there are: {}", names(table)),
            ));
        };
        let value = shape(&name, value, *form)?;
        if fields.insert(name.clone(), value).is_some() {
            return Err(Refused::invalid(name, "given twice"));
        }
    }
    Ok(fields)
}

fn names(table: Table) -> String {
    let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(" ")
    }
}

fn shape(name: &str, value: Option<String>, form: Form) -> Result<Value, Refused> {
    let refuse = |wanted: &str| Err(Refused::invalid(name, format!("takes {wanted}")));
    match (form, value.as_deref()) {
        (Form::Flag, None | Some("true" | "1")) => Ok(true.into()),
        (Form::Flag, Some("false" | "0")) => Ok(false.into()),
        (Form::Flag, _) => refuse("true or false"),
        (_, None) => refuse("a value"),
        (Form::Text, Some(text)) => Ok(text.into()),
        (Form::Number, Some(text)) => match (text.parse::<u64>(), text.parse::<i64>()) {
            // `parse` alone would take a plus sign, which in a query may have been a space.
            _ if text.starts_with('+') => refuse("a whole number"),
            (Ok(number), _) => Ok(number.into()),
            (_, Ok(number)) => Ok(number.into()),
            _ => refuse("a whole number"),
        },
        (Form::List, Some(text)) => Ok(text.split(',').collect::<Vec<_>>().into()),
    }
}

/// Whether a query holds a token, under a name that says so or under any other.
pub(crate) fn holds_token(query: &str) -> bool {
    query.split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // What cannot be decoded is refused later; here only what a token could hide in matters.
        let decoded = |text: &str| decode(text).unwrap_or_default();
        let named = [
            "access_token",
            "token",
            "grant",
            "authorization",
            "bearer",
            "jwt",
        ]
        .iter()
        .any(|known| decoded(name).eq_ignore_ascii_case(known));
        let value = decoded(value);
        named || (value.contains("eyJ") && value.matches('.').count() >= 2)
    })
}

/// Percent-decodes a part of a query, where `+` is a space.
fn decode(text: &str) -> Result<String, Refused> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next(), rest.next()]
                    .map(|digit| digit.and_then(|digit| char::from(digit).to_digit(16)));
                let [Some(high), Some(low)] = digits else {
                    return Err(Refused::BadRequest(
                        "a percent sign in the query is not followed by two hexadecimal digits",
                    ));
                };
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| Refused::BadRequest("the query is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const TABLE: Table = &[
        ("after", Form::Text),
        ("limit", Form::Number),
        ("all", Form::Flag),
        ("topics", Form::List),
    ];

    fn check(query: &str, expected: Result<Value, &str>) {
        let got = fields(Some(query), TABLE)
            .map(Value::Object)
            .map_err(|refused| refused.to_string());
        match expected {
            Ok(value) => assert_eq!(got.unwrap(), value, "{query}"),
            Err(text) => assert!(got.clone().unwrap_err().contains(text), "{query}: {got:?}"),
        }
    }

    #[test]
    fn parameters_become_fields_of_their_type() {
        check(
            "after=e-7&limit=10&all&topics=a,b.%2A",
            Ok(json!({"after": "e-7", "limit": 10, "all": true, "topics": ["a", "b.*"]})),
        );
        check("limit=-200", Ok(json!({"limit": -200})));
        check("limit=18446744073709551615", Ok(json!({"limit": u64::MAX})));
        check(
            "after=a%20b+c&all=false",
            Ok(json!({"after": "a b c", "all": false})),
        );
        check("&&", Ok(json!({})));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        check("limits=1", Err("limits: no such parameter"));
        check("limit=1&limit=2", Err("limit: given twice"));
        check("limit=ten", Err("limit: takes a whole number"));
        check("limit=%2B1", Err("limit: takes a whole number"));
        check("limit", Err("limit: takes a value"));
        check("all=yes", Err("all: takes true or false"));
        check("after=%zz", Err("percent sign"));
        check("after=%ff", Err("UTF-8"));
    }

    #[test]
    fn tokens_are_found_wherever_they_hide() {
        for query in [
            "access_token=x",
            "a=1&Token=x",
            "acc%65ss_token=x",
            "topics=eyJhbGci.eyJh.c2ln",
            "x=%65yJhbGci.eyJh.c2ln",
        ] {
            assert!(holds_token(query), "{query}");
        }
        for query in ["", "topics=a.b.c", "after=e-1&limit=3", "tokens=1"] {
            assert!(!holds_token(query), "{query}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(query in ".{0,64}") {
            let _ = fields(Some(&query), TABLE);
            let _ = holds_token(&query);
        }
    }
}
