//! A person at a terminal of their own, in which a command runs.

use std::io::{Read as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use portable_pty::{CommandBuilder, MasterPty, PtySize, native_pty_system};
use weft_tests::stage::weft_bin;
use weft_tests::{Stage, eventually};

/// The person. Their terminal shows what a real one would.
pub(crate) struct Person {
    child: Box<dyn portable_pty::Child + Send + Sync>,
    master: Option<Box<dyn MasterPty + Send>>,
    keys: Box<dyn Write + Send>,
    seen: Arc<Mutex<vt100::Parser>>,
    /// The window is to close: nothing more is read.
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    /// While this is held nothing is read of what the terminal is sent.
    reading: Arc<Mutex<()>>,
}

impl Person {
    /// Runs a shell line, with `$WEFT` for the program, on a terminal of this size.
    pub(crate) fn runs(stage: &Stage, line: &str, (cols, rows): (u16, u16)) -> Self {
        let size = PtySize {
            rows,
            cols,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", line]);
        command.env_clear();
        command.cwd(stage.dir());
        for (name, value) in [
            (
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ),
            ("TERM", "xterm"),
        ] {
            command.env(name, value);
        }
        command.env("HOME", stage.dir());
        command.env("WEFT_STATE_DIR", stage.state());
        command.env("WEFT_TEST_STAGE", stage.dir());
        command.env("WEFT_HOME", stage.home());
        command.env("WEFT", weft_bin());
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut shown = pair.master.try_clone_reader().unwrap();
        let keys = pair.master.take_writer().unwrap();
        let nonzero = |number: u16| number.try_into().unwrap();
        let seen = vt100::Parser::new(nonzero(rows), nonzero(cols), 0);
        let seen = Arc::new(Mutex::new(seen));
        let reading = Arc::new(Mutex::new(()));
        let closing = Arc::new(AtomicBool::new(false));
        let (screen, gate, over) = (
            Arc::clone(&seen),
            Arc::clone(&reading),
            Arc::clone(&closing),
        );
        let reader = std::thread::spawn(move || {
            let mut block = [0; 4096];
            while !over.load(Ordering::Relaxed) {
                drop(gate.lock());
                match shown.read(&mut block) {
                    Ok(got @ 1..) => screen.lock().unwrap().process(&block[..got]),
                    _ => return,
                }
            }
        });
        Person {
            child,
            master: Some(pair.master),
            keys,
            seen,
            closing,
            reader: Some(reader),
            reading,
        }
    }

    /// Attaches with these words, and tells the code and the terminal's modes when that is over.
    pub(crate) fn attaches(stage: &Stage, words: &str, size: (u16, u16)) -> Self {
        let line = format!(
            "stty -a > modes.before; \"$WEFT\" attach {words}; echo \"code=$?\"; stty -a > modes.after; read wait"
        );
        Person::runs(stage, &line, size)
    }

    pub(crate) fn types(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
        self.keys.flush().unwrap();
    }

    /// The text on their screen.
    pub(crate) fn screen(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    /// Whether their terminal is on its alternate screen.
    pub(crate) fn is_alternate(&self) -> bool {
        self.seen.lock().unwrap().screen().alternate_screen()
    }

    /// Waits until this stands on their screen.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) {
        eventually(&format!("the person sees {text:?}"), || {
            self.screen().contains(text).then_some(())
        });
    }

    /// Makes their window larger or smaller.
    pub(crate) fn resizes(&self, (cols, rows): (u16, u16)) {
        let size = PtySize {
            rows,
            cols,
            pixel_width: 0,
            pixel_height: 0,
        };
        self.master.as_ref().unwrap().resize(size).unwrap();
        let nonzero = |number: u16| number.try_into().unwrap();
        self.seen
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(nonzero(rows), nonzero(cols));
    }

    /// Their terminal takes nothing for as long as `work` lasts.
    pub(crate) fn stalled<T>(&self, work: impl FnOnce() -> T) -> T {
        let _held = self.reading.lock().unwrap();
        work()
    }

    /// Closes the window. What runs on it must answer to a line: the one who reads has to be woken, whose descriptor keeps the
    /// terminal open.
    pub(crate) fn closes(mut self) {
        self.closing.store(true, Ordering::Relaxed);
        self.types(b"\r");
        self.reader.take().map(JoinHandle::join);
        self.master = None;
        self.keys = Box::new(std::io::sink());
        let _ = self.child.wait();
    }

    /// The `weft` that runs in their shell.
    #[track_caller]
    pub(crate) fn weft(&self) -> u32 {
        let shell = self.child.process_id().unwrap();
        eventually("weft runs on the person's terminal", || {
            let path = format!("/proc/{shell}/task/{shell}/children");
            let children = std::fs::read_to_string(path).ok()?;
            let is_weft = |pid: &u32| {
                std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name.trim() == "weft")
            };
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .find(is_weft)
        })
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asserts that an attachment left the terminal's modes as they were.
#[track_caller]
pub(crate) fn assert_modes_restored(stage: &Stage) {
    let read = |name| {
        let text = std::fs::read_to_string(stage.dir().join(name)).unwrap_or_default();
        // Without the first line, which tells the window's size.
        text.split_once('\n')
            .map_or_else(String::new, |(_, modes)| modes.to_owned())
    };
    let before = read("modes.before");
    assert!(before.contains(" icanon"), "{before}");
    eventually("the modes are as they were", || {
        let is_whole = |text: &str| text.contains("echoke");
        let after = read("modes.after");
        is_whole(&after).then(|| assert_eq!(before, after))
    });
}
