//! Promises of the ledger: who may post what, how often, under any race.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod stage;

use stage::{Home, NOW_MS, changed, draft, query};
use weft_mesh::{Draft, MeshError, NewGrant, Spend, Store};

fn claims(jti: &str) -> Spend {
    let now = NOW_MS / 1000;
    Spend {
        jti: jti.to_owned(),
        topic: "builds".to_owned(),
        kind: None,
        eid: None,
        iat: now,
        nbf: None,
        exp: now + 60,
    }
}

async fn mint(store: &Store, claims: &Spend, uses: u32) {
    let grant = NewGrant {
        jti: claims.jti.clone(),
        topic: claims.topic.parse().unwrap(),
        kind: None,
        eid: claims.eid.as_ref().map(|eid| eid.parse().unwrap()),
        uses,
        exp: claims.exp,
        description: Some("a test".to_owned()),
        minted_by: "session:cli".to_owned(),
    };
    store
        .write(move |tx| tx.insert_grant(&grant))
        .await
        .unwrap();
}

fn by_grant(jti: &str) -> Draft {
    changed(draft("builds").external().with_grant_id(jti), |draft| {
        draft.from = format!("grant:{jti}");
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_posts_at_once_exactly_as_many_succeed_as_there_are_uses() {
    let home = Home::new();
    let store = home.open();
    for round in 0..50 {
        let claims = claims(&format!("g-{round}"));
        mint(&store, &claims, 1).await;
        let posts: Vec<_> = (0..64)
            .map(|_| {
                let (store, claims) = (store.clone(), claims.clone());
                tokio::spawn(async move { store.post(claims.clone(), by_grant(&claims.jti)).await })
            })
            .collect();
        let mut spent = 0;
        for post in posts {
            match post.await.unwrap() {
                Ok(posted) => assert_eq!(posted.uses_left, 0),
                Err(MeshError::GrantSpent { uses: 1 }) => spent += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(spent, 63, "round {round}");
    }
    assert_eq!(
        store
            .read_events(query(&["builds"], 0))
            .await
            .unwrap()
            .events
            .len(),
        50
    );
    assert!(
        store
            .grants()
            .await
            .unwrap()
            .iter()
            .all(|grant| grant.used == 1 && grant.last_used_at.is_some())
    );
}

#[tokio::test]
async fn the_same_post_again_spends_nothing() {
    let home = Home::new();
    let store = home.open();
    let claims = claims("g");
    mint(&store, &claims, 2).await;
    let post = by_grant("g").with_id("mine".parse().unwrap());
    let first = store.post(claims.clone(), post.clone()).await.unwrap();
    let again = store.post(claims.clone(), post.clone()).await.unwrap();
    assert_eq!(
        (first.uses_left, again.uses_left, again.appended.duplicate),
        (1, 1, true)
    );
    assert_eq!(
        store
            .post(claims.clone(), post.clone().with_text("other"))
            .await
            .unwrap_err()
            .slug(),
        "id-conflict"
    );
    assert_eq!(
        store
            .post(claims.clone(), by_grant("g"))
            .await
            .unwrap()
            .uses_left,
        0
    );
    assert_eq!(
        store.post(claims.clone(), by_grant("g")).await.unwrap_err(),
        MeshError::GrantSpent { uses: 2 }
    );
    assert!(
        store.post(claims, post).await.unwrap().appended.duplicate,
        "a retry is answered after the last use too"
    );
}

#[tokio::test]
async fn each_claim_is_refused_by_its_name_and_spends_nothing() {
    let home = Home::new();
    let store = home.open();
    let good = claims("g");
    mint(&store, &good, 9).await;
    let now = NOW_MS / 1000;
    let refused =
        async |claims: Spend, draft: Draft| store.post(claims, draft).await.unwrap_err().slug();
    let post = || by_grant("g");
    let other = changed(post(), |draft| draft.topic = "other".parse().unwrap());
    assert_eq!(refused(good.clone(), other).await, "grant-topic");
    assert_eq!(
        refused(
            Spend {
                kind: Some("k".to_owned()),
                ..good.clone()
            },
            post()
        )
        .await,
        "grant-kind"
    );
    assert_eq!(
        refused(
            Spend {
                exp: now - 30,
                ..good.clone()
            },
            post()
        )
        .await,
        "grant-expired"
    );
    assert_eq!(
        refused(
            Spend {
                iat: now + 31,
                ..good.clone()
            },
            post()
        )
        .await,
        "grant-early"
    );
    assert_eq!(
        refused(
            Spend {
                nbf: Some(now + 31),
                ..good.clone()
            },
            post()
        )
        .await,
        "grant-early"
    );
    assert_eq!(
        refused(
            Spend {
                jti: "unknown".to_owned(),
                ..good.clone()
            },
            post()
        )
        .await,
        "grant-revoked"
    );
    assert_eq!(
        refused(good.clone(), post().with_text("x".repeat(65_537))).await,
        "payload-too-large"
    );
    assert_eq!(
        refused(
            good.clone(),
            post().with_id("completion:t-1".parse().unwrap())
        )
        .await,
        "id-reserved"
    );
    assert!(
        store
            .post(
                Spend {
                    exp: now - 29,
                    ..good.clone()
                },
                post()
            )
            .await
            .is_ok(),
        "within the leeway"
    );
    assert!(store.revoke("g").await.unwrap());
    assert!(!store.revoke("unknown").await.unwrap());
    assert_eq!(refused(good, post()).await, "grant-revoked");
    assert_eq!(store.grants().await.unwrap()[0].used, 1);
}

#[tokio::test]
async fn a_grant_for_one_event_id_posts_that_one_alone() {
    let home = Home::new();
    let store = home.open();
    let claims = Spend {
        eid: Some("completion:t-1".to_owned()),
        ..claims("g")
    };
    mint(&store, &claims, 1).await;
    let other = by_grant("g").with_id("completion:t-2".parse().unwrap());
    assert_eq!(
        store.post(claims.clone(), other).await.unwrap_err().slug(),
        "id-reserved"
    );
    let posted = store.post(claims.clone(), by_grant("g")).await.unwrap();
    assert_eq!(posted.appended.event.id.as_str(), "completion:t-1");
    assert!(
        store
            .post(claims, by_grant("g"))
            .await
            .unwrap()
            .appended
            .duplicate
    );
}

#[tokio::test]
async fn an_end_is_announced_in_one_closure_with_its_spend() {
    let home = Home::new();
    let store = home.open();
    mint(&store, &claims("g"), 1).await;
    let announce = || {
        store.write(|tx| {
            let id = "completion:t-1".parse()?;
            if let Some(sequence) = tx.sequence_of(&id)? {
                return Ok((sequence, None));
            }
            let end = Draft::by_weft("builds".parse()?, "task.completed".parse()?, "task:t-1")
                .with_id(id);
            let end = end.with_id_kept_until(u64::MAX);
            Ok::<_, MeshError>((tx.append(&end)?.event.sequence, Some(tx.spend("g")?)))
        })
    };
    let (first, second) = tokio::join!(announce(), announce());
    assert_eq!((first.unwrap(), second.unwrap()), ((1, Some(0)), (1, None)));
    let spent = store.write(|tx| tx.spend("g")).await.unwrap_err().flatten();
    assert_eq!(spent, MeshError::GrantSpent { uses: 1 });
    let row = store.write(|tx| tx.grant("g")).await.unwrap().unwrap();
    assert_eq!(
        (row.used, row.uses_left(), row.minted_by.as_str()),
        (1, 0, "session:cli")
    );
}
