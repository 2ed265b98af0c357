//! `weft run` in the foreground: the lease is this process's own connection to the task's shim, the output is copied
//! from the task's files. Once the task runs no node is needed: its death disturbs nothing here.

mod copy;
mod input;
mod signals;

use std::cell::Cell;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use weft_actors::task::control::{Closed, Control};
use weft_actors::task::folder::Folder;
use weft_actors::task::wire::{Ask, Io, Lease, Receipt, StreamName};

use crate::app::{App, on_terminal, print, print_json, say};
use crate::client::Client;
use crate::exit::{self, Failure};
use crate::render::{self, list, text};
use crate::terminal::raw::{Raw, undo};
use crate::terminal::size::Size;
use crate::terminal::typing::{self, Typing};

use copy::{Copier, Target};
use signals::{Signals, Wish};

/// The reason in the record of a task that was ended because nobody read its output.
const OUTPUT_CLOSED: &str = "output-closed";

/// How long the node may take to note the end of a task that has ended.
const END_NOTED_MS: u64 = 5_000;

/// Whether our stdout and stderr are one file, pipe or terminal, so that the task's should be one stream.
pub(crate) fn outputs_are_one() -> bool {
    let (out, err) = (std::io::stdout(), std::io::stderr());
    match (
        rustix::fs::fstat(out.as_fd()),
        rustix::fs::fstat(err.as_fd()),
    ) {
        (Ok(out), Ok(err)) => {
            (out.st_dev, out.st_ino, out.st_rdev) == (err.st_dev, err.st_ino, err.st_rdev)
        }
        _ => false,
    }
}

/// Starts the task, shows what it writes, and gives its exit code.
pub(crate) async fn run(
    app: &App,
    client: Client,
    input: Value,
    io: Io,
    hang_ms: Option<u64>,
    remarks: bool,
) -> Result<u8, Failure> {
    let remarks = remarks && io == Io::Batch;
    let waited = input::waits();
    if remarks && waited {
        say(input::UNREAD);
    }
    let code = perform(app, client, input, io, hang_ms).await?;
    // The other side of a pipe may be slower than our start.
    if remarks && !waited && input::waits() {
        say(input::UNREAD);
    }
    Ok(code)
}

async fn perform(
    app: &App,
    mut client: Client,
    input: Value,
    io: Io,
    hang_ms: Option<u64>,
) -> Result<u8, Failure> {
    // Before the start, so that a Ctrl-C during it is not lost on a task that nobody then ends.
    let mut signals =
        Signals::listen().map_err(|error| Failure::io("listening for signals", error))?;
    let record = client.change("tasks.run", input).await?;
    let joined = record["joined"] == true;
    if joined {
        say(&format!(
            "joined {}; it runs on when this command ends",
            text(&record, "id")
        ));
    }
    let folder = client.home().task(text(&record, "id"));
    let open = Folder::open(&folder)
        .map(Arc::new)
        .map_err(|error| Failure::io(folder.display().to_string(), error))?;
    let session = Session {
        app,
        record: &record,
        folder: open,
        joined,
        io,
        lost: Cell::new(0),
    };
    let end = if let Ok(control) = Control::connect(&folder).await {
        let hang_ms = hang_ms.filter(|&ms| ms > 0);
        let end = session.accompany(&control, &mut signals, hang_ms).await?;
        if matches!(end, End::HandedOver) {
            // While the lease is still held: dropping it first would be the end of the task.
            return hand_over(app, &mut client, &record).await;
        }
        end
    } else {
        // It has ended already; its files are complete.
        session.copy_rest().await?;
        session.end_on_disk()?
    };
    match end {
        End::Receipt(receipt) => session.finish(&mut client, &receipt).await,
        End::HandedOver | End::Left => Ok(128 + signals::INT),
        End::Lost => session.lost(&mut client).await,
    }
}

/// How this command's part in the task ended.
enum End {
    /// The task ended.
    Receipt(Arc<Receipt>),
    /// The task goes on under its session.
    HandedOver,
    /// The task was another's and goes on.
    Left,
    /// The shim is gone and left no receipt.
    Lost,
}

/// One foreground task.
struct Session<'a> {
    app: &'a App,
    record: &'a Value,
    folder: Arc<Folder>,
    joined: bool,
    io: Io,
    /// Bytes of output that never reached us.
    lost: Cell<u64>,
}

