//! `weft attach`: a person's terminal on a task's. It speaks to the shim and reads the task's files; no node is needed, and
//! none's death is noticed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;
use weft_actors::task::control::{Closed, Control};
use weft_actors::task::folder::{Folder, SPEC};
use weft_actors::task::wire::{Ask, Io, Receipt, StreamName};

use super::keys::{DetachKeys, Scanner};
use super::picture::Picture;
use super::raw::{Raw, undo};
use super::size::Size;
use super::typing::{self, Typing};
use crate::app::{on_thread, say};
use crate::exit::{self, Failure};
use crate::limits::{ACTIVE_AGAIN_MS, LEAVE_MS, TYPED_PARTS_MAX};

/// What a terminal does with a key that it does not take.
const BELL: &str = "\x07";

/// How a terminal is attached.
pub(crate) struct Options {
    pub(crate) keys: DetachKeys,
    /// Nothing is typed and the size is left alone.
    pub(crate) is_read_only: bool,
}

/// Why it is no longer attached.
enum Left {
    /// By its keys.
    Detached,
    /// By this signal.
    Signal(u8),
    /// The task ended, as its receipt says.
    Ended(Arc<Receipt>),
    /// The shim is gone.
    Gone,
}

/// Attaches to the task of this folder until it ends or the person leaves, and gives the exit code.
pub(crate) async fn attach(folder: &Path, id: &str, options: Options) -> Result<u8, Failure> {
    let open = Folder::open(folder)
        .map(Arc::new)
        .map_err(|error| Failure::io(format!("task {id}"), error))?;
    refuse_without_terminal(&open, id)?;
    let Ok(control) = Control::connect(folder).await else {
        return ended_before(&open, id);
    };
    // Before the terminal is changed: these no longer end this process as it is.
    let signals = Signals::listen().map_err(|error| Failure::io("listening for signals", error))?;
    let about = Arc::clone(&open);
    let picture = on_thread(move || Picture::open(about))
        .await
        .and_then(|opened| opened)
        .map_err(|error| Failure::io(format!("task {id}"), error))?;
    let left = Attached::enter(control, signals, options)?
        .stay(picture)
        .await?;
    match left {
        Left::Detached => {
            say(&format!("detached from {id}, which runs on"));
            Ok(exit::DONE)
        }
        Left::Signal(number) => Ok(128 + number),
        Left::Ended(receipt) => Ok(code_of(&receipt)),
        Left::Gone => ended_before(&open, id),
    }
}

fn refuse_without_terminal(folder: &Folder, id: &str) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Kind {
        io: Io,
    }
    match folder.read_json::<Kind>(SPEC) {
        Ok(Some(Kind { io: Io::Pty })) => Ok(()),
        Ok(Some(_)) => Err(Failure::Failed(format!(
            "task {id} has no terminal to attach to; `weft logs -f {id}` shows what it writes, and --pty gives one its terminal"
        ))),
        Ok(None) => Err(Failure::Failed(format!("there is no task {id}"))),
        Err(error) => Err(Failure::io(format!("task {id}"), error)),
    }
}

/// The exit code for a task whose shim is gone: its own, where its receipt tells it.
fn ended_before(folder: &Folder, id: &str) -> Result<u8, Failure> {
    let receipt = folder
        .receipt()
        .map_err(|error| Failure::io("the task's receipt", error))?;
    let Some(receipt) = receipt else {
        say(&format!(
            "{id} has no living shim and left no receipt; `weft get {id}` tells what is known"
        ));
        return Ok(exit::WEFT_FAILED);
    };
    say(&format!(
        "{id} has ended; `weft logs {id}` shows what it wrote"
    ));
    Ok(code_of(&receipt))
}

fn code_of(receipt: &Receipt) -> u8 {
    exit::of_record(&json!({"state": receipt.state, "exitCode": receipt.exit_code}))
}

/// The signals that matter to a terminal.
struct Signals {
    ends: [(u8, Signal); 4],
    resized: Signal,
    stopped: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let end =
            |kind: SignalKind| Ok::<_, std::io::Error>((kind.as_raw_value() as u8, signal(kind)?));
        Ok(Signals {
            ends: [
                end(SignalKind::hangup())?,
                end(SignalKind::interrupt())?,
                end(SignalKind::terminate())?,
                end(SignalKind::quit())?,
            ],
            resized: signal(SignalKind::window_change())?,
            stopped: signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?,
        })
    }

    /// The next signal that means the end of this process.
    async fn end(ends: &mut [(u8, Signal); 4]) -> u8 {
        let [(one, a), (two, b), (three, c), (four, d)] = ends;
        tokio::select! {
            _ = a.recv() => *one,
            _ = b.recv() => *two,
            _ = c.recv() => *three,
            _ = d.recv() => *four,
        }
    }
}

/// One attached terminal.
struct Attached {
    control: Control,
    signals: Signals,
    /// None where our standard input is no terminal.
    raw: Option<Raw>,
    is_read_only: bool,
    scanner: Scanner,
    typing: Typing,
    /// What was typed and is on its way to the task.
    typed: mpsc::Sender<Vec<u8>>,
    typed_at: Option<Instant>,
}

