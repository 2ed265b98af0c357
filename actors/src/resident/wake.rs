//! The file `wake`: while it is in the home, a shim whose task ends without a node starts one.

use crate::error::{Error, Result};
use crate::house::House;
use crate::resident::rows;
use crate::task::view::blocking;

/// Makes or removes the file, by whether an enabled resident exists.
pub async fn refresh(house: &House) -> Result<()> {
    let any = house.look(rows::all).await?.iter().any(|row| row.enabled);
    let path = house.home.wake();
    blocking(move || {
        let done = if any {
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .map(drop)
        } else {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                other => other,
            }
        };
        done.map_err(|error| Error::io(format!("keeping the file {}", path.display()), error))
    })
    .await
}
