//! Connections that break or fall silent during a watch.

use std::time::Duration;

use idem_harness::{RedisServer, TcpProxy};
use idem_runtime::store::StoreErrorKind;
use idem_runtime::store::author::Watch;
use idem_tests::shop::proxied;

use super::client::{Client, key, told, untold};

/// A watch through a proxy, and a client with a direct connection.
async fn behind_a_proxy() -> (RedisServer, TcpProxy, Client, Client, Watch) {
    let (server, proxy) = proxied();
    let (mine, other) = (
        Client::hasty(&proxy.url()).await,
        Client::of(&server.url()).await,
    );
    let watch = mine.watch_in_the_end(&key(1)).await;
    (server, proxy, mine, other, watch)
}

fn kill_subscribers(server: &RedisServer) -> String {
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"])
}

#[tokio::test]
async fn a_killed_connection_is_made_again_and_its_watchers_are_woken() {
    let (server, client) = Client::alone().await;
    let mut watches = Vec::new();
    for number in [1, 1, 2, 3] {
        watches.push(client.watch(&key(number)).await);
    }
    for _ in 0..3 {
        assert_eq!(kill_subscribers(&server), "1");
        for watch in &mut watches {
            told(watch).await;
        }
        assert!(watches.iter_mut().all(untold), "once each");
    }
    client.pass(&key(2)).await;
    told(&mut watches[2]).await;
}

#[tokio::test]
async fn a_key_without_watchers_is_not_subscribed_again() {
    let (server, client) = Client::alone().await;
    let mut stays = client.watch(&key(1)).await;
    let leaves = client.watch(&key(2)).await;
    let mut monitor = server.monitor();
    kill_subscribers(&server);
    drop(leaves);
    told(&mut stays).await;
    let again = monitor.commands().into_iter();
    let again = again.filter(|command| command.name == "SUBSCRIBE");
    let again: Vec<_> = again.map(|command| command.args.concat()).collect();
    assert!(again.contains(&key(1).name()));
    // The other key may or may not be unsubscribed by then; in the end it is.
    let mut admin = server.connect();
    idem_tests::shop::until("only one is heard", || {
        let heard = admin.command(&["PUBSUB", "CHANNELS"]).unwrap();
        heard.to_string() == key(1).name()
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_down_fails_watches_and_notifies_when_it_is_up() {
    let (server, client) = Client::alone().await;
    let mut watch = client.watch(&key(1)).await;
    server.kill();
    let error = client.try_watch(&key(2)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    for _ in 0..100 {
        client.try_watch(&key(2)).await.unwrap_err();
    }
    server.restart();
    told(&mut watch).await;
    let mut other = client.watch_in_the_end(&key(2)).await;
    Client::of(&server.url()).await.pass(&key(2)).await;
    told(&mut other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_replaced_when_a_message_is_missed() {
    let (_server, proxy, _mine, other, mut watch) = behind_a_proxy().await;
    proxy.black_hole(true);
    other.pass(&key(1)).await;
    let before = proxy.stats().connections;
    watch.missed();
    tokio::task::block_in_place(|| proxy.wait_until(|seen| seen.connections > before));
    assert!(untold(&mut watch), "nothing comes out of a black hole");
    proxy.black_hole(false);
    told(&mut watch).await;
    other.pass(&key(1)).await;
    told(&mut watch).await;
}

/// Under load a poll may read a finished record before its notification.
#[tokio::test]
async fn a_connection_whose_message_is_late_is_kept() {
    let (_server, proxy, mine, other, mut watch) = behind_a_proxy().await;
    let before = proxy.stats().connections;
    proxy.delay(Duration::from_millis(200));
    for _ in 0..2 {
        other.pass(&key(1)).await;
        watch.missed();
        told(&mut watch).await;
        // The confirmation arrives after the replies to all commands that the report caused.
        drop(mine.watch_in_the_end(&key(2)).await);
    }
    assert_eq!(proxy.stats().connections, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_is_found_while_nothing_happens() {
    let (_server, proxy, mine, _other, mut watch) = behind_a_proxy().await;
    let before = proxy.stats().connections;
    proxy.black_hole(true);
    // No command is pending. The connection is checked with a `PING`, which is not answered.
    tokio::task::block_in_place(|| proxy.wait_until(|seen| seen.connections > before));
    // A watch that begins then does not wait for long.
    let error = mine.try_watch(&key(2)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    proxy.black_hole(false);
    told(&mut watch).await;
}

#[tokio::test]
async fn a_thousand_watchers_that_miss_a_message_cost_one_connection() {
    let (_server, proxy) = proxied();
    let client = Client::of(&proxy.url()).await;
    let mut watch = client.watch(&key(1)).await;
    let before = proxy.stats().connections;
    for _ in 0..1_000 {
        watch.missed();
    }
    told(&mut watch).await;
    for _ in 0..1_000 {
        watch.missed();
        drop(client.watch(&key(2)).await);
    }
    assert_eq!(proxy.stats().connections, before + 1);
}

#[tokio::test]
async fn a_claim_is_marked_while_the_subscription_is_not_confirmed_yet() {
    let (server, proxy) = proxied();
    let (mine, other) = (
        Client::of(&proxy.url()).await,
        Client::of(&server.url()).await,
    );
    let _connected = mine.watch(&key(2)).await;
    let _claim = other.take(&key(1)).await;
    // No further reply arrives during this test.
    proxy.delay(Duration::from_hours(1));
    let waiting = tokio::spawn(async move { mine.try_watch(&key(1)).await });
    let mut admin = server.connect();
    idem_tests::shop::until("the claim is marked", || {
        let state = admin.command(&["GETRANGE", &key(1).name(), "0", "1"]);
        state.unwrap().to_string() == "2W"
    })
    .await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
}
