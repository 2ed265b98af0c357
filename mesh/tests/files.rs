//! Promises about the file: which store it is, damaged and newer ones, one owner, room on the disk.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod stage;

use std::fs;
use std::path::Path;

use stage::{Home, NOW_MS, draft, query};
use weft_mesh::{MeshError, NewGrant, Spend, Store};

#[tokio::test]
async fn the_epoch_stays_over_restarts_and_changes_when_the_store_is_another() {
    let home = Home::new();
    let copy = home.path().with_extension("copy");
    let store = home.open();
    let epoch = store.epoch().to_owned();
    assert!(!epoch.is_empty() && !epoch.contains('-'));
    store.publish(draft("builds")).await.unwrap();
    store.close();
    fs::copy(home.path(), &copy).unwrap();
    let store = home.open();
    assert_eq!(store.epoch(), epoch, "a restart");
    store.publish(draft("builds")).await.unwrap();
    store.close();

    // The same file, its content from before: only the mark knows that it was further.
    fs::write(home.path(), fs::read(&copy).unwrap()).unwrap();
    let store = home.open();
    let second = store.epoch().to_owned();
    assert_ne!(second, epoch, "an older copy put back");
    assert_eq!(
        store.publish(draft("builds")).await.unwrap().event.sequence,
        3,
        "no sequence twice"
    );
    store.close();

    fs::copy(home.path(), &copy).unwrap();
    fs::rename(&copy, home.path()).unwrap();
    let store = home.open();
    let third = store.epoch().to_owned();
    assert_ne!(third, second, "an exact copy is still another file");
    store.close();

    fs::remove_file(home.path()).unwrap();
    let store = home.open();
    assert_ne!(store.epoch(), third, "the store deleted");
    assert!(store.publish(draft("builds")).await.unwrap().event.sequence > 3);
    let last = store.epoch().to_owned();
    store.close();

    fs::remove_file(home.mark()).unwrap();
    assert_ne!(home.open().epoch(), last, "a home without its mark");
}

#[tokio::test]
async fn grants_of_an_older_epoch_are_revoked() {
    let home = Home::new();
    let store = home.open();
    let grant = NewGrant {
        jti: "g".to_owned(),
        topic: "builds".parse().unwrap(),
        kind: None,
        eid: None,
        uses: 5,
        exp: NOW_MS / 1000 + 60,
        description: None,
        minted_by: "session:cli".to_owned(),
    };
    store
        .write(move |tx| tx.insert_grant(&grant))
        .await
        .unwrap();
    store.close();
    fs::remove_file(home.mark()).unwrap();
    let store = home.open();
    let claims = Spend {
        jti: "g".to_owned(),
        topic: "builds".to_owned(),
        kind: None,
        eid: None,
        iat: NOW_MS / 1000,
        nbf: None,
        exp: NOW_MS / 1000 + 60,
    };
    assert_eq!(
        store.post(claims, draft("builds")).await.unwrap_err(),
        MeshError::GrantRevoked
    );
    assert_eq!(store.grants().await.unwrap()[0].revoked_at, Some(NOW_MS));
}

/// Opens what cannot be opened; gives the reason's name after checking that the file stayed as it was.
fn refused(home: &Home) -> &'static str {
    let before = fs::read(home.path()).unwrap();
    let error = Store::open(home.options()).unwrap_err();
    assert!(
        error.to_string().contains(home.path().to_str().unwrap()),
        "{error}"
    );
    assert_eq!(
        fs::read(home.path()).unwrap(),
        before,
        "the file was changed"
    );
    error.slug()
}

#[tokio::test]
async fn damaged_foreign_and_newer_files_are_refused_and_left_as_they_are() {
    let home = Home::new();
    fs::write(
        home.path(),
        "this is not a database, it only lies where one should",
    )
    .unwrap();
    assert_eq!(refused(&home), "store-corrupt");
    fs::remove_file(home.path()).unwrap();

    let store = home.open();
    for _ in 0..200 {
        store
            .publish(draft("builds").with_text("x".repeat(200)))
            .await
            .unwrap();
    }
    store.close();
    let good = fs::read(home.path()).unwrap();
    fs::write(home.path(), &good[..good.len() / 2]).unwrap();
    assert_eq!(refused(&home), "store-corrupt", "cut short");
    fs::write(home.path(), &good[..10]).unwrap();
    assert_eq!(refused(&home), "store-corrupt", "cut within its head");
    fs::write(home.path(), "").unwrap();
    assert_eq!(refused(&home), "store-corrupt", "emptied");
    let mut holed = good.clone();
    holed[8192..].fill(0);
    fs::write(home.path(), &holed).unwrap();
    assert_eq!(refused(&home), "store-corrupt", "overwritten with zeros");

    fs::write(home.path(), &good).unwrap();
    rusqlite::Connection::open(home.path())
        .unwrap()
        .execute_batch("PRAGMA user_version = 2")
        .unwrap();
    assert_eq!(refused(&home), "store-newer");

    fs::remove_file(home.path()).unwrap();
    rusqlite::Connection::open(home.path())
        .unwrap()
        .execute_batch("CREATE TABLE mine (a)")
        .unwrap();
    assert_eq!(refused(&home), "store-foreign");

    fs::write(home.path(), &good).unwrap();
    let store = home.open();
    assert_eq!(
        store
            .read_events(query(&["builds"], 199))
            .await
            .unwrap()
            .events
            .len(),
        1
    );
}

