use super::*;

fn words(line: &[&str]) -> clap::ArgMatches {
    command().try_get_matches_from(line).unwrap()
}

/// What `run` would execute.
fn argv(line: &[&str]) -> Vec<String> {
    let matches = words(line);
    let (_, run) = matches.subcommand().unwrap();
    run.get_many::<std::ffi::OsString>("command")
        .unwrap()
        .map(|word| word.to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_command_line_is_well_formed() {
    command().debug_assert();
}

#[test]
fn words_of_a_command_arrive_as_given() {
    let given = [
        "printf",
        "[%s]\n",
        "a b",
        "",
        "it's",
        "say \"hi\"",
        "x\ny",
        "-n",
        "--",
        "$HOME",
        "*",
        "back\\slash",
        "é",
        "--json",
        "-c",
    ];
    let mut line = vec!["weft", "run", "--durable", "--"];
    line.extend(given);
    assert_eq!(argv(&line), given);
}

#[test]
fn a_command_needs_no_dashes_before_it_and_keeps_its_own_options() {
    assert_eq!(
        argv(&["weft", "run", "make", "-j2", "--json", "--", "x"]),
        ["make", "-j2", "--json", "--", "x"]
    );
}

#[test]
fn options_of_every_verb_may_stand_anywhere_before_the_command() {
    for line in [["weft", "--json", "ps"], ["weft", "ps", "--json"]] {
        assert!(Cli::from_arg_matches(&words(&line)).unwrap().globals.json);
    }
}

#[test]
fn a_resident_s_run_acts_as_what_the_node_knows_it_for() {
    for (given, named) in [("me", Some("me")), ("resident.reporter", None)] {
        let cli = Cli::from_arg_matches(&words(&["weft", "--session", given, "ps"])).unwrap();
        assert_eq!(App::new(cli.globals).unwrap().session().as_deref(), named);
    }
}

#[test]
fn every_option_has_a_variable_of_its_own() {
    fn check(command: &Command, seen: &mut std::collections::BTreeMap<String, String>, verb: &str) {
        for arg in command
            .get_arguments()
            .filter(|arg| arg.get_long().is_some())
        {
            let long = arg.get_long().unwrap();
            if ["help", "version"].contains(&long) {
                continue;
            }
            let name = arg
                .get_env()
                .unwrap_or_else(|| panic!("{verb} --{long} has no variable"))
                .to_str()
                .unwrap()
                .to_owned();
            let taken = ["WEFT_TASK_ID", "WEFT_MESH_TOKEN"].contains(&name.as_str())
                || name.starts_with("WEFT_EVENT_");
            assert!(!taken, "{name} means something else");
            if let Some(other) = seen.insert(name.clone(), verb.to_owned()) {
                let same = ["run", "start"];
                assert!(
                    same.contains(&verb) && same.contains(&other.as_str()),
                    "{name} belongs to {verb} and {other}"
                );
            }
        }
        for sub in command.get_subcommands() {
            check(sub, seen, sub.get_name());
        }
    }
    let mut seen = std::collections::BTreeMap::new();
    check(&command(), &mut seen, "weft");
    for name in [
        "WEFT_HOME",
        "WEFT_SESSION",
        "WEFT_STATE_DIR",
        "WEFT_JSON",
        "WEFT_RUN_TIMEOUT",
        "WEFT_WAIT_TIMEOUT",
        "WEFT_NODE_LISTEN",
        "WEFT_MESH_POST_TOKEN_FILE",
    ] {
        assert!(seen.contains_key(name), "{name}: {seen:?}");
    }
}

#[test]
fn the_words_people_type_unread_are_known() {
    for line in [
        &["weft", "ls"][..],
        &["weft", "list", "--all", "--state", "running,lost"],
        &["weft", "inspect", "t-1"],
        &["weft", "status", "t-1"],
        &["weft", "start", "--", "true"],
        &["weft", "version"],
        &["weft", "call"],
        &["weft", "stop", "-t", "5", "t-1", "t-2"],
        &["weft", "stop", "--time", "5s", "t-1"],
        &["weft", "logs", "-f", "-n", "5", "t-1", "t-2"],
        &[
            "weft",
            "logs",
            "--tail",
            "5",
            "-t",
            "--no-log-prefix",
            "t-1",
        ],
        &["weft", "run", "-C", "/", "-c", "echo ok"],
        &["weft", "node", "status"],
        &["weft", "node", "--idle", "never", "--listen", "127.0.0.1:0"],
        &[
            "weft",
            "residents",
            "create",
            "r",
            "--topic",
            "builds",
            "--",
            "cat",
            "-",
        ],
        &["weft", "token", "create", "--scope", "mesh:read,tasks:read"],
        &[
            "weft",
            "mesh",
            "post",
            "--url",
            "http://127.0.0.1:1",
            "--token-file",
            "-",
        ],
    ] {
        assert!(command().try_get_matches_from(line).is_ok(), "{line:?}");
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    for line in [
        &["weft", "run", "--background", "--durable", "--", "true"][..],
        &["weft", "run", "-c", "true", "--", "true"],
        &["weft", "run", "--split", "--merged", "--", "true"],
        &["weft", "run", "--kind", "k", "--", "true"],
        &["weft", "wait"],
        &["weft", "--session", "a b", "ps"],
        &["weft", "mesh", "post", "--data", "1", "--data-file", "-"],
    ] {
        assert!(command().try_get_matches_from(line).is_err(), "{line:?}");
    }
}

#[test]
fn help_is_there_for_every_verb_by_either_way() {
    for line in [
        &["weft", "help"][..],
        &["weft", "help", "run"],
        &["weft", "help", "mesh", "grant"],
        &["weft", "mesh", "help", "grant"],
        &["weft", "call", "--help"],
    ] {
        let shown = command().try_get_matches_from(line).unwrap_err();
        assert_eq!(
            shown.kind(),
            clap::error::ErrorKind::DisplayHelp,
            "{line:?}"
        );
    }
}

#[test]
fn a_parser_s_message_is_told_without_the_usage_below_it() {
    let refused = command()
        .try_get_matches_from(["weft", "mesh", "read", "--limt", "3"])
        .unwrap_err();
    let told = in_short(&refused.render().to_string());
    assert!(
        told.starts_with("unexpected argument '--limt' found"),
        "{told}"
    );
    assert!(!told.contains("Usage") && !told.contains('\n'), "{told}");
}
