//! Many calls at once: whatever the isolation level, and beside a purge.

use std::sync::atomic::{AtomicBool, Ordering};

use super::prelude::*;

on_each_database!(a_purge_beside_heavy_load_is_not_noticed);
on_each_server!(each_isolation_level_serves_many_calls);

/// 2,000 calls from 16 tasks in two engines; every call succeeds.
async fn many_calls<B: Database>(stores: &[SqlStore<B>; 2], keys: usize) {
    let fixture = Fixture::on(&stores[0]);
    let other = fixture.beside(&stores[1]);
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let fixture = if task % 2 == 0 { &fixture } else { &other }.clone();
        tasks.spawn(async move {
            for call in 0..125 {
                let key = (task + call * 7) % keys;
                fixture.pay(&format!("{key}")).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let all = (0..16).flat_map(|task| (0..125).map(move |call| (task + call * 7) % keys));
    let all: std::collections::HashSet<_> = all.collect();
    for key in &all {
        assert_eq!(fixture.effects(&key.to_string()), 1, "{key}");
    }
    assert_eq!(fixture.all_effects(), all.len());
}

async fn each_isolation_level_serves_many_calls<B: Server>() {
    let (setting, levels): (_, &[&str]) = if B::POSTGRES {
        let levels = &["serializable", "repeatable read"];
        ("default_transaction_isolation", levels)
    } else {
        (
            "transaction-isolation",
            &["SERIALIZABLE", "READ-UNCOMMITTED"],
        )
    };
    for level in levels {
        let server = B::serve(&[(setting, level)]);
        let shown = server.execute(if B::POSTGRES {
            "SHOW transaction_isolation"
        } else {
            "SELECT @@tx_isolation"
        });
        assert_eq!(shown, *level);
        let url = server.url();
        many_calls(&[open::<B>(&url).await, open::<B>(&url).await], 50).await;
    }
}

async fn a_purge_beside_heavy_load_is_not_noticed<B: Database>() {
    let test_database = Arc::new(TestDatabase::new::<B>());
    let patient = || {
        open_with::<B>(&test_database.url, |store| {
            store.response_timeout(Duration::from_secs(10))
        })
    };
    let stores = [patient().await, patient().await];
    let over = Arc::new(AtomicBool::new(false));
    let mut purges = JoinSet::new();
    for store in &stores {
        let (store, test_database, over) =
            (store.clone(), Arc::clone(&test_database), Arc::clone(&over));
        purges.spawn(async move {
            let mut deleted = 0;
            while !over.load(Ordering::SeqCst) {
                test_database.sql(&B::filled(300, -1_000_000)).await;
                let purge = Purge::default().batch(50).pause(Duration::ZERO);
                deleted += store.purge(purge).await.unwrap();
            }
            deleted
        });
    }
    many_calls(&stores, 900).await;
    over.store(true, Ordering::SeqCst);
    let deleted: u64 = purges.join_all().await.into_iter().sum();
    let rest = stores[0].purge(Purge::default()).await.unwrap();
    assert!(
        deleted > 0 && (deleted + rest).is_multiple_of(300),
        "{deleted}, {rest}"
    );
}
