//! Sizes as people write them: `4096`, `64MiB`, `2G`. The letters mean powers of 1024, as `dd` and `truncate` have it.

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
}
