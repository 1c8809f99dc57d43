//! Many calls at once: whatever the isolation level, beside a purge, and more than the database serves.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt as _, stream};

use super::prelude::*;

on_each_database!(no_answer_is_lost_under_overload);
on_each_server!(each_isolation_level_serves_many_calls_beside_a_purge);

/// A thousand callers of one connection: leases lapse before it has served them.
async fn no_answer_is_lost_under_overload<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let soon = Duration::from_secs(2);
    let narrow = open_with::<B>(&test_database.url, |store| {
        store.connections(1).response_timeout(soon)
    });
    let loaded = Fixture::with(&narrow.await, |engine| {
        let engine = engine.claim_deadline(soon).complete_deadline(5 * soon);
        engine.lease(Duration::from_secs(1))
    });
    let mut calls = JoinSet::new();
    for key in 0..1_000 {
        let loaded = loaded.clone();
        calls.spawn(async move { (key, loaded.pay(&key.to_string()).await) });
    }
    let answers = calls.join_all().await;
    loaded.engine.shutdown(PATIENCE).await.unwrap();
    let fresh = loaded.beside(&open::<B>(&test_database.url).await);
    let mut acknowledged = 0;
    for (key, answer) in answers {
        match answer {
            Ok(answer) => {
                acknowledged += 1;
                assert_eq!(fresh.pay(&key.to_string()).await.unwrap(), answer);
            }
            Err(failure) => {
                let error = failure.refused();
                assert!(error.is_retryable(), "{error}");
            }
        }
    }
    assert!(acknowledged > 0);
}

/// 2,000 calls, 16 concurrently, each key in two engines; every call succeeds.
async fn many_calls<B: Database>(stores: &[SqlStore<B>; 2]) {
    const KEYS: usize = 900;
    let fixture = Fixture::on(&stores[0]);
    let engines = [&fixture, &fixture.beside(&stores[1])];
    let calls = stream::iter(0..2_000).for_each_concurrent(16, async |call| {
        let key = call / 2 % KEYS;
        engines[call % 2].pay(&key.to_string()).await.unwrap();
    });
    calls.await;
    for key in 0..KEYS {
        assert_eq!(fixture.effects(&key.to_string()), 1, "{key}");
    }
    assert_eq!(fixture.all_effects(), KEYS);
}

async fn each_isolation_level_serves_many_calls_beside_a_purge<B: Server>() {
    let (setting, shown, levels) = if B::POSTGRES {
        let levels = ["serializable", "repeatable read"];
        let shown = "SHOW transaction_isolation";
        ("default_transaction_isolation", shown, levels)
    } else {
        let levels = ["SERIALIZABLE", "READ-UNCOMMITTED"];
        ("transaction-isolation", "SELECT @@tx_isolation", levels)
    };
    for level in levels {
        let server = Arc::new(B::serve(&[(setting, level)]));
        assert_eq!(server.execute(shown), level);
        let url = server.url();
        let stores = [open::<B>(&url).await, open::<B>(&url).await];
        let over = Arc::new(AtomicBool::new(false));
        let purges = tokio::spawn({
            let (store, server, over) = (stores[0].clone(), server.clone(), over.clone());
            async move {
                let mut deleted = 0;
                // Once at least, although the calls may have ended before this task begins.
                loop {
                    server.execute(&B::filled(300, -1_000_000));
                    let purge = Purge::default().batch(50).pause(Duration::ZERO);
                    deleted += store.purge(purge).await.unwrap();
                    if over.load(Ordering::SeqCst) {
                        return deleted;
                    }
                }
            }
        });
        many_calls(&stores).await;
        over.store(true, Ordering::SeqCst);
        let deleted = purges.await.unwrap();
        assert!(
            deleted > 0 && deleted.is_multiple_of(300),
            "{level}: {deleted}"
        );
    }
}
