//! `durability = replicated(n)`: claims and answers are acknowledged once they are on the replicas.

use idem_harness::ReplicaPair;
use idem_runtime::store::redis::Durability;
use idem_tests::claims::unhurried;
use idem_tests::shop::{HASTE, PATIENCE, hasty};

use crate::key;
use crate::prelude::*;

async fn shop(pair: &ReplicaPair) -> Shop {
    Shop::open_with(&pair.primary.url(), replicated, hasty).await
}

fn replicated(store: RedisStoreBuilder) -> RedisStoreBuilder {
    store
        .response_timeout(HASTE / 4)
        .durability(Durability::Replicated(1))
}

#[tokio::test]
async fn claims_and_answers_are_waited_for_and_replays_are_not() {
    let pair = ReplicaPair::start();
    // Without a time-out, after which a command would be sent again.
    let store = |store| replicated(store).response_timeout(PATIENCE);
    let shop = Shop::open_with(&pair.primary.url(), store, persistent).await;
    shop.pay("warm").await.unwrap();
    let mut monitor = pair.primary.monitor();
    let first = shop.pay("a").await;
    assert_eq!(monitor.names(), ["EVALSHA", "WAIT", "EVALSHA", "WAIT"]);
    assert_eq!(shop.pay("a").await, first);
    assert_eq!(monitor.names(), ["EVALSHA"]);
    let failed = shop.pay_by("b", async |_| Err(Failure::Down)).await;
    assert_eq!(failed, Err(Failure::Down));
    // A released key is free in any case, a lease later.
    let names = monitor.names();
    let waited = names.iter().filter(|name| *name == "WAIT");
    assert_eq!(waited.count(), 1, "{names:?}");
}

#[tokio::test]
async fn without_its_replica_nothing_is_granted_and_answers_are_replayed() {
    let pair = ReplicaPair::start();
    let shop = shop(&pair).await;
    let answer = shop.pay_while("a", || pair.replica.pause()).await;
    assert!(answer.is_ok());
    assert_eq!(
        (shop.events.count("unsaved"), shop.events.count("completed")),
        (1, 0)
    );
    // Replays do not wait for replicas; this one would wait in vain.
    assert_eq!(shop.pay("a").await, answer);
    assert_unavailable(shop.pay("b").await);
    shop.says_unavailable("0 of 1 replicas have it").await;
    assert_eq!(shop.runs(), 1);
    pair.replica.resume();
    happened(&shop.events, "completed", 1).await;
    pair.await_in_sync();
    assert_eq!(shop.pay("a").await, answer);
    // The claim has been released: the key is granted as soon as the replica is there.
    until("the claim is given back", || {
        let names = pair
            .primary
            .cli(&["KEYS", &format!("{}:shop.pay:*", shop.prefix())]);
        let state = |name| pair.primary.cli(&["GETRANGE", name, "1", "1"]);
        names.lines().any(|name| state(name) == "R")
    })
    .await;
    assert_eq!(shop.pay("b").await.unwrap().attempt, 1);
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_on_the_replica_is_lost() {
    let pair = ReplicaPair::start();
    let lease = Duration::from_secs(3);
    let shop = Shop::open_with(&pair.primary.url(), replicated, |engine| {
        // The replica may take a moment to return.
        engine.lease(lease).complete_deadline(lease * 5)
    })
    .await;
    let answer = shop
        .pay_by("a", async |context| {
            happened(&shop.events, "renewed", 1).await;
            pair.replica.pause();
            context.lease_lost().await;
            pair.replica.resume();
            Ok(())
        })
        .await;
    assert!(answer.is_ok());
    pair.await_in_sync();
    assert_eq!(shop.pay("a").await, answer);
}

/// A server that becomes a replica interrupts the `WAIT` with `UNBLOCKED`.
#[tokio::test]
async fn a_wait_that_a_demotion_interrupts_may_be_sent_again() {
    let ReplicaPair { primary, replica } = ReplicaPair::start();
    let store = RedisStore::builder(primary.url())
        .response_timeout(PATIENCE)
        .durability(Durability::Replicated(1));
    let store = store.connect().await.unwrap();
    let claim = async |number| {
        store
            .claim(&key(number), &asks(Owner::random()), &unhurried())
            .await
    };
    claim(0).await.unwrap();
    replica.pause();
    let (error, ()) = tokio::join!(claim(1), async {
        until("the claim waits", || {
            primary
                .cli(&["INFO", "clients"])
                .contains("blocked_clients:1")
        })
        .await;
        primary.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    replica.resume();
}

/// The primary is always available, and so is the process that renews.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_away_does_not_cost_leases_on_the_primary() {
    const BODIES: usize = 100;
    let ReplicaPair { primary, replica } = ReplicaPair::start();
    let shop = Shop::open_with(
        &primary.url(),
        |store| store.durability(Durability::Replicated(1)),
        |engine| persistent(engine).lease(Duration::from_secs(4)),
    )
    .await;
    let (go, _) = tokio::sync::watch::channel(());
    let bodies = (0..BODIES).map(|number| {
        let (shop, mut go) = (shop.clone(), go.subscribe());
        tokio::spawn(async move {
            let body = async |_| {
                go.changed().await.unwrap();
                Ok(())
            };
            shop.pay_by(&number.to_string(), body).await
        })
    });
    let bodies: Vec<_> = bodies.collect();
    until("all bodies run", || shop.runs() == BODIES).await;
    replica.pause();
    // Each is renewed on the primary only, three times in a lease.
    happened(&shop.events, "renewal failed", BODIES * 6).await;
    // A record whose ttl is far behind the longest was not renewed. All are read at one moment.
    let lives = "local lives = {} \
                 for at, name in ipairs(redis.call('KEYS', ARGV[1])) do \
                 lives[at] = redis.call('PTTL', name) end return lives";
    let lives = primary.cli(&["EVAL", lives, "0", &format!("{}:shop.pay:*", shop.prefix())]);
    let lives = lives.lines().map(|life| life.parse::<i64>().unwrap());
    let lives: Vec<_> = lives.collect();
    assert_eq!(lives.len(), BODIES);
    let longest = *lives.iter().max().unwrap();
    let lapsed = lives.iter().filter(|life| longest - **life > 4_000).count();
    replica.resume();
    go.send(()).unwrap();
    assert_eq!(lapsed, 0, "leases lapsed on the primary");
    for body in bodies {
        body.await.unwrap().unwrap();
    }
}
