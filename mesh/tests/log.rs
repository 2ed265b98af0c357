//! Promises of the log: order, ids, cursors, wakes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod stage;

use serde_json::json;
use stage::{Home, changed, draft, query};
use weft_mesh::{Cursor, Draft, Event, EventId, MeshError, Origin, Pattern, Query, WriteError};

#[tokio::test]
async fn what_is_published_is_read_back_in_order_with_every_field() {
    let home = Home::new();
    let store = home.open();
    let full = draft("builds")
        .with_to("session:b")
        .with_grant_id("g-1")
        .with_text("hi");
    let full = full.with_data(&json!({"a": [1, "é"]})).external();
    let first = store.publish(full).await.unwrap().event;
    let second = store.publish(draft("builds.web")).await.unwrap().event;
    let found = store.find_event(first.id.clone()).await.unwrap().unwrap();
    assert_eq!(to_json(&[found]), to_json(std::slice::from_ref(&first)));
    assert!(
        store
            .find_event("nobody".parse().unwrap())
            .await
            .unwrap()
            .is_none()
    );
    let page = store.read_events(query(&[">"], 0)).await.unwrap();
    assert_eq!(
        to_json(&page.events),
        to_json(&[first.clone(), second.clone()])
    );
    assert_eq!(
        (first.sequence, second.sequence, page.next, page.more),
        (1, 2, 2, false)
    );
    assert_eq!((first.origin, first.untrusted), (Origin::External, true));
    let keys = [
        "createdAt",
        "data",
        "from",
        "grantId",
        "id",
        "kind",
        "origin",
        "scheduled",
        "sequence",
        "text",
        "to",
        "topic",
        "untrusted",
    ];
    let shown = serde_json::to_value(&second).unwrap();
    assert!(
        shown
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .eq(keys),
        "{shown}"
    );
    store.close();
    assert_eq!(
        to_json(
            &home
                .open()
                .read_events(query(&[">"], 0))
                .await
                .unwrap()
                .events
        ),
        to_json(&[first, second])
    );
}

fn to_json(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect()
}

#[tokio::test]
async fn the_same_id_is_a_duplicate_for_its_poster_and_a_conflict_for_anything_else() {
    let home = Home::new();
    let store = home.open();
    let id: EventId = "mine-1".parse().unwrap();
    let post = |text: &str| draft("builds").with_id(id.clone()).with_text(text);
    let first = store.publish(post("a")).await.unwrap();
    let again = store.publish(post("a")).await.unwrap();
    assert_eq!((first.duplicate, again.duplicate), (false, true));
    assert_eq!(first.event.sequence, again.event.sequence);
    assert_eq!(first.event.created_at, again.event.created_at);
    let other_poster = changed(post("a"), |draft| draft.from = "session:other".to_owned());
    let other_topic = changed(post("a"), |draft| draft.topic = "other".parse().unwrap());
    for conflict in [post("b"), other_poster, other_topic] {
        assert_eq!(
            store.publish(conflict).await.unwrap_err().slug(),
            "id-conflict"
        );
    }
    let made = store.publish(draft("builds")).await.unwrap().event;
    let taken = store
        .publish(draft("builds").with_id(made.id).with_text("x"))
        .await;
    assert_eq!(taken.unwrap_err().slug(), "id-conflict");
    let reserved = store
        .publish(draft("builds").with_id("completion:t-1".parse().unwrap()))
        .await;
    assert_eq!(reserved.unwrap_err().slug(), "id-reserved");
    assert_eq!(store.newest(), 2);
}

#[tokio::test]
async fn a_cursor_of_another_epoch_is_told_where_to_begin_again() {
    let home = Home::new();
    let store = home.open();
    store.publish(draft("builds")).await.unwrap();
    let mine: Cursor = format!("{}-0", store.epoch()).parse().unwrap();
    assert_eq!(
        store
            .read_events(Query::new(vec![Pattern::all()], mine))
            .await
            .unwrap()
            .events
            .len(),
        1
    );
    let other: Cursor = "0123456789abcdef-7".parse().unwrap();
    let refused = store
        .read_events(Query::new(vec![Pattern::all()], other))
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        MeshError::Resync {
            epoch: store.epoch().to_owned(),
            oldest: 1
        }
    );
}

