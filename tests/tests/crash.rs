//! Nodes and shims that are killed at any instant: nothing is announced twice, nothing is forgotten, no handler runs twice unmarked.
//!
//! Each of these takes many seconds. `WEFT_TEST_SEED` repeats the instants of a run that failed, as far as a machine can.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_tests::tasks::{completions, events, inbox, record, shims, unread_end};
use weft_tests::{Client, Stage, eventually, processes};

const TOPIC: &str = "jobs";
const JOBS: usize = 200;
const RESIDENT: &str = "counter";

/// Numbers that a seed decides.
struct Dice(u64);

impl Dice {
    fn new(salt: u64) -> Self {
        let seed = std::env::var("WEFT_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_millis() as u64
        });
        eprintln!("WEFT_TEST_SEED={seed}");
        Dice(seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Below `bound`; splitmix64.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Calls until some node answers, starting one where none does.
fn insist(stage: &Stage, reference: &str, input: &Value) -> Value {
    let client = Client::unix(stage.home());
    eventually("a node answers", || {
        match client.try_call(reference, input.clone()) {
            // A node that is ending says so; another comes.
            Ok(answer) if answer.slug() == "node-stopping" => None,
            // Its shim was killed before the command ran: nothing is left of the start, and it is made again.
            Ok(answer) if answer.text.contains("the shim ended without a word") => None,
            Ok(answer) => Some(answer.ok(reference)),
            Err(_) => {
                let _ = stage.run(["capabilities", "--json"]);
                None
            }
        }
    })
}

/// Launches the jobs of a round. A repeat of a request that was cut off starts no second task.
fn launch(stage: &Stage, round: usize) -> Vec<String> {
    let made = stage.dir().join("made");
    let mut ids = Vec::new();
    for job in 0..JOBS {
        let line = format!(
            "echo x >> {}/{round}-{job}; exit {}",
            made.display(),
            job % 3
        );
        let request = format!("round-{round}-job-{job}");
        let input = json!({"line": line, "lease": "durable", "notify": {"topic": TOPIC}, "requestId": request, "label": request});
        ids.push(
            insist(stage, "tasks.run", &input)["id"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    ids
}

/// Reads the topic as a stream, coming back with the last id after every cut, until the event of kind `last`.
fn follow(home: PathBuf) -> JoinHandle<Vec<Value>> {
    std::thread::spawn(move || {
        let (mut seen, mut last_id, mut done) = (Vec::new(), String::new(), false);
        let deadline = Instant::now() + Duration::from_mins(5);
        while !done && Instant::now() < deadline {
            let client = Client::unix(&home);
            let client = if last_id.is_empty() {
                client
            } else {
                client.with("last-event-id", &last_id)
            };
            let cut = client.stream(&format!("/v1/events?topics={TOPIC}&after=0"), |event| {
                if !event.id.is_empty() {
                    last_id.clone_from(&event.id);
                }
                if !event.data.is_empty() {
                    assert_eq!(
                        event.name, "",
                        "a stream over a node's death needs no resync: {event:?}"
                    );
                    let event = event.json();
                    done |= event["kind"] == "last";
                    seen.push(event);
                }
                !done
            });
            if cut.is_err() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        seen
    })
}

/// A resident whose handler writes its attempt into a file of the event's name.
fn create_counter(stage: &Stage) {
    for folder in ["made", "handled"] {
        std::fs::create_dir(stage.dir().join(folder)).unwrap();
    }
    let script = format!(
        "cat > /dev/null; echo $WEFT_EVENT_ATTEMPT >> {}/$WEFT_EVENT_SEQUENCE",
        stage.dir().join("handled").display()
    );
    let handler = json!({"exec": {"argv": ["sh", "-c", script]}});
    insist(
        stage,
        "residents.create",
        &json!({"name": RESIDENT, "topics": [TOPIC], "kinds": ["task.completed"], "handler": handler, "from": "start"}),
    );
}

/// The resident's log after `after`.
fn log(stage: &Stage, mut after: i64) -> Vec<Value> {
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let page = insist(
            stage,
            "residents.log",
            &json!({"name": RESIDENT, "after": after}),
        );
        let found = page["entries"].as_array().unwrap();
        if found.is_empty() {
            return entries;
        }
        after = found.last().unwrap()["n"].as_i64().unwrap();
        entries.extend(found.iter().cloned());
    }
}

fn lines(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Kills at random instants until told to end. Answers how many nodes and shims it killed.
fn chaos(stage: &Stage, dice: &mut Dice, end: &AtomicBool, with_shims: bool) -> (u32, u32) {
    let (mut nodes, mut shot) = (0, 0);
    while !end.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20 + dice.below(400)));
        // The first shot is at a node: the launches may be over before there is a second.
        if with_shims && nodes > 0 && dice.below(2) == 0 {
            let living = shims(stage.home());
            if !living.is_empty() {
                processes::kill(living[dice.below(living.len() as u64) as usize]);
                shot += 1;
            }
            continue;
        }
        let status = Client::unix(stage.home()).try_call("node.status", json!({}));
        if let Some(pid) = status.ok().and_then(|status| status.body["pid"].as_u64()) {
            processes::kill(pid as u32);
            nodes += 1;
        }
    }
    (nodes, shot)
}

/// One round: jobs under fire, then peace until all is settled.
fn round(stage: &Stage, dice: &mut Dice, round: usize, with_shims: bool) -> Vec<String> {
    let end = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let (end, tell) = (&end, tell);
        scope.spawn(move || {
            // Dropped when the launches are over, however they ended.
            let _over = Over(end);
            tell.send(launch(stage, round)).unwrap();
        });
        let (nodes, shot) = chaos(stage, dice, end, with_shims);
        eprintln!("round {round}: killed {nodes} nodes and {shot} shims");
        assert!(nodes > 0, "no node was killed");
    });
    told.recv().unwrap()
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Every job has one event and one inbox item, and ran at most once; acknowledges the items.
fn assert_announced_once(stage: &Stage, round: usize, ids: &[String]) {
    let client = stage.client();
    assert_eq!(
        ids.iter().collect::<BTreeSet<_>>().len(),
        JOBS,
        "two launches got one task"
    );
    let counts = eventually("every job's end is announced", || {
        let counts = completions(&events(&client, TOPIC));
        ids.iter()
            .all(|id| counts.contains_key(id))
            .then_some(counts)
    });
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "announced more than once: {twice:?}");
    let items = inbox(&client, "cli");
    let told: BTreeSet<&str> = items
        .iter()
        .map(|item| item["taskId"].as_str().unwrap())
        .collect();
    assert_eq!(
        (items.len(), told.len()),
        (JOBS, JOBS),
        "one item for each job of the round"
    );
    client
        .call("inbox.ack", json!({"seq": items.last().unwrap()["seq"]}))
        .ok("an acknowledgement");
    for (job, id) in ids.iter().enumerate() {
        let ran = std::fs::read_to_string(stage.dir().join(format!("made/{round}-{job}")))
            .unwrap_or_default()
            .lines()
            .count();
        let outcome = items
            .iter()
            .find(|item| item["taskId"] == id.as_str())
            .unwrap()["state"]
            .clone();
        assert!(
            ran == 1 || (ran == 0 && outcome == "lost"),
            "job {job}, {id}: ran {ran} times, {outcome}"
        );
    }
}

/// The log entries of each sequence.
fn by_sequence(entries: &[Value]) -> BTreeMap<u64, Vec<Value>> {
    let mut map: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for entry in entries {
        map.entry(entry["sequence"].as_u64().unwrap())
            .or_default()
            .push(entry.clone());
    }
    map
}

/// Waits until the resident is done with all these events, and answers its log after `after`.
fn settled_log(stage: &Stage, mut after: i64, count: usize) -> Vec<Value> {
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let settled = entries.iter().filter(|entry| entry["state"] != "failed");
        if settled.count() >= count {
            // With whatever came behind: an event that is handled twice must be seen.
            entries.extend(log(stage, after));
            return entries;
        }
        let page = insist(
            stage,
            "residents.log",
            &json!({"name": RESIDENT, "after": after, "waitMs": 60_000}),
        );
        let found = page["entries"].as_array().unwrap();
        let Some(last) = found.last() else {
            panic!(
                "the resident is not done: {} entries, last {:?}",
                entries.len(),
                entries.last()
            );
        };
        after = last["n"].as_i64().unwrap();
        entries.extend(found.iter().cloned());
    }
}

