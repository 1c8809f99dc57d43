//! The memory store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{OutcomeKind, Owner, Remains, ResolveReply, State};

use crate::client::{Client, key, told, untold};

fn two_clients() -> (Client, Client, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let other = store.clone();
    (Client(Arc::new(store)), Client(Arc::new(other)), clock)
}

#[tokio::test]
async fn a_clone_notifies_of_completions_and_releases() {
    let (mine, other, _clock) = two_clients();
    let claim = mine.take(&key(1)).await;
    let mut watch = other.watch(&key(1)).await;
    let mut elsewhere = other.watch(&key(2)).await;
    assert!(untold(&mut watch));
    mine.release(&key(1), &claim).await;
    told(&mut watch).await;
    let claim = mine.take(&key(1)).await;
    assert!(untold(&mut watch), "a claim ends nobody's wait");
    mine.complete(&key(1), &claim).await;
    told(&mut watch).await;
    assert!(untold(&mut watch) && untold(&mut elsewhere));
}

#[tokio::test]
async fn a_clone_notifies_of_resolutions() {
    let (mine, other, clock) = two_clients();
    let claim = mine.take(&key(1)).await;
    clock.advance(Duration::from_hours(2));
    let mut watch = other.watch(&key(1)).await;
    let mut found = claim;
    found.state = State::Done {
        outcome: OutcomeKind::Value,
        schema: 1,
    };
    found.owner = Owner::random();
    let record = Bytes::copy_from_slice(&found.encode());
    let resolved = mine
        .0
        .resolve(&key(1), &claim, None, &record)
        .await
        .unwrap();
    assert_eq!(resolved, ResolveReply::Resolved);
    told(&mut watch).await;
}

#[tokio::test]
async fn an_operation_without_effect_notifies_no_watcher() {
    let (mine, other, _clock) = two_clients();
    let claim = mine.take(&key(1)).await;
    let mut watch = other.watch(&key(1)).await;
    mine.0.renew(&key(1), &claim).await.unwrap();
    mine.0.read(&key(1)).await.unwrap();
    let stranger = Owner::random();
    mine.0
        .release(&key(1), &stranger, Remains::Attempt)
        .await
        .unwrap();
    assert!(untold(&mut watch));
    mine.complete(&key(1), &claim).await;
    told(&mut watch).await;
    // Sent again, as after a lost reply.
    mine.complete(&key(1), &claim).await;
    assert!(untold(&mut watch));
}
