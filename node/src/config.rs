//! What the surroundings say: the environment and the home's `config.toml`. Nothing else here reads the environment,
//! but for the options of the command line, whose variables clap reads by the rule in `cli.rs`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::duration;
use crate::exit::Failure;
use crate::limits::CONFIG_BYTES_MAX;

/// Names that a node started in the background keeps from whoever started it. All else stays behind, so that no
/// node carries one person's shell, virtual environment or secrets into the tasks of another call.
const PLAIN_NAMES: [&str; 8] = [
    "HOME",
    "USER",
    "SHELL",
    "PATH",
    "LANG",
    "TMPDIR",
    "XDG_STATE_HOME",
    "WEFT_STATE_DIR",
];

/// Used for a started node where the caller has no PATH at all.
const PLAIN_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Text as bytes: the one language that every system has.
const PLAIN_LANG: &str = "C.UTF-8";
/// Where temporary files go on every Unix.
const PLAIN_TMPDIR: &str = "/tmp";

/// The caller's home directory; the search for a home stops there.
pub(crate) fn home_dir() -> Option<PathBuf> {
    absolute("HOME")
}

/// The folder that holds the private folders of all homes: `--state-dir`, else `$XDG_STATE_HOME/weft`,
/// else `~/.local/state/weft`.
pub(crate) fn state_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return std::path::absolute(given).map_err(|error| Failure::io("--state-dir", error));
    }
    absolute("XDG_STATE_HOME")
        .or_else(|| home_dir().map(|home| home.join(".local/state")))
        .map(|state| state.join("weft"))
        .ok_or_else(|| {
            Failure::Usage(
                "neither HOME nor XDG_STATE_HOME is set; say where keys are kept with --state-dir"
                    .to_owned(),
            )
        })
}

/// Whether colour was declined.
pub(crate) fn no_color() -> bool {
    set("NO_COLOR").is_some() || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether JSON is wanted, also where the command line cannot be read. What stands after `--` is a command's own.
pub(crate) fn wants_json() -> bool {
    let by_variable = set("WEFT_JSON").is_some_and(|value| {
        let value = value.to_string_lossy().to_ascii_lowercase();
        !["0", "n", "no", "f", "false", "off"].contains(&value.as_str())
    });
    by_variable
        || std::env::args_os()
            .skip(1)
            .take_while(|word| word != "--")
            .any(|word| word == "--json")
}

/// The token of `weft mesh post`, where it is given by the environment.
pub(crate) fn mesh_token() -> Option<String> {
    set("WEFT_MESH_TOKEN").and_then(|token| token.into_string().ok())
}

/// The search path, which a resident remembers.
pub(crate) fn path() -> Option<String> {
    set("PATH").and_then(|path| path.into_string().ok())
}

/// The folder for temporary homes.
pub(crate) fn temp_dir() -> PathBuf {
    std::env::temp_dir()
}

/// Our own environment as a task gets it, and the names that cannot be handed over because they are no text.
///
/// weft's own variables stay behind: in a task they name its home, its id and its session and nothing else, and
/// options meant for this command must not act on another `weft` inside the task.
pub(crate) fn for_task() -> (BTreeMap<String, String>, Vec<String>) {
    let mut kept = BTreeMap::new();
    let mut dropped = Vec::new();
    for (name, value) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"WEFT_") {
            continue;
        }
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => drop(kept.insert(name, value)),
            (Ok(name), Err(_)) => dropped.push(name),
            (Err(name), _) => dropped.push(name.to_string_lossy().into_owned()),
        }
    }
    (kept, dropped)
}

/// The environment of a node started in the background.
pub(crate) fn for_node(state_dir: Option<&Path>) -> Vec<(OsString, OsString)> {
    let mut plain: Vec<_> = PLAIN_NAMES
        .iter()
        .filter_map(|name| set(name).map(|value| (OsString::from(name), value)))
        .collect();
    if !plain.iter().any(|(name, _)| name == "PATH") {
        plain.push(("PATH".into(), PLAIN_PATH.into()));
    }
    if let Some(dir) = state_dir {
        plain.retain(|(name, _)| name != "WEFT_STATE_DIR");
        plain.push(("WEFT_STATE_DIR".into(), dir.into()));
    }
    plain
}

/// What tasks of every door but the command line start from: the user as the system knows them, then PATH, LANG and
/// TMPDIR of the settings or fixed. Nothing of the environment that this node happened to be started in.
pub(crate) fn base_env(settings: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = rustix::process::getuid().as_raw();
    let mut base: BTreeMap<String, String> = match user_record(&users, uid) {
        Some(record) => [
            ("HOME", record.home),
            ("USER", record.name),
            ("SHELL", record.shell),
        ]
        .map(owned)
        .into(),
        // A user that only a directory service knows.
        None => ["HOME", "USER", "SHELL"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), set(name)?.into_string().ok()?)))
            .collect(),
    };
    base.extend(
        [
            ("PATH", PLAIN_PATH),
            ("LANG", PLAIN_LANG),
            ("TMPDIR", PLAIN_TMPDIR),
        ]
        .map(owned),
    );
    base.extend(
        settings
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    base.into_iter().collect()
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// What the system's list of users says of one.
#[derive(Debug, PartialEq, Eq)]
struct UserRecord<'a> {
    name: &'a str,
    home: &'a str,
    shell: &'a str,
}

fn user_record(users: &str, uid: u32) -> Option<UserRecord<'_>> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, _, home, shell] = fields.as_slice() else {
            return None;
        };
        let shell = if shell.is_empty() { "/bin/sh" } else { shell };
        (number.parse() == Ok(uid)).then_some(UserRecord { name, home, shell })
    })
}

