//! What this crate asks of the kernel, and its only unsafe code: each block says why it is sound. What the
//! kernel tells through `/proc` is in [`proc`], who is ended by it in [`lost`].
#![expect(
    unsafe_code,
    reason = "the few calls that no dependency offers in a safe form"
)]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::Pid;

pub mod lost;
pub mod proc;
pub(crate) mod terminal;

pub use lost::{Descendants, kill_lost_task};
pub use proc::{Stat, ancestors, birth_of, boot_id, pid_namespace, stat_of};

/// Takes the lock of a file without waiting, making the file (mode 0600) where it is missing; `None` while
/// somebody holds it. It is free again when the file is dropped, or its process dies. A relative path starts at
/// `dir`, and a symbolic link at its end is refused.
pub fn try_lock(dir: impl AsFd, path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, path, flags, Mode::RUSR | Mode::WUSR)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file.into())),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lets a process that was stopped by a signal go on; one that runs does not notice.
pub fn resume(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // One that is gone needs nothing.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
    }
}

/// Closes every descriptor from `first` on. Only for a process's first moments: whoever owns one of them
/// does not learn of it.
pub fn close_inherited(first: RawFd) {
    // SAFETY: the call takes plain numbers. The caller's promise, kept by `shim::main` and the start of a detached node, is that nothing in
    // this process owns a descriptor from `first` on.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_int::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9. The names are collected first, since the listing has a descriptor of its own.
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd >= first) {
        // SAFETY: as above; a number that is closed already answers EBADF.
        unsafe { libc::close(fd) };
    }
}

/// Blocks these signals and gives a descriptor from which they are read instead.
pub(crate) fn signal_descriptor(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: the set is written by sigemptyset before it is read, and the numbers are valid signals; the
    // descriptor is new and nobody else's.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        checked(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            ptr::null_mut(),
        ))?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let fd = checked(libc::signalfd(-1, &raw const set, flags))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The signals that have come, read from a [`signal_descriptor`]. Equal ones come as one.
pub(crate) fn take_signals(descriptor: BorrowedFd<'_>) -> Vec<u32> {
    const ENTRY: usize = size_of::<libc::signalfd_siginfo>();
    let mut buffer = [0; 4 * ENTRY];
    let mut signals = Vec::new();
    while let Ok(bytes @ 1..) = rustix::io::read(descriptor, &mut buffer) {
        for entry in buffer[..bytes].chunks_exact(ENTRY) {
            // The number is the first field.
            signals.push(u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]));
        }
    }
    signals
}

/// A child that has ended and was not waited for yet, left as it is.
pub(crate) fn peek_ended() -> Option<u32> {
    // SAFETY: the kernel fills the structure, and its pid field is read only after it did.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        match libc::waitid(libc::P_ALL, 0, &raw mut info, flags) {
            0 => info.si_pid(),
            _ => 0,
        }
    };
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

/// Processor milliseconds of all children waited for, and the largest resident bytes of any of them.
pub(crate) fn children_usage() -> (u64, u64) {
    // SAFETY: the kernel fills the structure; where it refuses, the zeros stand.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let ms = |time: libc::timeval| time.tv_sec as u64 * 1000 + time.tv_usec as u64 / 1000;
    let cpu_ms = ms(usage.ru_utime) + ms(usage.ru_stime);
    (cpu_ms, usage.ru_maxrss as u64 * 1024)
}

/// Gives freed memory back to the kernel, and forgets pages of the program that are as they are in its file:
/// a shim lives long and mostly waits, and what it needs again is mapped again from the page cache.
pub(crate) fn give_memory_back() {
    let mappings = proc::clean_file_mappings();
    #[cfg(target_env = "gnu")]
    // SAFETY: the call touches free memory of the allocator alone.
    unsafe {
        libc::malloc_trim(0);
    }
    // Last, since whatever runs after this is mapped again.
    for (start, end) in mappings {
        let (address, bytes) = (start as *mut libc::c_void, end - start);
        // SAFETY: the range is a private mapping of a file that cannot be written and of which no page differs
        // from the file (the loader's relocations would show as anonymous pages), so that a page read again is
        // the same page.
        unsafe { libc::madvise(address, bytes, libc::MADV_DONTNEED) };
    }
}

/// A program to become, with all that it gets. Everything is prepared before the fork, so that the child
/// allocates nothing.
pub(crate) struct Program {
    /// Paths to try, in order.
    pub(crate) candidates: Vec<CString>,
    /// The words.
    pub(crate) argv: Vec<CString>,
    /// `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// The working directory.
    pub(crate) cwd: CString,
    /// Soft and hard limit of open files.
    pub(crate) nofile: Option<(u64, u64)>,
    /// Its streams are a terminal, which becomes the one that controls it.
    pub(crate) on_terminal: bool,
}

/// Where a child failed before it became the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Streams, limits, group.
    Prepare,
    /// The working directory.
    Cwd,
    /// The program itself.
    Exec,
}

/// A child that has its pid and waits to be let go.
pub(crate) struct Waiting {
    /// The child.
    pub(crate) pid: Pid,
    go: OwnedFd,
    news: OwnedFd,
}

