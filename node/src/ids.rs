//! Ids made by the command line.

use std::fmt::Write as _;
use std::io;

/// `bytes` random bytes in hexadecimal form.
pub(crate) fn random_hex(bytes: usize) -> io::Result<String> {
    let mut random = vec![0_u8; bytes];
    fill(&mut random)?;
    Ok(random.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// An id for an event or a request. It begins with the time, so that a store that keeps it in order appends.
pub(crate) fn ordered() -> io::Result<String> {
    let mut random = [0_u8; 10];
    fill(&mut random)?;
    Ok(
        uuid::Builder::from_unix_timestamp_millis(crate::render::now_ms(), &random)
            .into_uuid()
            .to_string(),
    )
}

fn fill(random: &mut [u8]) -> io::Result<()> {
    getrandom::fill(random).map_err(|error| io::Error::other(format!("no random bytes: {error}")))
}
