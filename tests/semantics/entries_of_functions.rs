//! From an annotated function to its call's entry, which is settled there.

use crate::prelude::*;

on_every_store! {
    an_unknown_call_is_found_resolved_and_replayed, an_entry_has_the_fingerprint_of_its_call,
    an_entry_has_the_policy_of_its_function,
}

const WEEK: Duration = Duration::from_hours(168);

#[idempotent(op = "transfer", scope = tenant, key = order, ttl = "7d", engine = engine, entry = transfer_entry)]
async fn transfer(
    tenant: &str,
    order: u32,
    cents: u64,
    #[idem(skip)] engine: &Engine,
    #[idem(skip)] runs: &Runs,
) -> Answer {
    let _ = (tenant, order, cents, engine, runs.start());
    Err(PayError::TimedOut)
}

async fn an_unknown_call_is_found_resolved_and_replayed(fixture: Fixture) {
    let (near, far, runs) = (&fixture.engine, &fixture.far, Runs::default());
    let entry = async |tenant: &str, order| {
        let found = transfer_entry(tenant, order, 1_250, far, &runs).await;
        found.unwrap()
    };
    assert!(entry("north", 7).await.is_none());
    let first = transfer("north", 7, 1_250, near, &runs).await;
    assert_eq!(first, Err(PayError::TimedOut));
    assert!(entry("north", 8).await.is_none() && entry("south", 7).await.is_none());
    let found = entry("north", 7).await.expect("there is a record");
    assert_eq!(found.state(), EntryState::Unknown);
    found.resolve(&Receipt { run: 9 }).await.unwrap();
    let repeat = transfer("north", 7, 1_250, near, &runs).await;
    assert_eq!((repeat, runs.count()), (receipt(9), 1));
}

#[idempotent(op = "refund", key = order, engine = engine, entry = refund_entry)]
async fn refund(order: u32, cents: u64, #[idem(skip)] engine: &Engine) -> Answer {
    let _ = (order, cents, engine);
    Err(PayError::Down)
}

/// A released key knows no request; its answer is that of the request whose entry it is.
async fn an_entry_has_the_fingerprint_of_its_call(fixture: Fixture) {
    let engine = &fixture.engine;
    assert_eq!(refund(7, 1_250, engine).await, Err(PayError::Down));
    let found = refund_entry(7, 1_250, engine).await.unwrap().unwrap();
    assert_eq!(found.state(), EntryState::Released);
    found.resolve(&Receipt { run: 9 }).await.unwrap();
    assert_eq!(refund(7, 1_250, engine).await, receipt(9));
    let other = refusal(refund(7, 1_251, engine).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
}

async fn an_entry_has_the_policy_of_its_function(fixture: Fixture) {
    let (engine, runs) = (&fixture.engine, Runs::default());
    let entry = async || {
        let found = transfer_entry("north", 7, 1_250, engine, &runs).await;
        found.unwrap().expect("there is a record")
    };
    let first = transfer("north", 7, 1_250, engine, &runs).await;
    assert_eq!(first, Err(PayError::TimedOut));
    // Whatever the record was to live for, the answer gets the `ttl` of the function.
    entry().await.reset().await.unwrap();
    entry().await.resolve(&Receipt { run: 9 }).await.unwrap();
    let left = entry().await.left();
    assert!(
        left > WEEK.saturating_sub(Duration::from_mins(1)),
        "{left:?}"
    );
}
