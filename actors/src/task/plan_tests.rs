use super::*;

fn around<'a>() -> Surroundings<'a> {
    Surroundings {
        id: "t-1".into(),
        incarnation: "i".into(),
        grant_id: "g-1".into(),
        session: "cli".into(),
        by: None,
        home: Path::new("/p/.weft"),
        folder: Path::new("/p/.weft/tasks/t-1"),
        project: Path::new("/p"),
        base_env: &[],
        shell: "/bin/sh",
        now: 1,
        stdin: None,
        own_env: vec![],
    }
}

fn check(input: &str) -> Result<Plan> {
    plan(
        &crate::action::parse(serde_json::from_str(input).unwrap())?,
        around(),
    )
}

#[test]
fn every_refusal_names_its_field() {
    for (input, field) in [
        (r"{}", "argv"),
        (r#"{"argv":[]}"#, "argv"),
        (r#"{"argv":[""]}"#, "argv"),
        (r#"{"argv":["a\u0000b"]}"#, "argv"),
        (r#"{"argv":["a"],"line":"b"}"#, "line"),
        (r#"{"argv":["a"],"surprise":1}"#, "surprise"),
        (r#"{"argv":["a"],"cwd":"relative"}"#, "cwd"),
        (r#"{"argv":["a"],"timeoutMs":0}"#, "timeoutMs"),
        (r#"{"argv":["a"],"keepBytes":1}"#, "keepBytes"),
        (r#"{"argv":["a"],"maxOutput":1048577}"#, "maxOutput"),
        (r#"{"argv":["a"],"label":""}"#, "label"),
        (r#"{"argv":["a"],"hangMs":99999999999999}"#, "hangMs"),
        (r#"{"argv":["a"],"session":"a b"}"#, "session"),
        (r#"{"argv":["a"],"env":{"A=B":"1"}}"#, "env.A=B"),
        (r#"{"argv":["a"],"notify":{"topic":"builds"}}"#, "notify"),
        (
            r#"{"argv":["a"],"lease":"session","notify":{"topic":"builds"}}"#,
            "notify",
        ),
    ] {
        match check(input) {
            Err(Error::Invalid { field: named, .. }) => assert_eq!(named, field, "{input}"),
            other => panic!("{input}: {other:?}"),
        }
    }
}

#[test]
fn a_reserved_topic_is_refused_at_launch() {
    let error =
        check(r#"{"argv":["a"],"lease":"durable","notify":{"topic":"weft.timing"}}"#).unwrap_err();
    assert_eq!(error.slug(), "topic-reserved");
}

#[test]
fn weft_adds_its_three_variables_and_nothing_else() {
    let plan = check(r#"{"argv":["a"],"env":{"A":"1"}}"#).unwrap();
    let names: Vec<_> = plan
        .env
        .iter()
        .map(|(name, _)| name.to_str().unwrap())
        .collect();
    assert_eq!(names, ["A", "WEFT_HOME", "WEFT_SESSION", "WEFT_TASK_ID"]);
}

#[test]
fn a_long_line_becomes_a_script() {
    let fits = format!(r#"{{"line":"{}"}}"#, "x".repeat(ARG_BYTES_MAX));
    assert!(check(&fits).unwrap().script.is_none());
    let long = format!(r#"{{"line":"{}"}}"#, "x".repeat(ARG_BYTES_MAX + 1));
    let plan = check(&long).unwrap();
    assert!(plan.script.is_some());
    assert_eq!(plan.argv[1], "/p/.weft/tasks/t-1/script");
}