#[tokio::test]
async fn a_store_has_one_owner_at_a_time() {
    let home = Home::new();
    let store = home.open();
    assert_eq!(
        Store::open(home.options()).unwrap_err().slug(),
        "store-locked"
    );
    store.close();
    assert_eq!(
        store.publish(draft("builds")).await.unwrap_err(),
        MeshError::StoreClosed
    );
    assert_eq!(store.topics().await.unwrap_err(), MeshError::StoreClosed);
    home.open();
}

#[tokio::test]
async fn a_store_whose_file_is_taken_away_says_so_and_makes_no_other() {
    let home = Home::new();
    let store = home.open();
    store.publish(draft("builds")).await.unwrap();
    fs::remove_file(home.path()).unwrap();
    let refused = async || {
        store
            .publish(draft("builds"))
            .await
            .err()
            .map(|error| error.slug())
    };
    assert_eq!(refused().await, Some("store-gone"));
    assert_eq!(
        store.trouble().map(|trouble| trouble.slug()),
        Some("store-gone")
    );
    assert_eq!(refused().await, Some("store-gone"));
    assert!(!home.path().exists());
}

#[tokio::test]
async fn nothing_is_acknowledged_after_the_store_or_its_log_was_cut_or_replaced() {
    let cut = |path: &Path| fs::write(path, "").unwrap();
    let remove = |path: &Path| fs::remove_file(path).unwrap();
    let replace = |path: &Path| {
        let copy = path.with_extension("copy");
        fs::copy(path, &copy).unwrap();
        fs::rename(copy, path).unwrap();
    };
    for name in ["weft.db", "weft.db-wal"] {
        for damage in [&cut as &dyn Fn(&Path), &remove, &replace] {
            let home = Home::new();
            let store = home.open();
            store.publish(draft("builds")).await.unwrap();
            damage(&home.path().with_file_name(name));
            for _ in 0..2 {
                let refused = store.publish(draft("builds")).await.unwrap_err();
                assert_eq!(refused.slug(), "store-gone", "{name}");
            }
        }
    }
}

#[tokio::test]
async fn below_the_floor_of_free_space_nothing_is_appended_and_the_rest_goes_on() {
    let home = Home::new();
    let store = home.open();
    store.publish(draft("builds")).await.unwrap();
    store.close();
    let mut options = home.options();
    options.free_floor = Some(u64::MAX);
    let store = Store::open(options).unwrap();
    let refused = store.publish(draft("builds")).await.unwrap_err();
    assert!(
        refused.slug() == "no-space" && refused.to_string().starts_with("no space: "),
        "{refused}"
    );
    assert_eq!(
        store
            .publish_batch(vec![draft("new")])
            .await
            .unwrap_err()
            .slug(),
        "no-space"
    );
    assert_eq!(
        store
            .write(|tx| tx.append(&draft("new")))
            .await
            .unwrap_err()
            .flatten()
            .slug(),
        "no-space"
    );
    store.revoke("unknown").await.unwrap();
    assert_eq!(store.topics().await.unwrap().len(), 1);
    assert_eq!(
        store
            .read_events(query(&[">"], 0))
            .await
            .unwrap()
            .events
            .len(),
        1
    );
    store.close();
    assert_eq!(
        home.open()
            .publish(draft("builds"))
            .await
            .unwrap()
            .event
            .sequence,
        2
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_ahead_log_stays_short_under_writes_and_reads() {
    let home = Home::new();
    let store = home.open();
    let text = "x".repeat(100 * 1024);
    for round in 0..20 {
        let publish = |_| {
            let (store, text) = (store.clone(), text.clone());
            tokio::spawn(async move {
                store
                    .publish(draft("builds").with_text(text))
                    .await
                    .unwrap()
            })
        };
        for published in (0..100).map(publish).collect::<Vec<_>>() {
            published.await.unwrap();
        }
        store
            .read_events(query(&["builds"], round * 100))
            .await
            .unwrap();
    }
    // 200 MB went through it.
    let log = fs::metadata(home.path().with_extension("db-wal"))
        .unwrap()
        .len();
    assert!(log < 100 << 20, "{log} bytes");
}
