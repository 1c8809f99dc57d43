//! The memory store.

use std::sync::Arc;

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{Owner, Remains};

use super::client::{Client, key, told, untold};

fn two_clients() -> (Client, Client) {
    let store = MemoryStore::new();
    (Client(Arc::new(store.clone())), Client(Arc::new(store)))
}

#[tokio::test]
async fn a_clone_notifies_of_completions_and_releases() {
    let (mine, other) = two_clients();
    let claim = mine.take(&key(1)).await;
    let mut watch = other.watch(&key(1)).await;
    let mut elsewhere = other.watch(&key(2)).await;
    assert!(untold(&mut watch));
    mine.release(&key(1), &claim).await;
    told(&mut watch).await;
    let claim = mine.take(&key(1)).await;
    assert!(untold(&mut watch), "a claim notifies no watcher");
    mine.complete(&key(1), &claim).await;
    told(&mut watch).await;
    assert!(untold(&mut watch) && untold(&mut elsewhere));
}

#[tokio::test]
async fn an_operation_without_effect_notifies_no_watcher() {
    let (mine, other) = two_clients();
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
