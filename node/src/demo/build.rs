//! The job of the demonstration: a small program built by whatever compiler is there.

use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// A real command, and how to call it.
pub(super) struct Job {
    /// A line of the shell.
    pub(super) line: String,
    /// For people.
    pub(super) label: &'static str,
    /// What is not as one might expect.
    pub(super) remark: Option<&'static str>,
}

/// The limit that the built program counts primes up to: long enough to be seen running.
const PRIMES_UP_TO: u32 = 20_000_000;

/// Writes the sources into `folder` and says how they are built with what `path` offers.
pub(super) fn prepare(folder: &Path, path: &str) -> Result<Job, Failure> {
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(|error| Failure::io(file.display().to_string(), error))
    };
    if let Some(compiler) = ["cc", "gcc", "clang"]
        .into_iter()
        .find(|name| in_path(path, name).is_some())
    {
        write("sieve.h", include_str!("sieve.h"))?;
        write("sieve.c", include_str!("sieve.c"))?;
        write("main.c", include_str!("main.c"))?;
        let line = format!(
            "set -ex; {compiler} -O2 -Wall -c sieve.c; {compiler} -O2 -Wall -c main.c; {compiler} -o primes main.o sieve.o; ./primes {PRIMES_UP_TO}"
        );
        return Ok(Job {
            line,
            label: "Build primes, a C program",
            remark: None,
        });
    }
    if in_path(path, "rustc").is_some() {
        write("primes.rs", include_str!("primes.rs.txt"))?;
        let line = format!("set -ex; rustc -O primes.rs; ./primes {PRIMES_UP_TO}");
        return Ok(Job {
            line,
            label: "Build primes, a Rust program",
            remark: Some("no C compiler is installed; rustc builds instead"),
        });
    }
    let line = "set -ex; find /usr/bin /bin -type f | sort > programs; wc -l programs".to_owned();
    Ok(Job {
        line,
        label: "List the installed programs",
        remark: Some("no compiler is installed; the job lists the installed programs instead"),
    })
}

/// The file that a shell would run for `name`.
fn in_path(path: &str, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_job_with_and_without_a_compiler() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            prepare(dir.path(), "/nonexistent")
                .unwrap()
                .remark
                .is_some()
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink("/bin/sh", bin.join("cc")).unwrap();
        let job = prepare(dir.path(), bin.to_str().unwrap()).unwrap();
        assert!(job.line.contains("cc -O2") && job.remark.is_none());
        assert!(dir.path().join("sieve.c").exists());
    }
}