/// Where a test wants this node to panic.
pub(crate) fn fail_points() -> String {
    set("WEFT_FAIL_POINTS")
        .and_then(|points| points.into_string().ok())
        .unwrap_or_default()
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A variable that holds an absolute path; a relative one counts as unset, as the XDG rules have it.
fn absolute(name: &str) -> Option<PathBuf> {
    set(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// Settings of a home, from its `config.toml`. Every key is optional; a key that is not here is refused by name.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// TCP addresses to listen on, `127.0.0.1:7411`; none by default.
    pub(crate) listen: Vec<String>,
    /// How long a node without work stays: a duration or `never`.
    pub(crate) idle: Option<String>,
    /// Format of the node's log on stderr: `text` or `json`.
    pub(crate) log_format: Option<String>,
    /// The address under which others reach this node; goes into the commands that grants come with.
    pub(crate) public_url: Option<String>,
    /// Names, besides loopback and the addresses, that a request's `Host` may have.
    pub(crate) hosts: Vec<String>,
    /// Free bytes below which output is dropped and publishes fail.
    pub(crate) free_floor: Option<u64>,
    /// How a shell line is run.
    pub(crate) shell: Shell,
    /// PATH, LANG and TMPDIR of tasks that do not come from the command line.
    pub(crate) environment: BTreeMap<String, String>,
}

/// How a shell line is run.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Shell {
    /// The shell, absolute; `/bin/sh` by default. It is run with `-c`.
    pub(crate) path: Option<PathBuf>,
}

/// Names that the settings may give to tasks.
const SETTABLE: [&str; 3] = ["PATH", "LANG", "TMPDIR"];

/// Reads the settings at `path`; a file that is not there holds none.
pub(crate) fn read(path: &Path) -> Result<Settings, Failure> {
    let fail = |reason: String| Failure::Config {
        path: path.to_owned(),
        reason,
    };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Settings::default());
        }
        Err(error) => return Err(fail(error.to_string())),
    };
    let mut text = String::new();
    file.take(CONFIG_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| fail(error.to_string()))?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return Err(fail(format!("larger than {CONFIG_BYTES_MAX} bytes")));
    }
    parse(&text).map_err(fail)
}

/// Reads settings from the text of the file.
fn parse(text: &str) -> Result<Settings, String> {
    let settings: Settings =
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    if let Some(idle) = &settings.idle {
        duration::parse_idle(idle).map_err(|reason| format!("idle: {reason}"))?;
    }
    if let Some(format) = &settings.log_format
        && !["text", "json"].contains(&format.as_str())
    {
        return Err("logFormat: takes text or json".to_owned());
    }
    for address in &settings.listen {
        address.parse::<std::net::SocketAddr>().map_err(|_| {
            format!("listen: `{address}` is no address and port, such as 127.0.0.1:7411")
        })?;
    }
    if let Some(name) = settings
        .environment
        .keys()
        .find(|name| !SETTABLE.contains(&name.as_str()))
    {
        return Err(format!(
            "environment.{name}: only PATH, LANG and TMPDIR can be set here"
        ));
    }
    if let Some(path) = &settings.shell.path
        && !path.is_absolute()
    {
        return Err("shell.path: takes an absolute path".to_owned());
    }
    Ok(settings)
}

/// Whether a name may stand in an environment.
pub(crate) fn is_variable_name(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !bytes.is_empty() && !bytes.contains(&b'=') && !bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_by_their_public_names() {
        let settings = parse("listen = [\"127.0.0.1:0\"]\nidle = \"never\"\nfreeFloor = 5\n[shell]\npath = \"/bin/bash\"\n[environment]\nLANG = \"C\"\n").unwrap();
        assert_eq!(settings.listen, ["127.0.0.1:0"]);
        assert_eq!(settings.shell.path.as_deref(), Some(Path::new("/bin/bash")));
        assert_eq!(settings.environment["LANG"], "C");
    }

    #[test]
    fn an_unknown_or_wrong_key_is_refused_by_name() {
        for (text, name) in [
            ("lisen = []", "lisen"),
            ("listen = [\"here\"]", "listen"),
            ("idle = \"soon\"", "idle"),
            ("logFormat = \"xml\"", "logFormat"),
            ("[environment]\nLD_PRELOAD = \"x\"", "LD_PRELOAD"),
            ("[shell]\npath = \"sh\"", "shell.path"),
            ("[shell]\nargs = []", "args"),
        ] {
            let reason = parse(text).unwrap_err();
            assert!(reason.contains(name), "{text}: {reason}");
        }
    }

    #[test]
    fn a_user_is_found_by_number_in_the_system_s_list() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbroken\nada:x:1000:1000:Ada,,,:/home/ada:\n";
        let ada = UserRecord {
            name: "ada",
            home: "/home/ada",
            shell: "/bin/sh",
        };
        assert_eq!(user_record(users, 1000), Some(ada));
        assert_eq!(user_record(users, 7), None);
    }

    #[test]
    fn a_task_s_base_is_complete_and_the_settings_decide() {
        let settings = BTreeMap::from([("LANG".to_owned(), "de_DE.UTF-8".to_owned())]);
        let base: BTreeMap<String, String> = base_env(&settings).into_iter().collect();
        assert_eq!(base["LANG"], "de_DE.UTF-8");
        assert_eq!(base["PATH"], PLAIN_PATH);
        assert_eq!(base["TMPDIR"], "/tmp");
    }

    #[test]
    fn no_file_means_no_settings() {
        assert_eq!(
            read(Path::new("/nonexistent/config.toml")).unwrap(),
            Settings::default()
        );
    }
}
