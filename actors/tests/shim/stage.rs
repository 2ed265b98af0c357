//! The stage: a home with task folders, real shims in them, and ways to wait for what they do.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_actors::task::folder::{Folder, path_of};
use weft_actors::task::output::{self, Chunk};
use weft_actors::task::wire::{
    Answer, Io, Launch, Lease, Line, PROTOCOL, Receipt, Running, StreamName, Streams,
};

/// Longer than anything here may take; a test that runs into it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for a condition that nothing tells of.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a process by its number.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// A home with nothing in it but task folders.
pub(crate) struct Home {
    _root: Option<tempfile::TempDir>,
    pub(crate) path: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("home");
        std::fs::create_dir_all(path.join("tasks")).unwrap();
        Self {
            _root: Some(root),
            path,
        }
    }

    pub(crate) fn at(path: PathBuf) -> Self {
        std::fs::create_dir_all(path.join("tasks")).unwrap();
        Self { _root: None, path }
    }

    /// A launch of these words, durable and merged, with a plain environment.
    pub(crate) fn launch(&self, argv: &[&str]) -> Launch {
        let id = format!("t-{}", self.path.join("tasks").read_dir().unwrap().count());
        Launch {
            version: PROTOCOL,
            home: self.path.clone(),
            weft: "/nonexistent/weft".into(),
            node_env: vec![],
            argv: argv.iter().map(OsString::from).collect(),
            cwd: "/".into(),
            env: vec![
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                ("WEFT_TASK_ID".into(), id.clone().into()),
            ],
            id,
            lease: Lease::Durable,
            io: Io::Batch,
            streams: Streams::Merged,
            deadline_ms: None,
            deadline_reason: None,
            grace_ms: 500,
            keep_bytes: 64 << 20,
            token: None,
            topic: None,
            stdin: None,
            nofile: None,
            incarnation: "i-1".into(),
            free_floor: 0,
            size: None,
        }
    }

    /// A launch of a shell line.
    pub(crate) fn line(&self, line: &str) -> Launch {
        self.launch(&["sh", "-c", line])
    }

    /// Starts it, and does not care how.
    pub(crate) fn try_start(&self, launch: &Launch) -> (Answer, Task) {
        self.start_by(Command::new(shim_path()), launch)
    }

    /// Starts it with a wall clock that is off by the seconds which the answered file holds.
    pub(crate) fn start_by_moved_clock(&self, launch: &Launch) -> (Task, PathBuf) {
        let place = |name: &str| self.path.join(name);
        let (source, library, offset) = (place("c.c"), place("c.so"), place("offset"));
        std::fs::write(&source, include_str!("../../../tests/src/moved_clock.c")).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"])
            .args([&library, &source]);
        assert!(cc.status().unwrap().success());
        let mut shim = Command::new(shim_path());
        shim.env("LD_PRELOAD", library).env("MOVED_CLOCK", &offset);
        (Self::started(self.start_by(shim, launch)), offset)
    }

    /// Starts it as a user without rights, by `setpriv`.
    pub(crate) fn start_as_nobody(&self, launch: &Launch) -> Task {
        let tools = tempfile::tempdir_in("/tmp").unwrap();
        let shim = tools.path().join("shim");
        std::fs::copy(shim_path(), &shim).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(tools.path(), mode).unwrap();
        let path = path_of(&self.path, &launch.id);
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        setpriv.arg(shim);
        Self::started(self.start_by(setpriv, launch))
    }

    fn start_by(&self, mut shim: Command, launch: &Launch) -> (Answer, Task) {
        let path = path_of(&self.path, &launch.id);
        let folder = Folder::create(&path)
            .or_else(|_| Folder::open(&path))
            .unwrap();
        let mut shim = shim
            .current_dir(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let document = serde_json::to_vec(launch).unwrap();
        // A shim that answers early closes its end.
        let _ = shim.stdin.take().unwrap().write_all(&document);
        let mut line = String::new();
        let mut out = BufReader::new(shim.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let task = Task {
            shim,
            folder,
            path,
            running: None,
        };
        (serde_json::from_str(&line).unwrap(), task)
    }

    /// Starts it.
    pub(crate) fn start(&self, launch: &Launch) -> Task {
        Self::started(self.try_start(launch))
    }

    fn started((answer, mut task): (Answer, Task)) -> Task {
        let Answer::Started(running) = answer else {
            panic!("not started: {answer:?}")
        };
        task.running = Some(running);
        task
    }

    /// Runs a shell line to its end.
    pub(crate) fn run(&self, line: &str) -> (Receipt, Task) {
        let mut task = self.start(&self.line(line));
        (task.end(), task)
    }
}

/// The example `shim`. A plain `cargo test` has built it; where one test binary was asked for, this does.
fn shim_path() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let exe = std::env::current_exe().unwrap();
        let profile = exe.ancestors().nth(2).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--example", "shim", "--manifest-path"]);
        cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the shim was not built");
        profile.join("examples/shim")
    };
    BUILT.get_or_init(build).clone()
}

