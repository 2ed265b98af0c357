//! Promises under faults: a killed process, another process in the way.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod stage;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use stage::{Home, NOW_MS, draft, query};
use weft_mesh::{EventId, Query, Store, StoreOptions};

/// Names the home of the child below; the test does nothing where it is not set.
const CHILD_HOME: &str = "WEFT_TEST_CHILD_HOME";

/// Not a test of its own: publishes for ever and says each acknowledged id.
#[test]
fn child_that_publishes() {
    let Some(folder) = std::env::var_os(CHILD_HOME) else {
        return;
    };
    let folder = Path::new(&folder);
    let mut options = StoreOptions::new(folder.join("weft.db"), folder.join("keys/mark"));
    // The clock of the home that looks afterwards, or its retention finds all of this too old.
    options.now = || NOW_MS;
    options.free_floor = Some(0);
    let store = Store::open(options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let publish = async |store: Store| {
        loop {
            let stored = store
                .publish(draft("builds").with_text("x".repeat(300)))
                .await
                .unwrap();
            writeln!(std::io::stdout(), "stored {}", stored.event.id).unwrap();
        }
    };
    let tasks: Vec<_> = (0..16)
        .map(|_| runtime.spawn(publish(store.clone())))
        .collect();
    let first = tasks.into_iter().next().unwrap();
    runtime.block_on(first).unwrap();
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_kill_9() {
    let home = Home::new();
    let mut acknowledged = BTreeSet::new();
    let mut epochs = BTreeSet::new();
    for round in 1..=5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_that_publishes", "--exact", "--nocapture"])
            .env(CHILD_HOME, home.path().parent().unwrap())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        acknowledged.extend(lines.by_ref().filter_map(id_in).take(round * 300));
        child.kill().unwrap();
        acknowledged.extend(lines.filter_map(id_in));
        child.wait().unwrap();
        let store = home.open();
        epochs.insert(store.epoch().to_owned());
        let stored = all_ids(&store).await;
        assert!(acknowledged.is_subset(&stored), "round {round}");
        store.close();
    }
    assert_eq!(epochs.len(), 1, "a crash is no other store");
    let integrity: String = rusqlite::Connection::open(home.path())
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(integrity, "ok");
}

/// The id in a line of the child. A line cut short by the kill is one that nobody was told.
fn id_in(line: String) -> Option<EventId> {
    let id = line.split_once("stored ")?.1;
    (id.len() == 36).then(|| id.parse().unwrap())
}

async fn all_ids(store: &Store) -> BTreeSet<EventId> {
    let (mut ids, mut sequences, mut after) = (BTreeSet::new(), Vec::new(), 0);
    loop {
        let page = store
            .read_events(Query {
                limit: 1000,
                ..query(&["builds"], after)
            })
            .await
            .unwrap();
        sequences.extend(page.events.iter().map(|event| event.sequence));
        ids.extend(page.events.into_iter().map(|event| event.id));
        after = page.next;
        if !page.more {
            assert!(sequences.is_sorted_by(|a, b| a < b));
            assert_eq!(ids.len(), sequences.len(), "an id twice");
            return ids;
        }
    }
}

/// Holds the store's write lock from outside until it is let go or the time is over.
fn hold(path: &Path, time: Duration) -> (mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let outside = rusqlite::Connection::open(path).unwrap();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (let_go, wait) = mpsc::channel();
    let holder = std::thread::spawn(move || {
        let _ = wait.recv_timeout(time);
        outside.execute_batch("ROLLBACK").unwrap();
    });
    (let_go, holder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_during_anothers_lock_are_late_and_not_lost() {
    let home = Home::new();
    let store = home.open();
    let hold_time = Duration::from_secs(3);
    let (_keep, holder) = hold(&home.path(), hold_time);
    let begun = Instant::now();
    let publish = |_| {
        let store = store.clone();
        tokio::spawn(async move { store.publish(draft("builds")).await })
    };
    let calls: Vec<_> = (0..32).map(publish).collect();
    assert!(
        store.topics().await.unwrap().is_empty(),
        "reads go on meanwhile"
    );
    assert!(begun.elapsed() < hold_time);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    holder.join().unwrap();
    assert_eq!(
        store
            .read_events(query(&["builds"], 0))
            .await
            .unwrap()
            .events
            .len(),
        32
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_longer_than_the_patience_is_a_clear_refusal_with_nothing_half_done() {
    let home = Home::new();
    let mut options = home.options();
    options.busy_patience_ms = 200;
    let store = Store::open(options).unwrap();
    let (let_go, holder) = hold(&home.path(), Duration::from_mins(1));
    let publish = |_| {
        let store = store.clone();
        tokio::spawn(async move { store.publish(draft("builds")).await })
    };
    for call in (0..8).map(publish).collect::<Vec<_>>() {
        let refused = call.await.unwrap().unwrap_err();
        assert_eq!(refused.slug(), "store-busy");
        assert!(refused.to_string().contains("200 ms"), "{refused}");
    }
    assert_eq!(
        store.trouble().map(|trouble| trouble.slug()),
        Some("store-busy")
    );
    drop(let_go);
    holder.join().unwrap();
    assert_eq!(
        store.publish(draft("builds")).await.unwrap().event.sequence,
        1
    );
    assert_eq!(store.trouble(), None);
    assert_eq!(store.topics().await.unwrap()[0].count, 1);
}

#[tokio::test]
async fn a_full_store_refuses_and_works_again_when_there_is_room() {
    let home = Home::new();
    let store = home.open();
    let pages = |limit: u32| {
        store.write(move |tx| {
            tx.sql()
                .execute_batch(&format!("PRAGMA max_page_count = {limit}"))?;
            Ok::<_, weft_mesh::MeshError>(())
        })
    };
    pages(64).await.unwrap();
    let mut stored = BTreeSet::new();
    let refused = loop {
        match store
            .publish(draft("builds").with_text("x".repeat(20_000)))
            .await
        {
            Ok(appended) => stored.insert(appended.event.id),
            Err(refused) => break refused,
        };
    };
    assert_eq!(refused.slug(), "no-space");
    let batch = (0..9)
        .map(|_| draft("new").with_text("x".repeat(20_000)))
        .collect();
    assert_eq!(
        store.publish_batch(batch).await.unwrap_err().slug(),
        "no-space"
    );
    assert_eq!(all_ids(&store).await, stored, "reads go on");
    pages(1 << 20).await.unwrap();
    stored.insert(
        store
            .publish(draft("builds").with_text("x".repeat(20_000)))
            .await
            .unwrap()
            .event
            .id,
    );
    assert_eq!(all_ids(&store).await, stored);
    store.close();
    assert_eq!(all_ids(&home.open()).await, stored);
}

#[tokio::test]
async fn a_closure_that_spoils_the_transaction_leaves_the_store_working() {
    let home = Home::new();
    let store = home.open();
    let spoiled = store.write(|tx| {
        let _ = tx.append(&draft("builds"))?;
        tx.sql().execute_batch("ROLLBACK")?;
        Ok::<_, weft_mesh::MeshError>(())
    });
    assert!(spoiled.await.is_err());
    assert_eq!(
        store.publish(draft("builds")).await.unwrap().event.sequence,
        1
    );
    assert_eq!(store.topics().await.unwrap()[0].count, 1);
}
