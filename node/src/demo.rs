//! `weft demo`.

use crate::app::App;
use crate::exit::Failure;

/// Shows the product at work.
pub(crate) fn demo(_app: &App) -> Result<u8, Failure> {
    Err(Failure::Failed(
        "this build has no demonstration yet".to_owned(),
    ))
}
