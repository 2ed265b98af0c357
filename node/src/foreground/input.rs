//! What stands on our standard input. A batch command's input is closed, so whoever hands something over must be told that
//! nobody reads it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, fstat, tell};
use rustix::io::ioctl_fionread;

/// What a person is told.
pub(super) const UNREAD: &str = "the command's input is closed, and what stands on standard input is not read; --io pipes hands it over, as does naming it in the line: weft run -c 'COMMAND < FILE'";

/// Whether bytes wait on our standard input.
pub(super) fn waits() -> bool {
    holds_bytes(std::io::stdin().as_fd())
}

/// Whether a pipe or a regular file holds bytes that were not read yet. Terminals, devices and what is closed hold none that
/// anybody meant for the command.
fn holds_bytes(input: BorrowedFd<'_>) -> bool {
    let Ok(about) = fstat(input) else {
        return false;
    };
    match FileType::from_raw_mode(about.st_mode) {
        FileType::Fifo => ioctl_fionread(input).is_ok_and(|bytes| bytes > 0),
        FileType::RegularFile => {
            let size = u64::try_from(about.st_size).unwrap_or(0);
            tell(input).is_ok_and(|offset| offset < size)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    #[test]
    fn only_bytes_that_somebody_handed_over_count() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(!holds_bytes(reader.as_fd()));
        writer.write_all(b"x").unwrap();
        assert!(holds_bytes(reader.as_fd()));

        assert!(!holds_bytes(File::open("/dev/null").unwrap().as_fd()));
        let mut file = tempfile::tempfile().unwrap();
        assert!(!holds_bytes(file.as_fd()));
        file.write_all(b"xy").unwrap();
        // All of it is behind the offset, as for a loop that has read its list to the end.
        assert!(!holds_bytes(file.as_fd()));
        std::io::Seek::rewind(&mut file).unwrap();
        assert!(holds_bytes(file.as_fd()));
        let _ = file.read(&mut [0; 2]).unwrap();
        assert!(!holds_bytes(file.as_fd()));
    }
}
