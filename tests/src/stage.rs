//! A home, its environment, and the `weft` binary.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::{Answer, Client};
use crate::processes;

/// How long a condition may take to come true. Far beyond what it takes, so that only a real failure reaches it.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until `look` finds something.
///
/// # Panics
/// When the condition does not come true within a minute; `what` says which.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The `weft` binary under test: `$WEFT_BIN`, else the one beside the test's own folder.
pub fn weft_bin() -> PathBuf {
    if let Some(path) = std::env::var_os("WEFT_BIN") {
        return path.into();
    }
    let exe = std::env::current_exe().expect("a test knows its own path");
    let profile = exe
        .ancestors()
        .find(|folder| folder.join("weft").is_file())
        .expect("build `weft` first: cargo build, or ./tests/run");
    profile.join("weft")
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// Exit code; 128 + n where a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Standard output as one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// Asserts the exit code.
    #[track_caller]
    #[must_use]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// One test's home. Dropping it ends every process that belongs to it.
pub struct Stage {
    dir: tempfile::TempDir,
    home: PathBuf,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// A fresh home that no node has seen yet.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("weft-test-")
            .tempdir()
            .expect("a temporary folder");
        let home = dir.path().join("home");
        Stage { dir, home }
    }

    /// A stage whose home lies at this path below the test's folder.
    pub fn with_home(below: impl AsRef<Path>) -> Self {
        let mut stage = Self::new();
        stage.home = stage.dir.path().join(below);
        std::fs::create_dir_all(stage.home.parent().expect("a home has a parent"))
            .expect("the folders above a home");
        stage
    }

    /// The test's own folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The private state folder of all homes of this test.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// `weft` in this home, with an environment that knows nothing of the machine's user.
    pub fn weft<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Command {
        let mut command = Command::new(weft_bin());
        self.environment(&mut command);
        command.env("WEFT_HOME", &self.home).args(args);
        command
    }

    /// Gives a command this test's environment, without a home.
    pub fn environment(&self, command: &mut Command) {
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.dir.path())
            .env("WEFT_STATE_DIR", self.state())
            .env("WEFT_TEST_STAGE", self.dir.path())
            .current_dir(self.dir.path());
    }

    /// Runs `weft` to its end.
    #[track_caller]
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Output {
        finish(&mut self.weft(args))
    }

    /// Runs `weft` to its end with this on its standard input.
    #[track_caller]
    pub fn run_with_input<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
        &self,
        args: I,
        input: &str,
    ) -> Output {
        finish_with_input(&mut self.weft(args), input)
    }

    /// An access token with these scopes.
    #[track_caller]
    pub fn token(&self, scopes: &[&str]) -> String {
        let made = self.call("tokens.create", serde_json::json!({"scopes": scopes}));
        made["token"].as_str().expect("a token").to_owned()
    }

    /// All events that are kept of these topics or patterns.
    #[track_caller]
    pub fn events(&self, topics: &[&str]) -> Vec<Value> {
        let page = self.call(
            "mesh.read",
            serde_json::json!({"topics": topics, "limit": 1000}),
        );
        page["events"]
            .as_array()
            .cloned()
            .expect("a list of events")
    }

    /// Runs `weft … --json` and reads its answer; the command must succeed.
    #[track_caller]
    pub fn json<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Value {
        self.run(args).expect_code(0).json()
    }

    /// A client of the home's socket. Starts a node if none answers.
    #[track_caller]
    pub fn client(&self) -> Client {
        if !self.answers() {
            let _ = self.run(["capabilities", "--json"]).expect_code(0);
        }
        Client::unix(&self.home)
    }

    /// Calls an action, which must succeed.
    #[track_caller]
    pub fn call(&self, reference: &str, input: Value) -> Value {
        self.client().call(reference, input).ok(reference)
    }

    /// Calls an action, whatever the answer.
    #[track_caller]
    pub fn try_call(&self, reference: &str, input: Value) -> Answer {
        self.client().call(reference, input)
    }

    /// Whether a node accepts connections in this home.
    pub fn answers(&self) -> bool {
        Client::unix(&self.home).try_get("/healthz").is_ok()
    }

    /// Starts a node in the foreground of this test and waits until it answers.
    #[track_caller]
    pub fn node(&self, extra: &[&str]) -> Node {
        self.node_with(extra, &[])
    }

    /// As [`Stage::node`], with variables.
    #[track_caller]
    pub fn node_with(&self, extra: &[&str], variables: &[(&str, &str)]) -> Node {
        let mut command = self.weft(["node"]);
        if !extra.contains(&"--idle") {
            command.args(["--idle", "never"]);
        }
        command
            .args(extra)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("weft node");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut kept = String::new();
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|count| count > 0) {
                kept.push_str(&line);
                line.clear();
                if kept.len() > 1 << 20 {
                    kept.clear();
                }
            }
            let _ = send.send(kept);
        });
        let pid = child.id();
        let mut node = Node {
            child,
            log: receive,
            url: None,
        };
        eventually("the node answers", || {
            if let Ok(Some(status)) = node.child.try_wait() {
                panic!(
                    "the node ended at once: {status}: {}",
                    node.log.recv().unwrap_or_default()
                );
            }
            let status = Client::unix(&self.home)
                .try_call("node.status", serde_json::json!({}))
                .ok()?;
            (status.body["pid"] == pid).then_some(())?;
            node.url = status.body["http"][0].as_str().map(ToOwned::to_owned);
            Some(())
        });
        node
    }

    /// The processes that carry this stage in their environment.
    pub fn processes(&self) -> Vec<u32> {
        processes::with_variable("WEFT_TEST_STAGE", self.dir.path())
            .into_iter()
            .chain(processes::with_variable("WEFT_HOME", &self.home))
            .chain(processes::with_variable("WEFT_STATE_DIR", &self.state()))
            .collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Nodes and shims first: they would see the others die and write about it.
        for _ in 0..100 {
            let left: Vec<u32> = self
                .processes()
                .into_iter()
                .chain(processes::with_cwd_below(self.dir.path()))
                .collect();
            if left.is_empty() {
                return;
            }
            for pid in left {
                processes::kill(pid);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs a command to its end.
///
/// # Panics
/// When it cannot be started.
#[track_caller]
pub fn finish(command: &mut Command) -> Output {
    ended(
        command
            .stdin(Stdio::null())
            .output()
            .expect("the command starts"),
    )
}

/// Runs a command to its end with this on its standard input.
///
/// # Panics
/// When it cannot be started.
#[track_caller]
pub fn finish_with_input(command: &mut Command, input: &str) -> Output {
    use std::io::{Seek, Write};
    // A file, so that a command which reads nothing holds nobody up.
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(input.as_bytes())
        .and_then(|()| file.rewind())
        .expect("a file of input");
    ended(command.stdin(file).output().expect("the command starts"))
}

fn ended(output: std::process::Output) -> Output {
    use std::os::unix::process::ExitStatusExt;
    Output {
        code: output
            .status
            .code()
            .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A running `weft node`.
pub struct Node {
    child: Child,
    log: std::sync::mpsc::Receiver<String>,
    url: Option<String>,
}

impl Node {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its first TCP address, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        self.url
            .as_deref()
            .expect("the node listens: start it with --listen 127.0.0.1:0")
    }

    /// `kill -9`, and waits until it is gone. Answers its log.
    pub fn kill(mut self) -> String {
        processes::kill(self.child.id());
        let _ = self.child.wait();
        self.log.recv().unwrap_or_default()
    }

    /// SIGTERM, and waits for the end. Answers its exit code and log.
    pub fn terminate(mut self) -> (i32, String) {
        processes::signal(self.child.id(), rustix::process::Signal::TERM);
        let status = self.child.wait().expect("the node ends");
        (
            status.code().unwrap_or(-1),
            self.log.recv().unwrap_or_default(),
        )
    }

    /// Waits until it ends by itself. Answers its exit code and log.
    pub fn wait(mut self) -> (i32, String) {
        let status = eventually("the node ends", || self.child.try_wait().ok().flatten());
        (
            status.code().unwrap_or(-1),
            self.log.recv().unwrap_or_default(),
        )
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads all of a child's pipe.
pub fn read_all(mut pipe: impl Read) -> String {
    let mut text = Vec::new();
    let _ = pipe.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
