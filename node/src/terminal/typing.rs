//! What stands on our standard input, on its way to a task's.

use std::io::{self, Read as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::sync::mpsc;
use weft_actors::limits::INPUT_WRITE_BYTES_MAX;
use weft_actors::task::control::Control;
use weft_actors::task::wire::{Ask, INPUT_IS_FULL};

use crate::limits::TYPED_PARTS_MAX;

/// Our standard input, read on a thread of its own: a terminal's descriptor is shared with the shell, which a mode that does
/// not block would disturb.
pub(crate) struct Typing {
    parts: mpsc::Receiver<Vec<u8>>,
}

impl Typing {
    pub(crate) fn of_stdin() -> io::Result<Self> {
        let (send, parts) = mpsc::channel(TYPED_PARTS_MAX);
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || {
                let mut block = vec![0; INPUT_WRITE_BYTES_MAX];
                loop {
                    let got = match io::stdin().lock().read(&mut block) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        // A terminal that hung up is at its end.
                        Ok(0) | Err(_) => return,
                        Ok(got) => got,
                    };
                    if send.blocking_send(block[..got].to_vec()).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Typing { parts })
    }

    /// The next bytes; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        self.parts.recv().await
    }
}

/// Writes these bytes, at most [`INPUT_WRITE_BYTES_MAX`], waiting while the task does not read. The error is the shim's
/// refusal, which is final for these bytes.
pub(crate) async fn write(control: &Control, bytes: &[u8]) -> weft_actors::Result<()> {
    let ask = Ask::Write {
        data: BASE64_STANDARD.encode(bytes),
        mark: None,
    };
    loop {
        match control.ask(ask.clone()).await {
            Err(weft_actors::Error::WrongState(reason)) if reason.starts_with(INPUT_IS_FULL) => {
                let bytes = bytes.len();
                control.ask(Ask::Room { bytes }).await?;
            }
            answer => return answer.map(drop),
        }
    }
}

/// Writes all of our standard input and then ends the task's. Ends when the task takes nothing more.
pub(crate) async fn feed(control: &Control, mut typing: Typing, is_terminal: bool) {
    while let Some(bytes) = typing.next().await {
        let refused = write(control, &bytes).await.is_err();
        // On a terminal a refusal is about one line; a pipe that nobody reads stays so.
        if refused && !is_terminal {
            return;
        }
    }
    // Refused where the task has ended, or a terminal has no key for it.
    let _ = control.ask(Ask::CloseInput).await;
}