impl Attached {
    fn enter(control: Control, signals: Signals, options: Options) -> Result<Self, Failure> {
        let raw = Raw::enter().map_err(|error| Failure::io("the terminal's mode", error))?;
        let typing =
            Typing::of_stdin().map_err(|error| Failure::io("reading standard input", error))?;
        let (typed, parts) = mpsc::channel(TYPED_PARTS_MAX);
        tokio::spawn(pass_on(control.clone(), parts));
        Ok(Attached {
            control,
            signals,
            raw,
            is_read_only: options.is_read_only,
            scanner: Scanner::new(options.keys),
            typing,
            typed,
            typed_at: None,
        })
    }

    /// Shows and types until one of the two ends. The terminal is as it was when this returns.
    async fn stay(mut self, picture: Picture) -> Result<Left, Failure> {
        self.take_size();
        let is_alternate = picture.alternate();
        let mut picture = Some(picture.draw().await?);
        let mut is_typing = true;
        let mut following = None;
        let left = loop {
            // One look at the output is under way at any time, or one wait for more of it.
            let follow = following.get_or_insert_with(|| {
                let (control, picture) = (self.control.clone(), picture.take());
                Box::pin(follow(control, picture))
            });
            tokio::select! {
                shown = follow => {
                    following = None;
                    match shown? {
                        Followed::More(shown) => picture = Some(*shown),
                        Followed::Ended(left) => break left,
                    }
                }
                typed = self.typing.next(), if is_typing => match typed {
                    Some(typed) => if self.take_typed(&typed) {
                        break Left::Detached;
                    },
                    None => is_typing = false,
                },
                number = Signals::end(&mut self.signals.ends) => break Left::Signal(number),
                _ = self.signals.resized.recv() => self.take_size(),
                _ = self.signals.stopped.recv() => self.pause(),
            }
        };
        // Past a picture that may be in the middle of a write: a terminal that is stopped by a key takes nothing, and keeps
        // nobody.
        send(format!(
            "{}\r\n",
            undo(is_alternate.load(Ordering::Relaxed))
        ))
        .await;
        drop(self.raw);
        Ok(left)
    }

    /// Passes on what was typed, and says whether it was the keys that detach.
    fn take_typed(&mut self, typed: &[u8]) -> bool {
        let typed = self.scanner.take(typed);
        if !self.is_read_only && !typed.bytes.is_empty() {
            let is_active = |at: Instant| at.elapsed() < Duration::from_millis(ACTIVE_AGAIN_MS);
            if !self.typed_at.is_some_and(is_active) {
                self.take_size();
            }
            self.typed_at = Some(Instant::now());
            // A task that reads nothing has a mebibyte waiting by then; more keys are lost, as on any terminal.
            let _ = self.typed.try_send(typed.bytes);
        }
        typed.is_detach
    }

    /// Gives the task's terminal our size.
    fn take_size(&self) {
        if self.is_read_only {
            return;
        }
        if let Some(Size { cols, rows }) = Size::of(std::io::stdin()) {
            let control = self.control.clone();
            tokio::spawn(async move { control.ask(Ask::Resize { cols, rows }).await });
        }
    }

    /// Stops this process as it was asked to, with the terminal as it was, and goes on in raw mode.
    fn pause(&mut self) {
        if let Some(raw) = &self.raw {
            raw.leave();
        }
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        if let Some(raw) = &self.raw {
            // A terminal that is another's by now stays as it is.
            let _ = raw.again();
        }
        self.take_size();
    }
}

/// Writes in order what was typed.
async fn pass_on(control: Control, mut parts: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = parts.recv().await {
        if typing::write(&control, &bytes).await.is_err() {
            send(BELL.to_owned()).await;
        }
    }
}

/// Sends something to our terminal beside the picture, unless it takes nothing.
async fn send(text: String) {
    let sent = on_thread(move || crate::app::print(&text));
    let _ = timeout(Duration::from_millis(LEAVE_MS), sent).await;
}

/// What a look at the output came to.
enum Followed {
    More(Box<Picture>),
    Ended(Left),
}

/// Waits for more output and shows it.
async fn follow(control: Control, picture: Option<Picture>) -> Result<Followed, Failure> {
    let picture = picture.ok_or_else(|| Failure::Failed("the picture is elsewhere".to_owned()))?;
    let after = picture.offset();
    let told = control
        .ask(Ask::Await {
            stream: StreamName::Output,
            after,
        })
        .await
        .unwrap_or_default();
    // The shim's word, not the file's length: somebody may have cut or removed the file, and more comes all the same.
    let known = told["size"].as_u64().unwrap_or(0);
    let picture = picture.follow(known).await?;
    if told["ended"] != true && known > after {
        return Ok(Followed::More(Box::new(picture)));
    }
    // Woken without growth means that the task is ending: what is left comes with the end.
    let left = match control.closed().await {
        Closed::Ended(receipt) => Left::Ended(receipt),
        Closed::Open | Closed::Broken => Left::Gone,
    };
    picture.follow(known).await?;
    Ok(Followed::Ended(left))
}
