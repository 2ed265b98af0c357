//! What a resident is: its topics, its handler and its patience.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_mesh::{Event, Kind, Pattern};

use crate::check;
use crate::error::{Error, Result};
use crate::limits::{RESIDENT_TOPICS_MAX, RETRIES_DEFAULT, RETRIES_MAX, TIMEOUT_MS_MAX};

/// What a resident does with an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Handler {
    /// Runs a command: the event as CloudEvents JSON on its standard input and in `WEFT_EVENT_*`; exit 0 acknowledges.
    Exec(Exec),
}

/// The command of an `exec` handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exec {
    /// Its words, the program first.
    pub argv: Vec<String>,
}

/// Everything given when a resident is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResidentSpec {
    /// Its name.
    pub name: String,
    /// The patterns of the topics it subscribes to.
    pub topics: Vec<Pattern>,
    /// The kinds it takes; all, unless given.
    #[serde(default)]
    pub kinds: Vec<Kind>,
    /// What it does with an event.
    pub handler: Handler,
    /// Retries after the first attempt.
    #[serde(default = "retries_default")]
    pub retries: u32,
    /// A hard cap on each run, milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The working directory of its runs.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Variables added to the environment of its runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

fn retries_default() -> u32 {
    RETRIES_DEFAULT
}

impl ResidentSpec {
    /// Refuses what no resident may be, naming the field.
    pub fn check(&self) -> Result<()> {
        check::name("name", &self.name)?;
        if self.topics.is_empty() || self.topics.len() > RESIDENT_TOPICS_MAX {
            return Err(Error::invalid(
                "topics",
                format!("takes 1 to {RESIDENT_TOPICS_MAX} patterns"),
            ));
        }
        check::within("retries", Some(self.retries), 0..=RETRIES_MAX)?;
        check::within("timeoutMs", self.timeout_ms, 1..=TIMEOUT_MS_MAX)?;
        let Handler::Exec(exec) = &self.handler;
        if exec.argv.first().is_none_or(String::is_empty) {
            return Err(Error::invalid(
                "handler.exec.argv",
                "takes at least one word, the program",
            ));
        }
        Ok(())
    }

    /// Whether the resident takes this event: one of its kinds, or a message told to it alone.
    pub fn takes(&self, event: &Event) -> bool {
        self.kinds.is_empty()
            || self.kinds.contains(&event.kind)
            || event.topic.as_str() == super::tell_topic(&self.name)
    }
}
