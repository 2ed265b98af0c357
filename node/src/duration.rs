//! Durations as people write them: `500ms 5s 2m 1h 1d`, also joined as `1m30s`; a bare number is seconds.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::limits::DURATION_MS_MAX;

/// Reads a duration into milliseconds, 0 to 366 days. For clap: the error is a sentence for a person.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("a duration is a number and a unit: 500ms, 5s, 2m, 1h, 1d".to_owned());
    }
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(letters);
        let number: f64 = number
            .parse()
            .map_err(|_| format!("`{text}` is no duration; write 500ms, 5s, 2m, 1h or 1d"))?;
        total += number
            * unit_ms(unit)
                .ok_or_else(|| format!("`{unit}` is no unit of time; use ms, s, m, h or d"))?;
        rest = next;
    }
    if total > DURATION_MS_MAX as f64 {
        return Err("at most 366 days".to_owned());
    }
    Ok(total.round() as u64)
}

/// A reader of durations within these bounds, in milliseconds. What lies outside is refused in the words it was written in.
pub(crate) fn between(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let ms = parse_ms(text)?;
        if bounds.contains(&ms) {
            Ok(ms)
        } else {
            let (least, most) = (exact(*bounds.start()), exact(*bounds.end()));
            Err(format!("takes {least} to {most}"))
        }
    }
}

/// Milliseconds as a person would write them, nothing rounded away.
fn exact(ms: u64) -> String {
    [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ]
    .into_iter()
    .find(|(_, unit)| ms > 0 && ms.is_multiple_of(*unit))
    .map_or_else(
        || format!("{ms}ms"),
        |(name, unit)| format!("{}{name}", ms / unit),
    )
}

/// Reads a duration that may also be `never`.
pub(crate) fn parse_idle(text: &str) -> Result<Idle, String> {
    if text == "never" {
        Ok(Idle::Never)
    } else {
        parse_ms(text).map(|ms| Idle::After(Duration::from_millis(ms)))
    }
}

/// How long a node without work stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// It ends after this time.
    After(Duration),
    /// For ever.
    Never,
}

fn unit_ms(unit: &str) -> Option<f64> {
    Some(match unit {
        "ms" => 1.0,
        // Docker's and coreutils' users write plain seconds.
        "" | "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    })
}

/// A span for a person: the two largest units at most, never negative.
pub(crate) fn human(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_joined_units_are_read() {
        for (text, ms) in [
            ("500ms", 500),
            ("5s", 5000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1m30s", 90_000),
            ("10", 10_000),
            ("0", 0),
            ("0.5s", 500),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", "s", "5x", "-5s", "1..5s", "5 s", "400d", "1e99d", "inf", "nan",
        ] {
            assert!(parse_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_are_told_as_durations_are_written() {
        let ttl = between(60_000..=2_592_000_000);
        assert_eq!(ttl("24h"), Ok(86_400_000));
        for outside in ["31d", "59s", "0"] {
            assert_eq!(ttl(outside), Err("takes 1m to 30d".to_owned()), "{outside}");
        }
        assert_eq!(exact(1), "1ms");
        assert_eq!(exact(90_000), "90s");
    }

    #[test]
    fn an_idle_grace_may_be_for_ever() {
        assert_eq!(parse_idle("never"), Ok(Idle::Never));
        assert_eq!(parse_idle("10m"), Ok(Idle::After(Duration::from_mins(10))));
        assert!(parse_idle("always").is_err());
    }

    #[test]
    fn spans_show_two_units() {
        assert_eq!(
            [
                human(999),
                human(59_000),
                human(61_000),
                human(3_660_000),
                human(90_000_000)
            ],
            ["999ms", "59s", "1m1s", "1h1m", "1d1h"]
        );
    }
}
