use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::folder::{Format, node_runs_in, parse_format};
use super::search::{Place, goes_on};
use super::*;

/// A user's world: a home directory with a project in it, and a state folder.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let world = World {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(world.project()).unwrap();
        world
    }

    fn user(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("user")
    }

    fn project(&self) -> PathBuf {
        self.user().join("project")
    }

    fn state(&self) -> PathBuf {
        self.user().join("state/weft")
    }

    fn choice(&self, named: Option<&Path>) -> Choice {
        Choice {
            named: named.map(Path::to_owned),
            state_dir: self.state(),
            user_home: Some(self.user()),
        }
    }

    fn found(&self, cwd: &Path) -> Result<Home, HomeError> {
        open(&self.choice(None), cwd, Missing::Make)
    }

    fn named(&self, path: &Path) -> Result<Home, HomeError> {
        open(&self.choice(Some(path)), &self.project(), Missing::Make)
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[track_caller]
fn check_untrusted(result: Result<Home, HomeError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, HomeError::Untrusted { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("this .weft was not made here by you; look at it, then `weft home trust "),
        "{error}"
    );
}

#[test]
fn a_first_use_makes_a_private_home_that_is_found_again_from_below() {
    let world = World::new();
    let home = world.found(&world.project()).unwrap();
    assert_eq!(home.root, world.project().join(".weft"));
    assert_eq!(mode(&home.root), 0o700);
    assert_eq!(
        fs::read_to_string(home.root.join(".gitignore")).unwrap(),
        "*\n"
    );
    let format: serde_json::Value =
        serde_json::from_slice(&fs::read(home.format()).unwrap()).unwrap();
    assert_eq!(format, serde_json::json!({"format": 1, "home": home.id}));
    assert_eq!(home.state, world.state().join("homes").join(&home.id));
    assert_eq!(
        (mode(&home.state), mode(&world.state().join("homes"))),
        (0o700, 0o700)
    );
    let below = world.project().join("a/b");
    fs::create_dir_all(&below).unwrap();
    assert_eq!(world.found(&below).unwrap(), home);
    // Nothing of the making is left beside it.
    assert_eq!(fs::read_dir(world.project()).unwrap().count(), 2);
}

#[test]
fn two_that_come_first_at_once_get_one_home() {
    let world = World::new();
    let homes: Vec<Home> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| world.found(&world.project()).unwrap()))
            .collect();
        makers
            .into_iter()
            .map(|maker| maker.join().unwrap())
            .collect()
    });
    assert!(homes.iter().all(|home| *home == homes[0]), "{homes:?}");
    assert_eq!(fs::read_dir(world.project()).unwrap().count(), 1);
    assert_eq!(
        fs::read_dir(world.state().join("homes")).unwrap().count(),
        1
    );
}

#[test]
fn the_search_ends_at_the_user_s_home_directory() {
    let world = World::new();
    // Above the user's home lies a trap.
    fs::create_dir(world.dir.path().join(".weft")).unwrap();
    assert_eq!(
        world.found(&world.project()).unwrap().root,
        world.project().join(".weft")
    );
    assert_eq!(
        world.found(&world.user()).unwrap().root,
        world.user().join(".weft")
    );
}

#[test]
fn the_search_leaves_no_file_system_and_enters_nobody_else_s_folder() {
    let here = Place {
        device: 1,
        inode: 10,
        owner: 7,
        mount: false,
    };
    let above = Place {
        device: 1,
        inode: 9,
        owner: 7,
        mount: false,
    };
    assert!(goes_on(&here, &above, None, 7));
    assert!(goes_on(&here, &above, Some(&above), 7));
    assert!(!goes_on(&here, &above, Some(&here), 7));
    assert!(!goes_on(
        &Place {
            mount: true,
            ..here
        },
        &above,
        None,
        7
    ));
    assert!(!goes_on(&here, &Place { device: 2, ..above }, None, 7));
    assert!(!goes_on(&here, &Place { owner: 0, ..above }, None, 7));
}

