//! A new terminal, with its two ends as descriptors of ours.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use portable_pty::{PtySize, native_pty_system};
use rustix::pty::OpenptFlags;

/// Opens a terminal of this size. The first end is the supervisor's, the second the command's, and neither becomes the
/// terminal of this process.
pub(crate) fn open((cols, rows): (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    let size = PtySize {
        rows,
        cols,
        pixel_width: 0,
        pixel_height: 0,
    };
    let pair = native_pty_system()
        .openpty(size)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let number = pair
        .master
        .as_raw_fd()
        .ok_or_else(|| io::Error::other("the new terminal has no descriptor"))?;
    // SAFETY: the descriptor is open for as long as `pair` lives, which is longer than this borrow.
    let master = unsafe { BorrowedFd::borrow_raw(number) };
    let ours = rustix::io::fcntl_dupfd_cloexec(master, 3)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
    // The library's own handles close here; a terminal ends with the last descriptor of its second end.
    Ok((ours, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_terminal_has_its_size_and_carries_bytes() {
        let (ours, theirs) = open((132, 43)).unwrap();
        let size = rustix::termios::tcgetwinsize(&theirs).unwrap();
        assert_eq!((size.ws_col, size.ws_row), (132, 43));
        rustix::io::write(&theirs, b"up\n").unwrap();
        let mut buffer = [0; 8];
        let got = rustix::io::read(&ours, &mut buffer).unwrap();
        assert_eq!(&buffer[..got], b"up\r\n");
        drop(theirs);
        assert_eq!(
            rustix::io::read(&ours, &mut buffer),
            Err(rustix::io::Errno::IO),
            "with the last holder gone the terminal has ended"
        );
    }
}
