//! One stream of a task on its way to our own stdout or stderr.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use weft_actors::task::folder::Folder;
use weft_actors::task::output;
use weft_actors::task::wire::StreamName;

use crate::app::on_thread;
use crate::exit::Failure;
use crate::limits::COPY_BYTES;

/// Where a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Our stdout.
    Stdout,
    /// Our stderr.
    Stderr,
}

/// Copies a stream from where it stands.
#[derive(Debug)]
pub(super) struct Copier {
    folder: Arc<Folder>,
    stream: StreamName,
    offset: u64,
    lost: u64,
    /// Our descriptor itself: a buffer between would hold back what the task has written.
    out: File,
}

impl Copier {
    pub(super) fn new(folder: Arc<Folder>, stream: StreamName, target: Target) -> io::Result<Self> {
        let out = match target {
            Target::Stdout => io::stdout().as_fd().try_clone_to_owned()?,
            Target::Stderr => io::stderr().as_fd().try_clone_to_owned()?,
        };
        Ok(Copier {
            folder,
            stream,
            offset: 0,
            lost: 0,
            out: out.into(),
        })
    }

    #[cfg(test)]
    pub(super) fn into_file(folder: Arc<Folder>, stream: StreamName, out: File) -> Self {
        Copier {
            folder,
            stream,
            offset: 0,
            lost: 0,
            out,
        }
    }

    pub(super) fn stream(&self) -> StreamName {
        self.stream
    }

    /// Bytes of the stream that were copied or are gone.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that were given up before they could be read here.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Copies all there is now. On a thread of its own: a reader that stalls must not keep a Ctrl-C from the task.
    pub(super) async fn copy(mut self) -> Result<Self, Failure> {
        on_thread(move || self.copy_all().map(|()| self))
            .await
            .map_err(|error| Failure::io("copying output", error))?
    }

    fn copy_all(&mut self) -> Result<(), Failure> {
        loop {
            let chunk = output::read(&self.folder, self.stream, self.offset, COPY_BYTES, 0)
                .map_err(|error| Failure::io("the task's output", error))?;
            self.lost += chunk.omitted;
            self.out.write_all(&chunk.bytes).map_err(Failure::output)?;
            let done = chunk.next == self.offset;
            self.offset = chunk.next;
            if done {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_actors::task::folder::KEPT;
    use weft_actors::task::kept::Ranges;

    #[tokio::test]
    async fn all_that_is_kept_is_copied_and_gaps_are_passed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-1");
        let folder = Arc::new(Folder::create(&path).unwrap());
        let mut content = vec![b'x'; 3 * COPY_BYTES];
        content[10] = b'y';
        std::fs::write(path.join("output"), &content).unwrap();
        let out = dir.path().join("out");
        let copier = Copier::into_file(
            Arc::clone(&folder),
            StreamName::Output,
            File::create(&out).unwrap(),
        );
        let copier = copier.copy().await.unwrap();
        assert_eq!(copier.offset(), content.len() as u64);
        assert_eq!(std::fs::read(&out).unwrap(), content);

        // The task goes on, and its first bytes are given up before we came to read them.
        content.extend_from_slice(b"later");
        std::fs::write(path.join("output"), &content).unwrap();
        let kept = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path.join(KEPT))
            .unwrap();
        Ranges {
            mark: content.len() as u64 - 2,
            ..Ranges::default()
        }
        .write(&kept, StreamName::Output)
        .unwrap();
        let copier = copier.copy().await.unwrap();
        assert_eq!(copier.offset(), content.len() as u64);
        assert_eq!(copier.lost(), 3);
        assert!(std::fs::read(&out).unwrap().ends_with(b"xer"));
    }

    #[tokio::test]
    async fn a_closed_pipe_is_told_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-1");
        let folder = Arc::new(Folder::create(&path).unwrap());
        std::fs::write(path.join("output"), "text").unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(read);
        let copied = Copier::into_file(folder, StreamName::Output, write.into())
            .copy()
            .await;
        assert!(matches!(copied, Err(Failure::OutputClosed)), "{copied:?}");
    }
}