#[test]
fn a_home_from_a_clone_or_an_archive_runs_nothing() {
    let world = World::new();
    let made = world.found(&world.project()).unwrap();
    // Unpacked: a home of an unknown id.
    let unpacked = world.user().join("clone");
    fs::create_dir(&unpacked).unwrap();
    copy(&made.root, &unpacked.join(".weft"));
    fs::write(
        unpacked.join(".weft/format.json"),
        r#"{"format":1,"home":"h-0123"}"#,
    )
    .unwrap();
    check_untrusted(world.found(&unpacked));
    // Copied: the id is known, the folder is another.
    fs::copy(made.format(), unpacked.join(".weft/format.json")).unwrap();
    check_untrusted(world.found(&unpacked));
    // Nothing in it says that it is a home.
    fs::remove_file(unpacked.join(".weft/format.json")).unwrap();
    check_untrusted(world.found(&unpacked));
}

#[test]
fn a_home_reached_by_a_link_or_open_to_others_is_refused() {
    let world = World::new();
    let made = world.found(&world.project()).unwrap();
    let linked = world.user().join("linked");
    fs::create_dir(&linked).unwrap();
    symlink(&made.root, linked.join(".weft")).unwrap();
    check_untrusted(world.found(&linked));
    assert!(matches!(
        trust(&world.state(), &linked),
        Err(HomeError::Link { .. })
    ));
    fs::set_permissions(&made.root, fs::Permissions::from_mode(0o750)).unwrap();
    check_untrusted(world.found(&world.project()));
}

#[test]
fn a_home_of_another_user_is_refused_and_cannot_be_trusted() {
    let world = World::new();
    let made = world.found(&world.project()).unwrap();
    // Only root can give a folder away; elsewhere there is nothing to test.
    if std::os::unix::fs::chown(&made.root, Some(4711), None).is_err() {
        return;
    }
    check_untrusted(world.found(&world.project()));
    assert!(matches!(
        world.named(&made.root),
        Err(HomeError::Foreign { owner: 4711, .. })
    ));
    assert!(matches!(
        trust(&world.state(), &made.root),
        Err(HomeError::Foreign { owner: 4711, .. })
    ));
}

#[test]
fn trust_gives_a_copy_an_id_and_a_folder_of_its_own() {
    let world = World::new();
    let made = world.found(&world.project()).unwrap();
    let other = world.user().join("other");
    fs::create_dir(&other).unwrap();
    copy(&made.root, &other.join(".weft"));
    fs::set_permissions(other.join(".weft"), fs::Permissions::from_mode(0o755)).unwrap();
    let Trusted::Now(home) = trust(&world.state(), &other).unwrap() else {
        panic!("it was not known")
    };
    assert_ne!(home.id, made.id);
    assert_ne!(home.state, made.state);
    assert_eq!(mode(&home.root), 0o700);
    assert_eq!(world.found(&other).unwrap(), home);
    assert_eq!(world.found(&world.project()).unwrap(), made);
    assert_eq!(
        trust(&world.state(), &other.join(".weft")).unwrap(),
        Trusted::Already(home)
    );
}

#[test]
fn a_home_in_which_a_node_runs_gets_no_new_id() {
    let world = World::new();
    let made = world.found(&world.project()).unwrap();
    fs::remove_dir_all(&made.state).unwrap();
    let lock = crate::autostart::lock(&made.node_lock()).unwrap();
    assert!(node_runs_in(&made.root).unwrap());
    assert!(matches!(
        trust(&world.state(), &made.root),
        Err(HomeError::Busy { .. })
    ));
    drop(lock);
    assert!(matches!(
        trust(&world.state(), &made.root),
        Ok(Trusted::Now(_))
    ));
}