/// A task and its shim.
pub(crate) struct Task {
    pub(crate) shim: Child,
    pub(crate) folder: Folder,
    pub(crate) path: PathBuf,
    running: Option<Running>,
}

impl Task {
    pub(crate) fn pid(&self) -> u32 {
        self.running.unwrap().pid
    }

    /// Waits for the shim's end and gives the receipt.
    pub(crate) fn end(&mut self) -> Receipt {
        eventually("the shim's end", || self.shim.try_wait().unwrap());
        self.folder.receipt().unwrap().expect("a receipt")
    }

    pub(crate) fn connect(&self) -> Peer {
        let stream = self.folder.connect().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut peer = Peer {
            stream,
            lines,
            n: 0,
        };
        assert!(matches!(peer.line(), Line::Hello(_)));
        peer
    }

    /// Stops it and waits.
    pub(crate) fn stop(&mut self) -> Receipt {
        let mut peer = self.connect();
        peer.send(r#""do":"stop""#);
        peer.ended()
    }

    pub(crate) fn read(&self, stream: StreamName, from: u64) -> Chunk {
        let known = self
            .folder
            .receipt()
            .unwrap()
            .map_or(0, |receipt| receipt.streams[&stream]);
        output::read(&self.folder, stream, from, 1 << 26, known).unwrap()
    }

    /// All of the merged output, which must be whole.
    pub(crate) fn output(&self) -> Vec<u8> {
        let chunk = self.read(StreamName::Output, 0);
        assert_eq!(chunk.omitted, 0);
        chunk.bytes
    }

    pub(crate) fn wait_for_output(&self, wanted: &str) {
        eventually(wanted, || {
            String::from_utf8_lossy(&self.read(StreamName::Output, 0).bytes)
                .contains(wanted)
                .then_some(())
        });
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // A test that failed leaves no shim, and a shim's end is its command's.
        let _ = self.shim.kill();
        let _ = self.shim.wait();
    }
}

/// One connection to a shim.
pub(crate) struct Peer {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    n: u64,
}

impl Peer {
    pub(crate) fn line(&mut self) -> Line {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn send(&mut self, request: &str) -> u64 {
        self.n += 1;
        writeln!(self.stream, "{{\"n\":{},{request}}}", self.n).unwrap();
        self.n
    }

    /// Asks, and waits for this answer.
    pub(crate) fn ask(&mut self, request: &str) -> Result<Value, String> {
        let asked = self.send(request);
        loop {
            match self.line() {
                Line::Ok { n, ok } if n == asked => return Ok(ok),
                Line::Error { n, error } if n == asked => return Err(error),
                _ => {}
            }
        }
    }

    /// Waits for the end.
    pub(crate) fn ended(&mut self) -> Receipt {
        loop {
            if let Line::Ended { ended } = self.line() {
                return *ended;
            }
        }
    }
}

/// Living processes whose command line has these words.
pub(crate) fn alive(words: &str) -> Vec<u32> {
    let processes = Path::new("/proc").read_dir().unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line: Vec<u8> = line
                .iter()
                .map(|byte| if *byte == 0 { b' ' } else { *byte })
                .collect();
            String::from_utf8_lossy(&line).trim_end() == words
        })
        .collect()
}

/// A number of seconds to sleep that no other test uses.
pub(crate) fn seconds() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}.{}", 40 + n, std::process::id())
}
