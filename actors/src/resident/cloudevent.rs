//! An event as CloudEvents 1.0 JSON, and as variables: what a handler is given.

use serde_json::{Value, json};
use weft_mesh::{Event, Origin};

/// The event in the structured JSON form of CloudEvents 1.0.2, with the mesh's own fields as extension attributes.
pub fn json(event: &Event, node: &str) -> Value {
    let data = event.data.as_ref().map_or(Value::Null, |data| {
        serde_json::from_str(data.get()).unwrap_or(Value::Null)
    });
    // A completion is about its task; anything else about its topic.
    let subject = event
        .from
        .strip_prefix("task:")
        .unwrap_or(event.topic.as_str());
    json!({
        "specversion": "1.0",
        "id": event.id,
        "source": format!("/weft/{node}/topics/{}", event.topic),
        "type": event.kind,
        "subject": subject,
        "time": rfc3339(event.created_at),
        "datacontenttype": "application/json",
        "data": data,
        "text": event.text,
        "topic": event.topic,
        "sequence": event.sequence.to_string(),
        "from": event.from,
        "to": event.to,
        "origin": event.origin,
        "untrusted": event.untrusted,
        "grantid": event.grant_id,
    })
}

/// The event as `WEFT_EVENT_*` variables. No payload: that is data, and comes on standard input.
pub fn variables(event: &Event, resident: &str, attempt: u32) -> Vec<(String, String)> {
    let origin = match event.origin {
        Origin::Local => "local",
        Origin::External => "external",
    };
    [
        ("ID", event.id.to_string()),
        ("SEQUENCE", event.sequence.to_string()),
        ("TOPIC", event.topic.to_string()),
        ("KIND", event.kind.to_string()),
        ("FROM", event.from.clone()),
        ("ORIGIN", origin.to_owned()),
        ("UNTRUSTED", event.untrusted.to_string()),
        ("RESIDENT", resident.to_owned()),
        ("ATTEMPT", attempt.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (format!("WEFT_EVENT_{name}"), value))
    .collect()
}

/// Epoch milliseconds as RFC 3339 in UTC.
pub fn rfc3339(ms: u64) -> String {
    let (seconds, millis) = (ms / 1000, ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to civil date with March as the first month, so that the leap day is the last of its year (Hinnant).
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = year_of_era + era * 400 + carry;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{millis:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_written_as_others_write_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_001, "2000-03-01T00:00:00.001Z"),
            (1_796_083_200_000, "2026-12-01T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
        }
    }
}
