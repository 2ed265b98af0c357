//! `home`: looking after homes.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use crate::app::App;
use crate::exit::{self, Failure};
use crate::home::{Trusted, trust};
use crate::render::visible;

/// The verbs of `home`.
#[derive(Debug, Subcommand)]
pub(super) enum HomeVerb {
    /// Take a home that came from elsewhere as your own; it gets a new id and new keys
    ///
    /// Look at it first: from then on its residents may run, and its tasks can be seen as yours.
    Trust {
        /// The home, or the folder that holds a .weft
        path: PathBuf,
    },
}

impl HomeVerb {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let HomeVerb::Trust { path } = self;
        let (home, was_known) = match trust(&app.state_dir()?, &app.cwd().join(path))? {
            Trusted::Already(home) => (home, true),
            Trusted::Now(home) => (home, false),
        };
        let answer = json!({"home": home.root.to_string_lossy(), "id": home.id, "alreadyTrusted": was_known});
        app.answer(&answer, |_| {
            let done = if was_known {
                "was trusted already"
            } else {
                "is trusted"
            };
            format!(
                "{} {done} as {}\n",
                visible(&home.root.to_string_lossy()),
                home.id
            )
        })?;
        Ok(exit::DONE)
    }
}
