use super::*;
use std::os::unix::ffi::OsStringExt as _;

fn launch() -> Launch {
    Launch {
        version: PROTOCOL,
        id: "t-1".into(),
        home: "/h".into(),
        weft: "/bin/weft".into(),
        node_env: vec![],
        argv: vec!["a b".into(), OsString::from_vec(vec![0xff, b'x'])],
        cwd: "/".into(),
        env: vec![("KEY".into(), "private-value".into())],
        lease: Lease::Durable,
        io: Io::Batch,
        streams: Streams::Merged,
        deadline_ms: None,
        deadline_reason: None,
        grace_ms: 500,
        keep_bytes: 1,
        token: Some(Secret::new("private-token".into())),
        topic: None,
        stdin: None,
        nofile: None,
        incarnation: "i".into(),
        free_floor: 0,
        size: None,
    }
}

#[test]
fn words_that_are_not_text_arrive_as_given() {
    let sent = serde_json::to_string(&launch()).unwrap();
    let got: Launch = serde_json::from_str(&sent).unwrap();
    assert_eq!(got.argv, launch().argv);
    assert_eq!(got.env, launch().env);
}

#[test]
fn debug_shows_neither_token_nor_environment() {
    let shown = format!("{:?} {:?}", launch(), launch().token);
    assert!(!shown.contains("private"), "{shown}");
}

#[test]
fn requests_and_lines_have_their_public_shape() {
    let request: Request =
        serde_json::from_str(r#"{"n":3,"do":"stop","graceMs":7,"unknown":1}"#).unwrap();
    assert!(matches!(
        request.ask,
        Ask::Stop {
            grace_ms: Some(7),
            reason: None
        }
    ));
    let line: Line = serde_json::from_str(r#"{"n":3,"error":"no"}"#).unwrap();
    assert!(matches!(line, Line::Error { n: 3, .. }));
    let busy = serde_json::to_string(&Answer::Busy(true)).unwrap();
    assert_eq!(busy, r#"{"busy":true}"#);
}