fn assert_stream(seen: &[Value], expected: &BTreeSet<String>) {
    let counts = completions(seen);
    let missing: Vec<_> = expected
        .iter()
        .filter(|id| !counts.contains_key(*id))
        .collect();
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(
        missing.is_empty() && twice.is_empty(),
        "the stream lost {missing:?} and repeated {twice:?}"
    );
    assert!(
        seen.is_sorted_by_key(|event| event["sequence"].as_u64()),
        "the stream is out of order"
    );
}

#[test]
fn heavy_killing_the_node_announces_each_end_once_and_runs_each_handler_once() {
    let stage = Stage::new();
    let mut dice = Dice::new(1);
    create_counter(&stage);
    let reader = follow(stage.home().to_owned());
    let (mut all, mut after) = (BTreeSet::new(), 0);
    for number in 0..5 {
        let ids = round(&stage, &mut dice, number, false);
        assert_announced_once(&stage, number, &ids);
        let entries = settled_log(&stage, after, JOBS);
        after = entries.last().unwrap()["n"].as_i64().unwrap();
        for (sequence, entries) in by_sequence(&entries) {
            // A run that a node only recorded before it was killed is no attempt, and one that began is never repeated.
            assert_eq!(entries.len(), 1, "{entries:?}");
            assert_eq!(
                (&entries[0]["state"], &entries[0]["attempt"]),
                (&json!("acknowledged"), &json!(1))
            );
            let runs = lines(&stage.dir().join("handled").join(sequence.to_string()));
            assert_eq!(runs, [1], "{entries:?}");
        }
        all.extend(ids);
    }
    insist(
        &stage,
        "mesh.publish",
        &json!({"topic": TOPIC, "kind": "last", "id": "the-last"}),
    );
    assert_stream(&reader.join().unwrap(), &all);
    assert_eq!(
        completions(&events(&stage.client(), TOPIC)).len(),
        all.len()
    );
}

