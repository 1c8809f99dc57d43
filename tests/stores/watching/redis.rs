//! The Redis store, without faults.

use idem_harness::{Monitor, RedisServer};
use idem_tests::shop::{patiently, until};
use tokio::task::JoinSet;

use super::client::{Client, hearers, key, store, subscribers, told};

/// How often clients sent this command since the last call.
fn sent(monitor: &mut Monitor, command: &str) -> usize {
    let names = monitor.names();
    names.iter().filter(|name| *name == command).count()
}

#[tokio::test]
async fn ten_thousand_watches_of_a_key_are_one_subscription() {
    let server = RedisServer::start();
    let store = std::sync::Arc::new(store(&server.url()).await);
    let mut monitor = server.monitor();
    let mut admin = server.connect();
    let mut watching = JoinSet::new();
    for _ in 0..10_000 {
        let client = Client(store.clone());
        watching.spawn(async move { client.watch(&key(1)).await });
    }
    let watches = patiently("watches", watching.join_all()).await;
    assert_eq!(sent(&mut monitor, "SUBSCRIBE"), 1);
    let client = Client(store);
    client.pass(&key(1)).await;
    for mut watch in watches {
        told(&mut watch).await;
    }
    let given_up = || hearers(&mut admin, "NUMSUB", &key(1)) == 0;
    until("the channel is given up", given_up).await;
    assert_eq!(sent(&mut monitor, "UNSUBSCRIBE"), 1);
}

#[tokio::test]
async fn a_key_with_a_watcher_stays_subscribed() {
    let (server, client) = Client::alone().await;
    let mut monitor = server.monitor();
    let mut stays = client.watch(&key(1)).await;
    for _ in 0..10 {
        drop(client.watch(&key(1)).await);
    }
    // The subscription to another key is executed after all of that.
    let _other = client.watch(&key(2)).await;
    assert_eq!(sent(&mut monitor, "UNSUBSCRIBE"), 0);
    client.pass(&key(1)).await;
    told(&mut stays).await;
}

#[tokio::test]
async fn a_watch_that_is_given_up_half_way_leaves_nothing_behind() {
    let (server, client) = Client::alone().await;
    let mut admin = server.connect();
    for polls in 1..6 {
        let key = key(1);
        let mut watching = Box::pin(client.try_watch(&key));
        for _ in 0..polls {
            let polled = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(watching.as_mut().poll(cx).is_ready())
            });
            if polled.await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(watching);
    }
    let _other = client.watch(&key(2)).await;
    until("the channel is given up", || {
        hearers(&mut admin, "NUMSUB", &key(1)) == 0
    })
    .await;
}

#[tokio::test]
async fn a_store_that_is_dropped_hangs_up() {
    let (server, client) = Client::alone().await;
    let watch = client.watch(&key(1)).await;
    assert_eq!(subscribers(&server), 1);
    drop(client);
    until("it hangs up", || subscribers(&server) == 0).await;
    drop(watch);
}
