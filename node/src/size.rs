//! Sizes as people write them: `4096`, `64MiB`, `2G`. The letters mean powers of 1024, as `dd` and `truncate` have it.

use std::ops::RangeInclusive;

/// Reads a size into bytes. For clap: the error is a sentence for a person.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let refused = || format!("`{text}` is no size; write 4096, 512KiB, 64MiB or 2GiB");
    let number: u64 = number.parse().map_err(|_| refused())?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(refused()),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("`{text}` is more bytes than there can be"))
}

/// A reader of sizes within these bounds, in bytes. What lies outside is refused in the words it was written in.
pub(crate) fn between(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let bytes = parse_bytes(text)?;
        if bounds.contains(&bytes) {
            Ok(bytes)
        } else {
            let (least, most) = (exact(*bounds.start()), exact(*bounds.end()));
            Err(format!("takes {least} to {most}"))
        }
    }
}

/// Bytes as a person would write them, nothing rounded away.
fn exact(bytes: u64) -> String {
    [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(
            || bytes.to_string(),
            |(name, shift)| format!("{}{name}", bytes >> shift),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512k", 512 << 10),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("2G", 2 << 30),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "MiB",
            "-1",
            "1.5G",
            "3 elephants",
            "99999999999999999999",
            "99999999999T",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_are_told_as_sizes_are_written() {
        let keep = between(4096..=1 << 40);
        assert_eq!(keep("64MiB"), Ok(64 << 20));
        assert_eq!(keep("1"), Err("takes 4KiB to 1TiB".to_owned()));
    }
}
