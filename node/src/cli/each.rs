//! The same change asked of several tasks.

use serde_json::{Value, json};

use crate::app::{App, block_on, print_json, refuse};
use crate::exit::{self, Failure};

/// A change, and what is made of its answers.
pub(super) struct Change<'a> {
    /// The verb as it is called, `weft stop`.
    pub(super) called: &'a str,
    /// The action.
    pub(super) reference: &'a str,
    /// What of an answer stands in the one document for several ids.
    pub(super) part: fn(Value) -> Value,
    /// An answer for people.
    pub(super) show: fn(&Value) -> String,
    /// Tells what was not reached, and gives the exit code.
    pub(super) code: fn(&Value) -> u8,
}

impl Change<'_> {
    /// Asks it of each task. With several, one that is refused does not keep the change from the others.
    pub(super) fn perform(
        &self,
        app: &App,
        ids: &[String],
        input: impl Fn(&str) -> Value,
    ) -> Result<u8, Failure> {
        let mut client = app.client()?;
        let in_one_document = app.globals.json && ids.len() > 1;
        let (mut code, mut parts) = (exit::DONE, Vec::new());
        for id in ids {
            match block_on(client.change(self.reference, input(id))) {
                Ok(answer) => {
                    if !in_one_document {
                        app.answer(&answer, self.show)?;
                    }
                    code = code.max((self.code)(&answer));
                    parts.push((self.part)(answer));
                }
                Err(failure) if ids.len() > 1 => {
                    refuse(&failure, self.called, Some(id), app.globals.json);
                    code = code.max(failure.code());
                }
                Err(failure) => return Err(failure),
            }
        }
        if in_one_document {
            print_json(&json!({"tasks": parts}))?;
        }
        Ok(code)
    }
}
