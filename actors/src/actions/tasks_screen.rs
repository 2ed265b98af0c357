//! `tasks.screen`: what stands on a task's terminal.

use std::sync::PoisonError;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use super::tasks_read::size_told;
use crate::action::{Ctx, Verb};
use crate::error::{Error, Result};
use crate::task::folder::Folder;
use crate::task::screen::{Screen as Model, View};
use crate::task::view::{blocking, find};
use crate::task::wire::{Io, StreamName};

/// Shows a screen.
pub(crate) struct Screen;

/// Whose.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ScreenInput {
    /// The id, or an unambiguous prefix.
    id: String,
}

/// The screen as text.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScreenOutput {
    /// The text of each row, without the blanks at its end.
    rows: Vec<String>,
    /// Columns and rows.
    size: (u16, u16),
    cursor: Cursor,
    /// The title that the program gave its window; null where it gave none.
    title: Option<String>,
    /// The program draws on the alternate screen, as full-screen programs do.
    alternate: bool,
}

/// Where the cursor stands, counted from 0.
#[derive(Debug, Serialize, JsonSchema)]
struct Cursor {
    row: u16,
    col: u16,
    visible: bool,
}

impl Verb for Screen {
    const REF: &'static str = "tasks.screen";
    const SUMMARY: &'static str = "what stands on the screen of a task's terminal, as text";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = ScreenInput;
    type Out = ScreenOutput;

    async fn run(ctx: Ctx, input: ScreenInput) -> Result<ScreenOutput> {
        let house = &ctx.house;
        let row = find(house, &input.id).await?;
        let id = row.spec.id.clone();
        if row.spec.io != Io::Pty {
            return Err(Error::WrongState(format!(
                "task {id} has no terminal and so no screen; read its output, or run it with io pty"
            )));
        }
        // Somebody may have cut or removed the file; the end, or else the shim, knows how long the output is.
        let known = match &row.end {
            Some(end) => end.streams.get(&StreamName::Output).copied(),
            None => size_told(house, &id, StreamName::Output).await,
        };
        let (path, shared) = (house.home.task(&id), house.screens.of(&id));
        let (view, cells) = blocking(move || {
            let mut screen = shared.lock().unwrap_or_else(PoisonError::into_inner);
            look(&mut screen, &path, known.unwrap_or(0))
                .map_err(|error| Error::io("the screen", error))
        })
        .await?;
        house.screens.note(&id, cells);
        Ok(view.into())
    }
}

fn look(
    screen: &mut Option<Model>,
    path: &std::path::Path,
    known: u64,
) -> std::io::Result<(View, usize)> {
    let folder = Folder::open(path)?;
    let model = match screen {
        Some(model) => model,
        None => screen.insert(Model::open(&folder)?),
    };
    model.catch_up(&folder, known)?;
    Ok((model.view(), model.cells()))
}

impl From<View> for ScreenOutput {
    fn from(view: View) -> Self {
        ScreenOutput {
            rows: view.rows,
            size: view.size,
            cursor: Cursor {
                row: view.cursor.0,
                col: view.cursor.1,
                visible: view.is_cursor_visible,
            },
            title: view.title,
            alternate: view.is_alternate,
        }
    }
}