#[test]
fn heavy_killing_shims_too_marks_what_was_lost_and_every_repeat() {
    let stage = Stage::new();
    let mut dice = Dice::new(2);
    create_counter(&stage);
    let reader = follow(stage.home().to_owned());
    let (mut all, mut after, mut lost) = (BTreeSet::new(), 0, 0);
    for number in 0..2 {
        let mut ids = round(&stage, &mut dice, number, true);
        // One whose shim is certainly killed while it runs.
        let client = stage.client();
        let input = json!({"line": "sleep 93.17", "lease": "durable", "session": "victims", "notify": {"topic": TOPIC}});
        let victim = insist(&stage, "tasks.run", &input)["id"]
            .as_str()
            .unwrap()
            .to_owned();
        processes::kill(weft_tests::tasks::shim(&client, &victim).unwrap());
        assert_eq!(unread_end(&client, &victim)["state"], "lost");
        assert_announced_once(&stage, number, &ids);
        ids.push(victim);
        lost += ids
            .iter()
            .filter(|id| record(&client, id)["state"] == "lost")
            .count();
        let entries = settled_log(&stage, after, JOBS + 1);
        after = entries.last().unwrap()["n"].as_i64().unwrap();
        for (sequence, entries) in by_sequence(&entries) {
            assert_handled(
                &lines(&stage.dir().join("handled").join(sequence.to_string())),
                &entries,
            );
        }
        all.extend(ids);
    }
    assert!(lost > 0);
    insist(
        &stage,
        "mesh.publish",
        &json!({"topic": TOPIC, "kind": "last", "id": "the-last"}),
    );
    assert_stream(&reader.join().unwrap(), &all);
    assert!(processes::running("sleep 93.17").is_empty());
}

/// At least one run, no attempt twice, and the attempt that counts among them.
fn assert_handled(runs: &[u64], entries: &[Value]) {
    let attempts: Vec<u64> = entries
        .iter()
        .map(|entry| entry["attempt"].as_u64().unwrap())
        .collect();
    assert_eq!(
        attempts,
        (1..=attempts.len() as u64).collect::<Vec<_>>(),
        "{entries:?}"
    );
    let last = entries.last().unwrap();
    assert_eq!(last["state"], "acknowledged", "{entries:?}");
    assert!(
        entries[..entries.len() - 1]
            .iter()
            .all(|entry| entry["state"] == "failed"),
        "{entries:?}"
    );
    assert!(
        runs.is_sorted_by(|one, next| one < next),
        "an attempt ran twice: {runs:?} {entries:?}"
    );
    assert_eq!(
        runs.last(),
        last["attempt"].as_u64().as_ref(),
        "{entries:?}"
    );
}