impl Waiting {
    /// Lets the child become its program. The inner error is the child's: the step and the reason.
    pub(crate) fn release(self) -> io::Result<Result<(), (Step, io::Error)>> {
        // A child that failed before it waited has closed this pipe, and its report says more than that.
        let let_go = rustix::io::write(&self.go, &[1]);
        let mut report = [0; 8];
        let bytes = loop {
            match rustix::io::read(&self.news, &mut report) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        if bytes < report.len() {
            // End of file: the exec closed the pipe, and the program runs.
            let_go?;
            return Ok(Ok(()));
        }
        let step = match report[0] {
            0 => Step::Prepare,
            1 => Step::Cwd,
            _ => Step::Exec,
        };
        let errno = i32::from_ne_bytes([report[4], report[5], report[6], report[7]]);
        Ok(Err((step, io::Error::from_raw_os_error(errno))))
    }
}

/// Forks a child that takes these three streams, its own process group (on a terminal its own session), default signals, umask 022 and a
/// SIGKILL at this thread's end, and then waits for [`Waiting::release`]. Until then it has run nothing.
///
/// The streams must have numbers above 2. This process must have one thread.
pub(crate) fn fork(program: &Program, streams: [BorrowedFd<'_>; 3]) -> io::Result<Waiting> {
    let cloexec = rustix::pipe::PipeFlags::CLOEXEC;
    let (wait, go) = rustix::pipe::pipe_with(cloexec)?;
    let (news, tell) = rustix::pipe::pipe_with(cloexec)?;
    let words = Words::of(program);
    let parent = rustix::process::getpid();
    // SAFETY: the process has one thread, so that the child is a whole copy of it. The child calls only
    // what is safe after a fork, allocates nothing and leaves by exec or _exit.
    let pid = checked(unsafe { libc::fork() })?;
    if pid == 0 {
        let (step, errno) = become_program(&words, program, streams, parent, &wait, &go);
        let mut report = [0; 8];
        report[0] = step as u8;
        report[4..].copy_from_slice(&errno.to_ne_bytes());
        let _ = rustix::io::write(&tell, &report);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(127) };
    }
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork gave no pid"))?;
    Ok(Waiting { pid, go, news })
}

/// The pointer lists that exec wants.
struct Words {
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    /// For a script without an interpreter line: `sh`, a place for its path, its words.
    script: Vec<*const libc::c_char>,
}

const SHELL: &CStr = c"/bin/sh";

impl Words {
    fn of(program: &Program) -> Self {
        let list = |words: &[CString]| {
            let pointers = words.iter().map(|word| word.as_ptr());
            pointers.chain([ptr::null()]).collect::<Vec<_>>()
        };
        let argv = list(&program.argv);
        let mut script = vec![SHELL.as_ptr(), ptr::null()];
        script.extend(argv.iter().skip(1));
        Self {
            argv,
            env: list(&program.env),
            script,
        }
    }
}

/// The child's whole life before exec. Comes back only with the step that failed and its error number.
fn become_program(
    words: &Words,
    program: &Program,
    streams: [BorrowedFd<'_>; 3],
    parent: Pid,
    wait: &OwnedFd,
    go: &OwnedFd,
) -> (Step, i32) {
    // SAFETY: all calls below are async-signal-safe and take numbers or pointers to memory that `words`
    // and `program` keep alive.
    unsafe {
        if program.on_terminal {
            // A new session has a process group of its own, and can have a terminal.
            if libc::setsid() < 0 {
                return (Step::Prepare, errno());
            }
        } else {
            libc::setpgid(0, 0);
        }
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return (Step::Prepare, errno());
        }
        // The parent may have died before the line above.
        if libc::getppid() != parent.as_raw_nonzero().get() {
            libc::_exit(127);
        }
        // By the bare call, since the library's refuses its own two signals, which may come in ignored. All
        // zero is the default action, and the size is that of the kernel's set.
        let default = [0_u64; 4];
        for signal in 1..=libc::SIGRTMAX() {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null_mut::<u64>(),
                size_of::<u64>(),
            );
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::umask(0o022);
        if let Some((soft, hard)) = program.nofile {
            let limit = libc::rlimit {
                rlim_cur: soft,
                rlim_max: hard,
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        for (number, stream) in (0..).zip(streams) {
            if libc::dup2(stream.as_raw_fd(), number) < 0 {
                return (Step::Prepare, errno());
            }
        }
        if program.on_terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
            return (Step::Prepare, errno());
        }
        if libc::chdir(program.cwd.as_ptr()) != 0 {
            return (Step::Cwd, errno());
        }
        // Without this copy the pipe ends when the parent does.
        libc::close(go.as_raw_fd());
        let mut byte = 0_u8;
        if libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }
        (Step::Exec, exec_first(words, program))
    }
}

/// Tries the candidates as execvp would and gives the error number that says most.
///
/// # Safety
/// Only in a forked child; `words` must be of `program`.
unsafe fn exec_first(words: &Words, program: &Program) -> i32 {
    let mut denied = None;
    let mut last = libc::ENOENT;
    for path in &program.candidates {
        // SAFETY: the lists end with a null pointer and outlive the call.
        unsafe { libc::execve(path.as_ptr(), words.argv.as_ptr(), words.env.as_ptr()) };
        last = errno();
        match last {
            libc::ENOEXEC => {
                let script = words.script.as_ptr().cast_mut();
                // SAFETY: the list has at least two entries, and this child alone uses it.
                unsafe {
                    *script.add(1) = path.as_ptr();
                    libc::execve(SHELL.as_ptr(), script, words.env.as_ptr());
                }
                return libc::ENOEXEC;
            }
            libc::EACCES => denied = Some(last),
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return last,
        }
    }
    denied.unwrap_or(last)
}

/// Puts `/dev/null` in the place of the three standard streams, so that no pipe of the starter stays open.
pub(crate) fn forget_standard_streams(null: &impl AsFd) {
    for number in 0..3 {
        // SAFETY: the standard streams are owned by nobody; both numbers are open.
        unsafe { libc::dup2(null.as_fd().as_raw_fd(), number) };
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn errno() -> i32 {
    // SAFETY: the pointer is this thread's own error number.
    unsafe { *libc::__errno_location() }
}
