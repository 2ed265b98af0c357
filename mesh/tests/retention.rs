//! Promises of retention: what goes, what stays, and who is told.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod stage;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use stage::{Home, draft, query};
use weft_mesh::{EventId, MeshError, Retention};

#[tokio::test]
async fn retention_takes_the_oldest_and_tells_each_reader_what_he_missed() {
    let home = Home::new();
    let store = home.open();
    let topic = "builds".parse().unwrap();
    store
        .set_retention(
            Some(topic),
            Some(Retention {
                max_count: Some(1),
                ..Retention::default()
            }),
        )
        .await
        .unwrap();
    let id: EventId = "kept-id".parse().unwrap();
    store
        .publish(draft("builds").with_id(id.clone()))
        .await
        .unwrap();
    store.publish(draft("other")).await.unwrap();
    for _ in 0..3 {
        store.publish(draft("builds")).await.unwrap();
    }
    let lost = |page: &weft_mesh::Page| {
        page.omitted
            .iter()
            .map(|lost| (lost.after, lost.to, lost.count))
            .collect::<Vec<_>>()
    };
    let page = store.read_events(query(&[">"], 0)).await.unwrap();
    assert_eq!(
        page.events
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        [2, 5]
    );
    assert_eq!(lost(&page), [(0, 4, 3)]);
    let page = store.read_events(query(&["builds"], 3)).await.unwrap();
    assert_eq!(lost(&page), [(3, 4, 1)]);
    assert!(
        store
            .read_events(query(&["builds"], 4))
            .await
            .unwrap()
            .omitted
            .is_empty()
    );
    assert!(
        store
            .read_events(query(&["other"], 0))
            .await
            .unwrap()
            .omitted
            .is_empty()
    );
    let again = store.publish(draft("builds").with_id(id)).await.unwrap();
    assert_eq!(
        (again.duplicate, again.event.sequence),
        (true, 1),
        "an id outlives its event"
    );
    let topics = store.topics().await.unwrap();
    assert_eq!(
        (
            topics[0].count,
            topics[0].first,
            topics[0].last,
            topics[0].trimmed_to
        ),
        (1, Some(5), Some(5), 4)
    );
    store.close();
    let store = home.open();
    store
        .set_retention(
            Some("builds".parse().unwrap()),
            Some(Retention {
                max_count: Some(0),
                ..Retention::default()
            }),
        )
        .await
        .unwrap();
    assert_eq!(
        store.publish(draft("builds")).await.unwrap().event.sequence,
        6
    );
    assert!(
        store
            .read_events(query(&["builds"], 0))
            .await
            .unwrap()
            .events
            .is_empty()
    );
    store.close();
    assert_eq!(
        home.open()
            .publish(draft("builds"))
            .await
            .unwrap()
            .event
            .sequence,
        7,
        "the counter does not restart"
    );
}

#[tokio::test]
async fn a_large_backlog_of_retention_is_worked_off_without_further_publishes() {
    let home = Home::new();
    let store = home.open();
    for _ in 0..13 {
        store
            .publish_batch((0..100).map(|_| draft("builds")).collect())
            .await
            .unwrap();
    }
    store
        .set_retention(
            None,
            Some(Retention {
                max_count: Some(10),
                ..Retention::default()
            }),
        )
        .await
        .unwrap();
    stage::eventually(async || store.topics().await.unwrap()[0].count == 10).await;
}

#[tokio::test]
async fn age_takes_events_away_and_later_what_is_remembered_of_them() {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    static NOW: AtomicU64 = AtomicU64::new(stage::NOW_MS);
    let home = Home::new();
    let mut options = home.options();
    options.now = || NOW.load(Relaxed);
    options.hold = Some(|_, topic, _| Ok((topic.as_str() == "held").then_some(0)));
    let store = weft_mesh::Store::open(options).unwrap();
    let retention = Retention {
        max_age_ms: Some(DAY_MS),
        ..Retention::default()
    };
    store.set_retention(None, Some(retention)).await.unwrap();
    let ids: [EventId; 3] = ["brief", "lasting", "held"].map(|id| id.parse().unwrap());
    let lasting = draft("builds").with_id_kept_until(NOW.load(Relaxed) + 30 * DAY_MS);
    store
        .publish(draft("builds").with_id(ids[0].clone()))
        .await
        .unwrap();
    store
        .publish(lasting.with_id(ids[1].clone()))
        .await
        .unwrap();
    store
        .publish(draft("held").with_id(ids[2].clone()))
        .await
        .unwrap();
    let after_days = async |days: u64| {
        NOW.store(stage::NOW_MS + days * DAY_MS + 1, Relaxed);
        // Any commit does: quiet topics take their turn.
        store.revoke("nothing").await.unwrap();
        let page = store.read_events(query(&[">"], 0)).await.unwrap();
        let ids = ids.clone();
        let known = store.write(move |tx| {
            ids.iter()
                .map(|id| Ok(tx.sequence_of(id)?.is_some()))
                .collect::<Result<Vec<_>, MeshError>>()
        });
        (page.events.len(), known.await.unwrap())
    };
    assert_eq!(after_days(0).await, (3, vec![true, true, true]));
    assert_eq!(
        after_days(1).await,
        (1, vec![true, true, true]),
        "the held one stays"
    );
    assert_eq!(
        after_days(7).await,
        (0, vec![false, true, false]),
        "no hold is for ever"
    );
    assert_eq!(after_days(30).await, (0, vec![false, false, false]));
}

#[tokio::test]
async fn a_hold_keeps_what_a_reader_has_not_handled() {
    let home = Home::new();
    let mut options = home.options();
    options.hold = Some(|_, topic, _| Ok((topic.as_str() == "held").then_some(2)));
    let store = weft_mesh::Store::open(options).unwrap();
    store
        .set_retention(
            None,
            Some(Retention {
                max_count: Some(1),
                ..Retention::default()
            }),
        )
        .await
        .unwrap();
    for topic in ["held", "held", "held", "free", "free"] {
        store.publish(draft(topic)).await.unwrap();
    }
    let page = store.read_events(query(&[">"], 0)).await.unwrap();
    assert_eq!(
        page.events
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        [2, 3, 5]
    );
}

#[tokio::test]
async fn what_is_too_old_goes_though_nobody_asks_for_anything() {
    let home = Home::new();
    let mut options = home.options();
    options.now = || {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(since.as_millis()).unwrap()
    };
    let store = weft_mesh::Store::open(options).unwrap();
    let kept = |max_age_ms| Retention {
        max_age_ms: Some(max_age_ms),
        ..Retention::default()
    };
    for (topic, age) in [("short", 50), ("long", 3_600_000)] {
        let topic = topic.parse().unwrap();
        store
            .set_retention(Some(topic), Some(kept(age)))
            .await
            .unwrap();
    }
    store.publish(draft("short")).await.unwrap();
    store.publish(draft("long")).await.unwrap();
    stage::eventually(async || {
        let page = store.read_events(query(&[">"], 0)).await.unwrap();
        page.events.len() == 1
    })
    .await;
    let topics = store.topics().await.unwrap();
    let count = |name: &str| {
        let topic = topics.iter().find(|topic| topic.topic.as_str() == name);
        topic.unwrap().count
    };
    assert_eq!((count("short"), count("long")), (0, 1));
}