impl Session<'_> {
    /// Holds the lease, copies, passes signals on, until the end.
    async fn accompany(
        &self,
        control: &Control,
        signals: &mut Signals,
        hang_ms: Option<u64>,
    ) -> Result<End, Failure> {
        if !self.joined {
            // Refused only where the task has ended: then the end is told as well.
            let _ = control
                .ask(Ask::Hold {
                    consumes: !self.app.globals.json,
                })
                .await;
        }
        // A terminal's keys go through as they are, its Ctrl-C too, until this is dropped.
        let raw = match self.io {
            Io::Pty if on_terminal() => Raw::enter(),
            _ => Ok(None),
        };
        let raw = raw.map_err(|error| Failure::io("the terminal's mode", error))?;
        let mut resized = signal(SignalKind::window_change())
            .map_err(|error| Failure::io("listening for signals", error))?;
        let feed = self.feed(control);
        tokio::pin!(feed);
        let copies = self.follow_all(control);
        tokio::pin!(copies);
        let hang = async {
            match hang_ms {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(hang);
        loop {
            tokio::select! {
                done = &mut copies => {
                    if let Err(failure) = done {
                        self.give_up(control).await;
                        return Err(failure);
                    }
                    break;
                }
                wish = signals.next() => {
                    if self.joined {
                        return Ok(End::Left);
                    }
                    pass_on(control, wish);
                }
                failed = &mut feed => failed?,
                _ = resized.recv(), if raw.is_some() => {
                    if let Some(Size { cols, rows }) = Size::of(std::io::stdin()) {
                        pass(control, Ask::Resize { cols, rows });
                    }
                }
                () = &mut hang => return Ok(End::HandedOver),
            }
        }
        let closed = control.closed().await;
        if raw.is_some() {
            // Whatever a program that was ended in the middle of it had switched on.
            print(&undo(false))?;
        }
        match closed {
            Closed::Ended(receipt) => Ok(End::Receipt(receipt)),
            Closed::Open | Closed::Broken => self.end_on_disk(),
        }
    }

    /// Hands our standard input to a task that takes it. Comes back only with a failure: the end of the input is not the
    /// end of the task.
    async fn feed(&self, control: &Control) -> Result<(), Failure> {
        if self.io != Io::Batch && !self.joined {
            let typing =
                Typing::of_stdin().map_err(|error| Failure::io("reading standard input", error))?;
            typing::feed(control, typing, self.io == Io::Pty).await;
        }
        std::future::pending().await
    }

    /// Ends a task whose output nobody reads, as a shell's pipe would.
    async fn give_up(&self, control: &Control) {
        if !self.joined {
            // The lease would end it too; the reason is for its record.
            let _ = control
                .ask(Ask::Stop {
                    grace_ms: None,
                    reason: Some(OUTPUT_CLOSED.to_owned()),
                })
                .await;
        }
    }

    async fn follow_all(&self, control: &Control) -> Result<(), Failure> {
        let mut copiers = self.copiers()?.into_iter();
        match (copiers.next(), copiers.next()) {
            (Some(one), None) => self.count(&follow(control, one).await?),
            (Some(one), Some(other)) => {
                let (one, other) = tokio::try_join!(follow(control, one), follow(control, other))?;
                self.count(&one);
                self.count(&other);
            }

            // With --json nothing is copied.
            (None, _) => {
                control.closed().await;
            }
        }
        Ok(())
    }

    fn count(&self, copier: &Copier) {
        self.lost.set(self.lost.get() + copier.lost());
    }

    /// Copies what a task that has ended left.
    async fn copy_rest(&self) -> Result<(), Failure> {
        for copier in self.copiers()? {
            self.count(&copier.copy().await?);
        }
        Ok(())
    }

    fn copiers(&self) -> Result<Vec<Copier>, Failure> {
        if self.app.globals.json {
            return Ok(Vec::new());
        }
        let names = list(self.record, "streams")
            .iter()
            .filter_map(Value::as_str)
            .filter_map(StreamName::parse);
        names
            .map(|name| {
                let target = if name == StreamName::Stderr {
                    Target::Stderr
                } else {
                    Target::Stdout
                };
                Copier::new(Arc::clone(&self.folder), name, target).map_err(Failure::output)
            })
            .collect()
    }

    /// What the task's folder says of a task whose shim is gone.
    fn end_on_disk(&self) -> Result<End, Failure> {
        let receipt = self
            .folder
            .receipt()
            .map_err(|error| Failure::io("the task's receipt", error))?;
        Ok(receipt.map_or(End::Lost, |receipt| End::Receipt(Arc::new(receipt))))
    }

    async fn finish(&self, client: &mut Client, receipt: &Receipt) -> Result<u8, Failure> {
        if self.app.globals.json {
            self.print_whole(client).await?;
        }
        let code = json!({"state": receipt.state, "exitCode": receipt.exit_code});
        if code["state"] == "timed_out" {
            say(&format!(
                "{}: its time is over ({})",
                text(self.record, "id"),
                receipt.reason.as_deref().unwrap_or("deadline")
            ));
        }
        let word = receipt.signal.as_deref().and_then(signals::word);
        if let Some(word) = word.filter(|_| code["state"] != "timed_out") {
            say(&format!("{}: {word}", text(self.record, "id")));
        }
        if !receipt.survivors.is_empty() {
            say(&format!(
                "these processes of it live on: {:?}",
                receipt.survivors
            ));
        }
        let code = exit::of_record(&code);
        if self.lost.get() == 0 {
            return Ok(code);
        }
        say(&format!(
            "{} bytes of output could not be kept until they were read here: for want of disk space above freeFloor, or since they came too fast",
            self.lost.get()
        ));
        // Whoever reads our output must not take a part of it for the whole.
        Ok(if code == exit::DONE {
            exit::WEFT_FAILED
        } else {
            code
        })
    }

    /// The node finds out what can be known of a lost task, and whether anything of it is left.
    async fn lost(&self, client: &mut Client) -> Result<u8, Failure> {
        if self.app.globals.json {
            self.print_whole(client).await?;
        }
        say(&format!(
            "{} was lost: its shim ended without a receipt, so its end cannot be known",
            text(self.record, "id")
        ));
        Ok(exit::WEFT_FAILED)
    }

    /// The record with its output, as the node has it: it hears of the end at the same time as we do.
    async fn print_whole(&self, client: &mut Client) -> Result<(), Failure> {
        let answer = client
            .wait(
                "tasks.wait",
                json!({"id": self.record["id"], "timeoutMs": END_NOTED_MS}),
            )
            .await?;
        let mut task = answer["task"].clone();
        task["output"] = answer["output"].clone();
        print_json(&task)
    }
}

/// Copies one stream as it grows, to its end.
async fn follow(control: &Control, mut copier: Copier) -> Result<Copier, Failure> {
    loop {
        let grown = control
            .ask(Ask::Await {
                stream: copier.stream(),
                after: copier.offset(),
            })
            .await;
        let before = copier.offset();
        copier = copier.copy().await?;
        // Woken without growth means that the task is ending: what is left comes with the end, and asking again
        // before it would be answered at once.
        if grown.is_err() || copier.offset() == before {
            control.closed().await;
            return copier.copy().await;
        }
    }
}

/// Passes a signal of ours on. The answer does not matter: what it does shows in the task's end.
fn pass_on(control: &Control, wish: Wish) {
    let ask = match wish {
        Wish::Signal(signal) => Ask::Signal {
            signal: signal.to_owned(),
            mark: None,
        },
        Wish::Stop => Ask::Stop {
            grace_ms: None,
            reason: None,
        },
    };
    pass(control, ask);
}

/// Asks without waiting for the answer.
fn pass(control: &Control, ask: Ask) {
    let control = control.clone();
    tokio::spawn(async move { control.ask(ask).await });
}

/// Leaves the task to its session and says where it is.
async fn hand_over(app: &App, client: &mut Client, record: &Value) -> Result<u8, Failure> {
    let id = text(record, "id");
    let lease = json!(Lease::Session);
    let answer = client
        .change("tasks.setLease", json!({"id": id, "lease": lease}))
        .await?;
    app.answer(&answer["task"], render::fields)?;
    say(&format!(
        "{id} goes on in the background; `weft wait {id}`, `weft logs -f {id}`"
    ));
    print("")?;
    Ok(exit::DONE)
}