#[test]
fn a_newer_or_broken_format_is_refused_and_left_alone() {
    let world = World::new();
    let made = world.found(&world.project()).unwrap();
    for (text, newer) in [
        (r#"{"format":2,"shape":[]}"#, true),
        (r#"{"format":1}"#, false),
        ("{", false),
        ("", false),
    ] {
        fs::write(made.format(), text).unwrap();
        for result in [
            world.found(&world.project()),
            world.named(&made.root),
            trust(&world.state(), &made.root).map(|_| made.clone()),
        ] {
            let error = result.unwrap_err();
            assert_eq!(
                matches!(error, HomeError::Newer { format: 2, .. }),
                newer,
                "{error:?}"
            );
            assert_eq!(
                matches!(error, HomeError::Broken { .. }),
                !newer,
                "{error:?}"
            );
        }
        assert_eq!(fs::read_to_string(made.format()).unwrap(), text);
    }
}

#[test]
fn an_id_that_is_no_plain_name_leads_nowhere() {
    for id in ["../../x", "", ".", "a/b", "A", "ü", &"a".repeat(65)] {
        let text = serde_json::json!({"format": 1, "home": id}).to_string();
        assert!(parse_format(text.as_bytes()).is_err(), "{id}");
    }
    assert_eq!(
        parse_format(br#"{"format":1,"home":"h-09af"}"#),
        Ok(Format::Ours("h-09af".to_owned()))
    );
}

#[test]
fn a_named_home_is_made_with_its_parents_and_without_gitignore() {
    let world = World::new();
    let path = world.user().join("deep/er/home");
    let home = world.named(&path).unwrap();
    assert_eq!(home.root, path);
    assert_eq!(mode(&path), 0o700);
    assert!(!path.join(".gitignore").exists());
    assert_eq!(world.named(Path::new("../deep/er/home")).unwrap(), home);
}

#[test]
fn a_post_makes_no_home() {
    let world = World::new();
    for named in [None, Some(world.user().join("nowhere"))] {
        let result = open(
            &world.choice(named.as_deref()),
            &world.project(),
            Missing::Refuse,
        );
        assert!(
            matches!(result, Err(HomeError::Absent { .. })),
            "{result:?}"
        );
    }
    assert!(!world.user().join("nowhere").exists() && !world.project().join(".weft").exists());
}

#[test]
fn a_folder_or_file_that_is_no_home_is_refused_by_name() {
    let world = World::new();
    let file = world.user().join("file");
    fs::write(&file, "").unwrap();
    for path in [world.project(), file] {
        assert!(
            matches!(world.named(&path), Err(HomeError::NotAHome { .. })),
            "{path:?}"
        );
    }
    assert_eq!(fs::read_dir(world.project()).unwrap().count(), 0);
}

#[test]
fn a_named_home_that_moved_is_known_again_and_a_copy_is_not() {
    let world = World::new();
    let made = world.named(&world.user().join("one")).unwrap();
    let two = world.user().join("two");
    copy(&made.root, &two);
    let error = world.named(&two).unwrap_err();
    assert!(
        matches!(&error, HomeError::Copy { original, .. } if *original == made.root),
        "{error:?}"
    );
    // A restored backup: the original is gone.
    fs::remove_dir_all(&made.root).unwrap();
    assert_eq!(world.named(&two).unwrap().id, made.id);
}

#[test]
fn a_registry_that_others_can_write_is_not_believed() {
    let world = World::new();
    world.found(&world.project()).unwrap();
    let homes = world.state().join("homes");
    fs::set_permissions(&homes, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        world.found(&world.project()),
        Err(HomeError::Open { .. })
    ));
    assert_eq!(
        fs::metadata(&homes).unwrap().uid(),
        rustix::process::geteuid().as_raw()
    );
}

#[test]
fn a_home_with_a_long_path_is_made_and_found() {
    let world = World::new();
    let deep = world.project().join("d".repeat(100)).join("e".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let home = world.found(&deep).unwrap();
    assert_eq!(world.found(&deep).unwrap(), home);
}

#[test]
fn a_home_that_cannot_be_made_is_named_and_not_its_draft() {
    let world = World::new();
    // Nobody can make a folder there, root neither.
    let error = world.named(Path::new("/proc/weft")).unwrap_err();
    assert!(matches!(error, HomeError::Unmade { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("the home /proc/weft cannot be made: "),
        "{error}"
    );
}

#[test]
fn trust_in_a_folder_that_is_no_home_says_so() {
    let world = World::new();
    let error = trust(&world.state(), &world.project()).unwrap_err();
    assert!(
        matches!(error, HomeError::NothingToTrust { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("is no home of weft"), "{error}");
}
