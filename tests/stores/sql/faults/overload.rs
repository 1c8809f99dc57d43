//! More callers than the database serves: claims are refused, and answers are not lost.

use std::sync::atomic::{AtomicU64, Ordering};

use idem_runtime::EngineBuilder;

use super::prelude::*;

on_each_database!(
    no_answer_is_lost_under_overload,
    a_claim_that_cannot_be_sent_is_refused_before_its_body,
    an_answer_goes_ahead_of_claims,
);

/// The next answer of a body: no two are the same.
fn answer() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

async fn narrow<B: Database>(url: &str, response_timeout: Duration) -> SqlStore<B> {
    open_with::<B>(url, |store| {
        store.connections(1).response_timeout(response_timeout)
    })
    .await
}

fn engine<B: Database>(
    store: &SqlStore<B>,
    set: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Engine {
    set(Engine::builder(store.clone())).build().unwrap()
}

async fn pay(engine: Engine, key: u64) -> Result<u64, Error> {
    let call = engine
        .operation("pay")
        .key(&key)
        .on_error(idem_runtime::on_error::Release);
    call.run(|_| async { Ok::<_, Error>(answer()) }).await
}

/// A thousand callers of one connection, whose leases are over before it has served them.
async fn no_answer_is_lost_under_overload<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let lease = Duration::from_millis(100);
    let store = narrow::<B>(&test_database.url, Duration::from_secs(2)).await;
    let loaded = engine(&store, |engine| engine.lease(lease));
    let mut calls = JoinSet::new();
    for key in 0..1_000 {
        let loaded = loaded.clone();
        calls.spawn(async move { (key, pay(loaded, key).await) });
    }
    let answers = calls.join_all().await;
    loaded.shutdown(Duration::from_mins(1)).await.unwrap();
    let fresh = engine(
        &narrow::<B>(&test_database.url, Duration::from_secs(20)).await,
        |engine| engine,
    );
    let mut acknowledged = 0;
    for (key, told) in answers {
        match told {
            Ok(told) => {
                acknowledged += 1;
                assert_eq!(pay(fresh.clone(), key).await, Ok(told), "key {key}");
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    assert!(acknowledged > 0);
}

/// Writes are blocked in the database, and the only connection waits for that lock.
async fn a_claim_that_cannot_be_sent_is_refused_before_its_body<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let store = narrow::<B>(&test_database.url, Duration::from_secs(20)).await;
    let patient = engine(&store, |engine| {
        engine.claim_deadline(Duration::from_secs(30))
    });
    let hurried = engine(&store, |engine| {
        engine.claim_deadline(Duration::from_millis(200))
    });
    let held = B::hold(&test_database.url).await;
    let ahead = tokio::spawn(pay(patient.clone(), 0));
    let others: Vec<_> = (1..4)
        .map(|key| tokio::spawn(pay(patient.clone(), key)))
        .collect();
    let mut refused = JoinSet::new();
    for key in 10..20 {
        refused.spawn(pay(hurried.clone(), key));
    }
    let mut unsent = 0;
    for refused in refused.join_all().await {
        let error = refused.expect_err("nobody can write");
        assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
        assert!(error.is_retryable(), "{error}");
        unsent += usize::from(error.to_string().contains("was not sent"));
    }
    // The connection may have been free for the first of them; SQLite writes others in one transaction.
    assert!(unsent >= 9 || B::shared().is_none(), "{unsent} of 10");
    drop(held);
    ahead.await.unwrap().expect("it was ahead of them");
    for other in others {
        other.await.unwrap().expect("it has the time to wait");
    }
    hurried.shutdown(Duration::from_mins(1)).await.unwrap();
}

/// The body has ended while many claims wait for the connection.
async fn an_answer_goes_ahead_of_claims<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let store = narrow::<B>(&test_database.url, Duration::from_secs(20)).await;
    let engine = engine(&store, |engine| {
        engine
            .claim_deadline(Duration::from_secs(30))
            .complete_deadline(Duration::from_secs(30))
    });
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (begun, begins) = tokio::sync::oneshot::channel();
    let running = tokio::spawn({
        let (engine, gate) = (engine.clone(), Arc::clone(&gate));
        async move {
            let call = engine
                .operation("first")
                .key(&1)
                .on_error(idem_runtime::on_error::Release);
            call.run(|_| async move {
                begun.send(()).unwrap();
                gate.acquire().await.unwrap().forget();
                Ok::<_, Error>(1)
            })
            .await
        }
    });
    begins.await.unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let mut claims = JoinSet::new();
    for key in 0..500 {
        let (engine, done) = (engine.clone(), Arc::clone(&done));
        claims.spawn(async move {
            pay(engine, key).await.unwrap();
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    while done.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    assert_eq!(running.await.unwrap(), Ok(1));
    let before = done.load(Ordering::SeqCst);
    assert!(
        before < 400,
        "{before} of 500 were served before its answer"
    );
    claims.join_all().await;
}