#[tokio::test]
async fn pages_end_at_their_bounds_and_go_on_where_they_ended() {
    let home = Home::new();
    let store = home.open();
    for turn in 0..40 {
        let kind = if turn % 10 == 0 { "rare" } else { "common" };
        let topic = ["a", "b.x", "b.y", "weft.own"][turn % 4];
        let draft = Draft::by_weft(topic.parse().unwrap(), kind.parse().unwrap(), "node")
            .with_text("x".repeat(100));
        store.publish(draft).await.unwrap();
    }
    let read_all = async |mut query: Query| {
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let page = store.read_events(query.clone()).await.unwrap();
            seen.extend(page.events.iter().map(|event| event.sequence));
            query.after = page.next.into();
            pages += 1;
            if !page.more {
                assert_eq!(page.next, 40);
                return (seen, pages);
            }
        }
    };
    let all: Vec<u64> = (1..=40).filter(|sequence| sequence % 4 != 0).collect();
    assert_eq!(
        read_all(Query {
            limit: 7,
            ..query(&[">"], 0)
        })
        .await,
        (all.clone(), 5)
    );
    assert_eq!(
        read_all(Query {
            max_bytes: 1000,
            ..query(&[">"], 0)
        })
        .await,
        (all.clone(), 3)
    );
    assert_eq!(
        read_all(Query {
            max_bytes: 1,
            ..query(&[">"], 0)
        })
        .await,
        (all, 30)
    );
    let rare = Query {
        kinds: vec!["rare".parse().unwrap()],
        limit: 1,
        ..query(&[">"], 0)
    };
    assert_eq!(read_all(rare).await.0, [1, 11, 21, 31]);
    assert_eq!(
        read_all(query(&["b.*", "b.x"], 20)).await.0,
        [22, 23, 26, 27, 30, 31, 34, 35, 38, 39]
    );
    assert_eq!(read_all(query(&["weft.>"], 36)).await.0, [40]);
    assert_eq!(read_all(query(&["nobody"], 0)).await.0, [0; 0]);
}

#[tokio::test]
async fn a_batch_is_stored_whole_or_not_at_all() {
    let home = Home::new();
    let store = home.open();
    let id: EventId = "taken".parse().unwrap();
    store
        .publish(draft("builds").with_id(id.clone()))
        .await
        .unwrap();
    let conflict = vec![draft("new"), draft("builds").with_id(id).with_text("other")];
    assert_eq!(
        store.publish_batch(conflict).await.unwrap_err().slug(),
        "id-conflict"
    );
    let many = (0..101).map(|_| draft("builds")).collect();
    assert_eq!(
        store.publish_batch(many).await.unwrap_err().slug(),
        "payload-too-large"
    );
    assert_eq!(store.newest(), 1);
    assert_eq!(
        store.topics().await.unwrap().len(),
        1,
        "a refused batch makes no topic"
    );
    let stored = store
        .publish_batch(vec![draft("a"), draft("b")])
        .await
        .unwrap();
    assert_eq!(
        stored
            .iter()
            .map(|one| one.event.sequence)
            .collect::<Vec<_>>(),
        [2, 3]
    );
}

#[tokio::test]
async fn a_closure_that_refuses_or_panics_undoes_itself_and_not_its_neighbours() {
    let home = Home::new();
    let mut options = home.options();
    options.schema = vec!["CREATE TABLE IF NOT EXISTS rows (name TEXT NOT NULL) STRICT"];
    let store = weft_mesh::Store::open(options).unwrap();
    let row = |name: &'static str, fate: fn() -> Result<(), &'static str>| {
        let store = store.clone();
        async move {
            let write = store.write(move |tx| {
                tx.sql()
                    .execute("INSERT INTO rows VALUES (?1)", [name])
                    .unwrap();
                tx.append(&draft(&format!("topic-{name}"))).unwrap();
                fate()
            });
            write.await
        }
    };
    let (good, refused, panicked, other, published) = tokio::join!(
        row("good", || Ok(())),
        row("refused", || Err("no")),
        row("panicked", || panic!("a bug")),
        row("other", || Ok(())),
        store.publish(draft("builds")),
    );
    assert!(good.is_ok() && other.is_ok() && published.is_ok());
    assert_eq!(refused, Err(WriteError::Refused("no")));
    assert_eq!(
        panicked,
        Err(WriteError::Store(MeshError::Panicked {
            detail: "a bug".to_owned()
        }))
    );
    let rows = store.read(|conn| {
        Ok(conn
            .prepare("SELECT name FROM rows")?
            .query_map([], |row| row.get::<_, String>(0))?
            .collect::<Result<Vec<_>, _>>()?)
    });
    assert_eq!(rows.await.unwrap(), ["good", "other"]);
    let topics: Vec<_> = store
        .topics()
        .await
        .unwrap()
        .into_iter()
        .map(|topic| topic.topic.to_string())
        .collect();
    assert_eq!(topics, ["builds", "topic-good", "topic-other"]);
    assert_eq!(store.newest(), 3);
}

#[tokio::test]
async fn a_watcher_hears_what_matches_and_nothing_else() {
    let home = Home::new();
    let store = home.open();
    let mut builds = store.watch(&["builds.*".parse().unwrap()]);
    let mut other = store.watch(&["other".parse().unwrap()]);
    let mut key = store.watch_key("task:t-1");
    store.publish(draft("builds.web")).await.unwrap();
    builds.changed().await;
    store
        .write(|tx| {
            tx.wake("task:t-1");
            Ok::<_, MeshError>(())
        })
        .await
        .unwrap();
    key.changed().await;
    store
        .write(|tx| {
            tx.wake("task:t-1");
            Err::<(), _>("undone")
        })
        .await
        .unwrap_err();
    store.publish(draft("other")).await.unwrap();
    other.changed().await;
    for mut silent in [builds, other, key] {
        assert!(futures_poll(silent.changed()), "woken for nothing");
    }
}

/// Whether a future is still waiting.
fn futures_poll(future: impl Future<Output = ()>) -> bool {
    let future = std::pin::pin!(future);
    future
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
        .is_pending()
}
