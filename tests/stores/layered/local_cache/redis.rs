//! On Redis: the cost of a hit, and the delivery or loss of reset notifications.

use std::sync::Arc;
use std::time::Duration;

use idem_harness::RedisServer;
use idem_runtime::cache::LocalCache;
use idem_runtime::store::redis::RedisStore;
use idem_tests::shop::{connect, connected, patiently, proxied, until};

use super::fixture::Fixture;

/// No answer expires by its age.
fn lasting() -> LocalCache {
    LocalCache::new().max_age(Duration::from_hours(24))
}

async fn fixture(url: &str) -> Fixture {
    let store = Arc::new(connect(url).await.unwrap());
    Fixture::with(store, lasting(), idem_tests::shop::persistent).await
}

/// Two processes on one server.
async fn pair() -> (RedisServer, Fixture, Fixture) {
    let server = RedisServer::start();
    let one = fixture(&server.url()).await;
    let other = fixture(&server.url()).await.sharing(&one);
    (server, one, other)
}

/// Waits for this many invalidations more than before.
async fn heard(fixture: &Fixture, before: u64, more: u64) {
    until("the reset is heard of", || {
        fixture.stats().invalidations >= before + more
    })
    .await;
}

/// Puts the answer of a key into both caches.
pub(crate) async fn known_to_both(one: &Fixture, other: &Fixture, key: &str) -> u32 {
    let run = one.pay(key).await.unwrap();
    one.is_local(key, run).await;
    other.is_asked(key, run).await;
    other.is_local(key, run).await;
    run
}

/// Resets an answer cached by both, and waits until both are notified.
pub(crate) async fn taken_back(one: &Fixture, other: &Fixture, key: &str) {
    let run = known_to_both(one, other, key).await;
    let invalidations = |fixture: &Fixture| fixture.stats().invalidations;
    let before = (invalidations(one), invalidations(other));
    one.reset(key).await;
    // The reset itself is one, and its notification, which comes back, is another.
    heard(one, before.0, 2).await;
    heard(other, before.1, 1).await;
    assert_eq!(other.pay(key).await, Ok(run + 1));
    one.is_asked(key, run + 1).await;
    one.is_local(key, run + 1).await;
    other.is_local(key, run + 1).await;
}

#[tokio::test]
async fn a_resolution_is_no_more_than_one_message() {
    let (server, one, other) = pair().await;
    known_to_both(&one, &other, "a").await;
    let mut monitor = server.monitor();
    one.reset("a").await;
    let published = monitor.commands().into_iter().filter(|command| {
        command.is_from_script() && command.args.first().is_some_and(|at| at == "idem:resolved")
    });
    let published: Vec<_> = published.collect();
    assert_eq!(published.len(), 1, "{published:?}");
    assert!(published[0].args[1].starts_with("idem:fixture.pay:"));
}

#[tokio::test]
async fn foreign_messages_are_ignored() {
    let (server, one, other) = pair().await;
    let run = known_to_both(&one, &other, "a").await;
    known_to_both(&one, &other, "b").await;
    let name = async |key| format!("idem:fixture.pay:{}", one.entry(key).await.key());
    let (a, b) = (name("a").await, name("b").await);
    for word in [
        "",
        "idem",
        "idem:",
        "idem:resolved",
        "idem:fixture.pay:short",
        &a.replacen("idem:", "other:", 1),
        &a.replacen("idem:", "idem2:", 1),
        "\u{fffd}",
    ] {
        server.cli(&["PUBLISH", "idem:resolved", word]);
    }
    // A valid message follows all of them.
    server.cli(&["PUBLISH", "idem:resolved", &b]);
    let heard = async {
        let asked = async || {
            let local = one.locals();
            one.pay("b").await.unwrap();
            one.locals() == local
        };
        while !asked().await {
            tokio::task::yield_now().await;
        }
    };
    patiently("it is heard of", heard).await;
    assert!(one.stats().is_open);
    one.is_local("a", run).await;
}

/// Without the connection no answer is served that may have been reset.
#[tokio::test]
async fn a_connection_that_is_killed_closes_the_cache_until_there_is_another() {
    let (server, one, other) = pair().await;
    let run = known_to_both(&one, &other, "a").await;
    // The first read opens the connection for reads.
    drop(one.entry("a").await);
    let mut admin = server.connect();
    let mut ask = |command: &[&str]| {
        let reply = admin.command(command).unwrap();
        assert_eq!(reply.as_error(), None);
        reply.to_string()
    };
    // Leaves no room for another connection.
    let open = ask(&["CLIENT", "LIST"]).lines().count();
    let most = (open - 2).to_string();
    ask(&["CONFIG", "SET", "maxclients", &most]);
    assert_eq!(ask(&["CLIENT", "KILL", "TYPE", "pubsub"]), "2");
    for fixture in [&one, &other] {
        until("the cache closes", || !fixture.stats().is_open).await;
        assert_eq!(fixture.stats().entries, 0);
        fixture.is_asked("a", run).await;
        fixture.is_asked("a", run).await;
    }
    // No fixture is notified of this reset.
    one.reset("a").await;
    assert_eq!(other.pay("a").await, Ok(run + 1));
    assert!(!other.stats().is_open);
    ask(&["CONFIG", "SET", "maxclients", "1000"]);
    for fixture in [&one, &other] {
        until("the cache opens", || fixture.stats().is_open).await;
    }
    taken_back(&one, &other, "b").await;
}

/// A dead connection looks like one without traffic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_falls_silent_is_noticed_soon() {
    let (server, proxy) = proxied();
    let hasty = |url: String| RedisStore::builder(url).response_timeout(Duration::from_secs(2));
    let store = Arc::new(connected(hasty(proxy.url())).await);
    let behind = Fixture::with(store, lasting(), idem_tests::shop::persistent).await;
    let other = fixture(&server.url()).await.sharing(&behind);
    let run = known_to_both(&other, &behind, "a").await;
    proxy.black_hole(true);
    other.reset("a").await;
    assert_eq!(other.pay("a").await, Ok(run + 1));
    // It is not notified, and answers from its cache for a while.
    until("the silence is noticed", || !behind.stats().is_open).await;
    proxy.black_hole(false);
    assert_eq!(behind.pay("a").await, Ok(run + 1));
    until("the cache opens", || behind.stats().is_open).await;
    taken_back(&other, &behind, "b").await;
}

#[tokio::test]
async fn the_connection_goes_with_its_engine() {
    let server = RedisServer::start();
    let subscribers = || {
        let list = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.lines().filter(|line| !line.is_empty()).count()
    };
    let store = connect(server.url()).await.unwrap();
    let fixture = Fixture::with(Arc::new(store.clone()), lasting(), |engine| engine).await;
    assert_eq!(subscribers(), 1);
    drop(fixture);
    until("its connection is closed", || subscribers() == 0).await;
    drop(store);
}
