//! A request for the writer: what to do in the commit, and whom to answer after it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;

use tokio::sync::oneshot;

use super::tx::Tx;
use crate::error::{MeshError, WriteError};

/// How a commit ended, for all its requests alike.
#[derive(Debug)]
pub(super) enum Ended {
    /// It is on stable storage.
    Committed,
    /// Nothing of it was stored.
    Refused(MeshError),
    /// It may be stored or not.
    Unknown(String),
}

/// What the writer knows of a request.
pub(super) trait Job: Send {
    /// Does the work inside the transaction. An error means that the whole transaction is lost.
    fn apply(&mut self, tx: &mut Tx<'_>) -> Result<(), MeshError>;

    /// Answers, after the transaction ended.
    fn answer(self: Box<Self>, ended: &Ended);
}

/// Where an answer goes. Nobody may be left to hear it.
#[derive(Debug)]
pub(super) enum Reply<T> {
    Task(oneshot::Sender<T>),
    Thread(SyncSender<T>),
}

impl<T> Reply<T> {
    pub(super) fn send(self, answer: T) {
        match self {
            Self::Task(sender) => drop(sender.send(answer)),
            Self::Thread(sender) => drop(sender.send(answer)),
        }
    }
}

type Outcome<T, E> = Result<T, WriteError<E>>;

/// A closure as a request.
pub(super) struct Work<F, T, E> {
    run: Option<F>,
    outcome: Option<Outcome<T, E>>,
    reply: Reply<Outcome<T, E>>,
    /// Whether an error leaves something to undo. What checks first and then does one thing needs no savepoint.
    needs_undo: bool,
    /// The ids of the events that a result tells of, for the case that its outcome is unknown.
    ids: fn(&T) -> Vec<String>,
}

impl<F, T, E> Work<F, T, E>
where
    F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    /// A closure of anybody's, undone by a savepoint when it fails.
    pub(super) fn guarded(run: F, reply: Reply<Outcome<T, E>>, ids: fn(&T) -> Vec<String>) -> Self {
        Self {
            run: Some(run),
            outcome: None,
            reply,
            needs_undo: true,
            ids,
        }
    }

    /// A closure that changes nothing when it fails.
    pub(super) fn plain(run: F, reply: Reply<Outcome<T, E>>, ids: fn(&T) -> Vec<String>) -> Self {
        Self {
            run: Some(run),
            outcome: None,
            reply,
            needs_undo: false,
            ids,
        }
    }
}

impl<F, T, E> Job for Work<F, T, E>
where
    F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send,
    T: Send,
    E: Send,
{
    fn apply(&mut self, tx: &mut Tx<'_>) -> Result<(), MeshError> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        if self.needs_undo {
            tx.save()?;
        }
        // The savepoint takes back whatever a panic left half done.
        let outcome = match catch_unwind(AssertUnwindSafe(|| run(tx))) {
            Ok(result) => result.map_err(WriteError::Refused),
            Err(panic) => Err(WriteError::Store(MeshError::Panicked {
                detail: panic_text(&*panic),
            })),
        };
        match (&outcome, self.needs_undo) {
            (outcome, true) => tx.end(outcome.is_ok())?,
            (Err(WriteError::Store(panicked)), false) => return Err(panicked.clone()),
            (_, false) => tx.check()?,
        }
        self.outcome = Some(outcome);
        Ok(())
    }

    fn answer(self: Box<Self>, ended: &Ended) {
        let answer = match (self.outcome, ended) {
            (Some(Ok(value)), Ended::Committed) => Ok(value),
            (Some(Ok(value)), Ended::Unknown(detail)) => Err(MeshError::OutcomeUnknown {
                detail: detail.clone(),
                ids: (self.ids)(&value),
            }
            .into()),
            (Some(Ok(_)) | None, Ended::Refused(error)) => Err(error.clone().into()),
            // A refusal of the request's own stands, however the commit ended: it stored nothing either way.
            (Some(Err(refusal)), _) => Err(refusal),
            (None, Ended::Committed | Ended::Unknown(_)) => Err(MeshError::StoreClosed.into()),
        };
        self.reply.send(answer);
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
