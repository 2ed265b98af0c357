//! The life of a resident: made, paused, told something, removed and made anew.

use serde_json::json;
use weft_tests::{Client, Stage, eventually};

use super::{Scene, sequences};

#[test]
fn a_paused_resident_keeps_its_events_for_later() {
    let scene = Scene::new();
    scene.create("echo $WEFT_EVENT_SEQUENCE >> out", json!({}));
    assert_eq!(scene.act("pause")["enabled"], false);
    assert_eq!(scene.act("pause")["enabled"], false);
    let published: Vec<u64> = (0..3).map(|n| scene.publish(json!(n))).collect();
    // Another resident on the same topic is through with them, so this one had its time.
    let input = json!({"name": "other", "topics": ["t"], "from": "start", "handler": {"exec": {"argv": ["/bin/true"]}}});
    scene.client.call("residents.create", input).ok("another");
    eventually("the other is through", || {
        let log = scene
            .client
            .call("residents.log", json!({"name": "other"}))
            .ok("its log");
        (log["entries"].as_array()?.len() == 3).then_some(())
    });
    assert_eq!(scene.log().len(), 0);
    assert_eq!(scene.act("resume")["enabled"], true);
    assert_eq!(sequences(&scene.settled("acknowledged", 3)), published);
    assert_eq!(scene.act("resume")["enabled"], true);
    assert_eq!(scene.lines("out").len(), 3);
}

#[test]
fn a_message_is_told_to_one_resident_behind_what_waits() {
    let scene = Scene::new();
    scene.create(
        "echo $WEFT_EVENT_TOPIC $(cat) >> out",
        json!({"kinds": ["wanted"]}),
    );
    let input = json!({"name": "other", "topics": [">"], "from": "start", "handler": {"exec": {"argv": ["/bin/sh", "-c", "echo $WEFT_EVENT_TOPIC >> other"]}}, "cwd": scene.stage.dir()});
    scene.client.call("residents.create", input).ok("another");
    scene.act("pause");
    scene.publish(json!("of no wanted kind"));
    let event = scene
        .client
        .call("mesh.publish", json!({"topic": "t", "kind": "wanted"}))
        .ok("an event");
    let told = scene
        .client
        .call(
            "residents.tell",
            json!({"name": "r", "text": "hello", "requestId": "once"}),
        )
        .ok("tell");
    let again = scene
        .client
        .call(
            "residents.tell",
            json!({"name": "r", "text": "hello", "requestId": "once"}),
        )
        .ok("tell again");
    assert_eq!(told, again);
    scene.act("resume");
    let log = scene.settled("acknowledged", 2);
    assert_eq!(
        sequences(&log),
        [
            event["sequence"].as_u64().unwrap(),
            told["sequence"].as_u64().unwrap()
        ]
    );
    let out = scene.lines("out");
    assert!(
        out[1].starts_with("weft.resident.r ") && out[1].contains("hello"),
        "{out:?}"
    );
    eventually("the other is through", || {
        (scene.lines("other").len() == 2).then_some(())
    });
    assert_eq!(
        scene.lines("other"),
        ["t", "t"],
        "weft's own topics came by a wildcard"
    );

    for (input, status) in [
        (json!({"name": "r"}), 422),
        (json!({"name": "nobody", "text": "x"}), 404),
        (
            json!({"name": "r", "text": "x", "incarnation": "gone"}),
            409,
        ),
    ] {
        assert_eq!(
            scene.client.call("residents.tell", input.clone()).status,
            status,
            "{input}"
        );
    }
}

#[test]
fn where_a_resident_begins_is_its_maker_s_choice() {
    let scene = Scene::new();
    let old: Vec<u64> = (0..3).map(|n| scene.publish(json!(n))).collect();
    for (name, from) in [
        ("now", json!("now")),
        ("start", json!("start")),
        ("place", json!(old[1])),
    ] {
        let input = json!({"name": name, "topics": ["t"], "from": from, "handler": {"exec": {"argv": ["/bin/true"]}}});
        scene.client.call("residents.create", input).ok(name);
    }
    let new = scene.publish(json!("new"));
    for (name, wanted) in [
        ("now", vec![new]),
        ("start", [old.clone(), vec![new]].concat()),
        ("place", vec![old[2], new]),
    ] {
        let log = eventually("it is through", || {
            let log = scene
                .client
                .call("residents.log", json!({"name": name}))
                .ok("its log")["entries"]
                .clone();
            (log.as_array()?.last()?["sequence"] == new).then_some(log)
        });
        assert_eq!(sequences(log.as_array().unwrap()), wanted, "{name}");
    }
    for from in [json!(new + 1000), json!("later"), json!(-1), json!("")] {
        let input = json!({"name": "bad", "topics": ["t"], "from": from, "handler": {"exec": {"argv": ["/bin/true"]}}});
        assert_eq!(
            scene.client.call("residents.create", input).status,
            422,
            "{from}"
        );
    }
}

#[test]
fn a_name_is_taken_until_its_resident_is_removed() {
    let scene = Scene::new();
    let first = scene.create("echo first >> out", json!({}));
    let same = scene.create("echo first >> out", json!({}));
    assert_eq!(first["incarnation"], same["incarnation"]);
    let input =
        json!({"name": "r", "topics": ["t"], "handler": {"exec": {"argv": ["/bin/false"]}}});
    let taken = scene.client.call("residents.create", input);
    assert_eq!((taken.status, taken.slug().as_str()), (409, "exists"));
    let old = scene.publish(json!(1));
    scene.settled("acknowledged", 1);
    scene.act("remove");
    for verb in ["get", "log", "pause", "resume", "remove"] {
        assert_eq!(
            scene
                .client
                .call(&format!("residents.{verb}"), json!({"name": "r"}))
                .slug(),
            "not-found",
            "{verb}"
        );
    }
    // The new one of the name has a log and a place of its own, and runs its handler even for an event that the old one had.
    let second = scene.create("echo second >> out", json!({"from": "start"}));
    assert_ne!(first["incarnation"], second["incarnation"]);
    let log = scene.settled("acknowledged", 1);
    assert_eq!(sequences(&log), [old]);
    assert_eq!(scene.lines("out"), ["first", "second"]);
}

#[test]
fn a_run_of_a_removed_resident_tells_nobody() {
    let scene = Scene::new();
    let gate = scene.file("gate");
    scene.create(
        &format!(
            "echo run >> out; until [ -e {} ]; do sleep 0.02; done",
            gate.display()
        ),
        json!({}),
    );
    let sequence = scene.publish(json!(1));
    eventually("the handler runs", || {
        (scene.lines("out").len() == 1).then_some(())
    });
    scene.act("remove");
    scene.create("echo second >> out", json!({"from": sequence - 1}));
    std::fs::write(&gate, "").unwrap();
    let log = scene.settled("acknowledged", 1);
    assert_eq!(log.len(), 1);
    assert_eq!(scene.lines("out"), ["run", "second"]);
}

#[test]
fn what_retention_took_unseen_is_told_to_the_resident() {
    let stage = Stage::new();
    let _node = stage.node(&[]);
    let client = Client::unix(stage.home());
    let scene = Scene { stage, client };
    scene.create("echo $WEFT_EVENT_SEQUENCE >> out", json!({}));
    // Events that an enabled resident has not seen are kept for it; those of a paused one are not.
    scene.act("pause");
    let published: Vec<u64> = (0..5).map(|n| scene.publish(json!(n))).collect();
    let last = scene.publish(json!(5));
    scene
        .client
        .call("mesh.retain", json!({"topic": "t", "maxCount": 2}))
        .ok("mesh.retain");
    scene.act("resume");
    let log = scene.settled("acknowledged", 2);
    assert_eq!(log.len(), 3, "{log:?}");
    assert_eq!(
        (&log[0]["state"], &log[0]["sequence"]),
        (&json!("omitted"), &json!(published[3]))
    );
    assert!(
        log[0]["reason"]
            .as_str()
            .unwrap()
            .contains("retention took 4 events"),
        "{log:?}"
    );
    assert_eq!(sequences(&log[1..]), [published[4], last]);
}

#[test]
fn the_command_line_makes_and_shows_residents() {
    let scene = Scene::new();
    let work = scene.file("a work folder");
    std::fs::create_dir(&work).unwrap();
    let tools = scene.file("tools");
    std::fs::create_dir(&tools).unwrap();
    std::fs::write(
        tools.join("handle"),
        "#!/bin/sh\necho \"$PWD $SECRET $1\" > made\n",
    )
    .unwrap();
    std::fs::set_permissions(
        tools.join("handle"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let mut create = scene.stage.weft([
        "residents",
        "create",
        "r",
        "--topics",
        "t",
        "-e",
        "SECRET=hush",
        "--retries",
        "0",
        "--",
        "handle",
        "--flag",
    ]);
    create
        .current_dir(&work)
        .env("PATH", format!("{}:/usr/bin:/bin", tools.display()));
    let _ = weft_tests::stage::finish(&mut create).expect_code(0);
    scene.publish(json!(1));
    scene.settled("acknowledged", 1);
    assert_eq!(
        std::fs::read_to_string(work.join("made")).unwrap(),
        format!("{} hush --flag\n", work.display())
    );

    for words in [
        &["residents", "list"][..],
        &["residents", "get", "r"],
        &["residents", "log", "r"],
    ] {
        let plain = scene.stage.run(words).expect_code(0);
        assert!(
            !plain.stdout.contains("hush") && !plain.stdout.is_empty(),
            "{plain:?}"
        );
        let shown = scene.stage.json(["--json"].iter().chain(words)).to_string();
        assert!(!shown.contains("hush"), "{shown}");
    }
    assert_eq!(
        scene
            .stage
            .run(["residents", "list", "-q"])
            .expect_code(0)
            .stdout,
        "r\n"
    );
    for words in [
        &["residents", "pause", "r"][..],
        &["residents", "tell", "r", "hello"],
        &["residents", "resume", "r"],
    ] {
        let _ = scene.stage.run(words).expect_code(0);
    }
    scene.settled("acknowledged", 2);
    let _ = scene.stage.run(["residents", "remove", "r"]).expect_code(0);
    assert_eq!(scene.stage.run(["residents", "get", "r"]).code, 1);
    for words in [
        &[
            "residents",
            "create",
            "x",
            "--topic",
            "t",
            "--retriez",
            "0",
            "--",
            "true",
        ][..],
        &["residents", "create", "x", "--", "true"],
        &["residents", "create", "x", "--topic", "t"],
        &["residents", "tell", "x"],
        &[
            "residents",
            "create",
            "x",
            "--topic",
            "t",
            "-e",
            "=",
            "--",
            "true",
        ],
        &["residents"],
    ] {
        assert_eq!(scene.stage.run(words).code, 2, "{words:?}");
    }
}
