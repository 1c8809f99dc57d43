//! Schedules from a code review, not covered by other tests.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test panics when something is wrong"
)]

#[path = "review_redis/herd.rs"]
mod herd;
#[path = "review_redis/messages.rs"]
mod messages;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_harness::{
    ClusterSetup, Edition, Partition, RedisServer, ReplicaPair, SentinelSetup, TcpProxy,
};
use idem_runtime::store::redis::{Durability, RedisStore};
use idem_runtime::store::{
    AnswerTypes, ClaimReply, ClaimRequest, Needs, Owner, RecordKey, Remains, Store, StoreErrorKind,
};
use idem_runtime::{Fingerprint, KeyBuilder, Operation};
use idem_tests::shop::{PATIENCE, Shop, connect, persistent, until};

const REPLY: Duration = Duration::from_secs(10);

fn key(number: usize) -> RecordKey {
    let digest = KeyBuilder::new("shop.ask", 64).key(&number).unwrap();
    RecordKey::new("idem".into(), Operation::new("shop.ask"), digest)
}

fn request(lease: Duration, retain: Duration) -> ClaimRequest {
    ClaimRequest {
        owner: Owner::random(),
        fingerprint: Fingerprint::NONE,
        types: AnswerTypes::UNKNOWN,
        any_type: false,
        lease,
        retain,
        max_attempts: None,
        reconciles: false,
        needs: Needs::Nothing,
        dated: true,
    }
}

/// A server that becomes a replica answers the `WAIT` that it interrupts with `UNBLOCKED`.
#[tokio::test]
async fn a_wait_that_a_demotion_interrupts_may_be_sent_again() {
    let ReplicaPair { primary, replica } = ReplicaPair::start();
    let store = RedisStore::builder(primary.url())
        .response_timeout(REPLY)
        .durability(Durability::Replicated(1));
    let store = store.connect().await.unwrap();
    let long = Duration::from_mins(1);
    store
        .claim(&key(0), &request(long, long * 2))
        .await
        .unwrap();
    replica.pause();
    let (name, other) = (key(1), request(long, long * 2));
    let (error, ()) = tokio::join!(store.claim(&name, &other), async {
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

/// A record at the very end of its life.
async fn releases_leave_nothing_immortal(server: RedisServer) {
    let store = connect(server.url()).await.unwrap();
    for number in 0..400 {
        let retain = Duration::from_millis(8);
        let claim = request(Duration::from_millis(4), retain);
        let key = key(number);
        let began = Instant::now();
        store.claim(&key, &claim).await.unwrap();
        let late = Duration::from_micros(7_500 + 5 * u64::try_from(number).unwrap());
        while began.elapsed() < late {
            std::hint::spin_loop();
        }
        let _ = store.release(&key, &claim.owner, Remains::Request).await;
    }
    let names = server.cli(&["KEYS", "idem:*"]);
    let immortal: Vec<_> = names
        .split_whitespace()
        .filter(|name| server.cli(&["PTTL", name]) == "-1")
        .collect();
    assert!(
        immortal.is_empty(),
        "{} records live for ever",
        immortal.len()
    );
}

#[tokio::test]
async fn releases_leave_nothing_immortal_on_redis_6() {
    releases_leave_nothing_immortal(RedisServer::builder().version(Edition::Redis62).start()).await;
}

#[tokio::test]
async fn releases_leave_nothing_immortal_on_redis_7() {
    releases_leave_nothing_immortal(RedisServer::start()).await;
}

/// The primary is always available, and so is the process that renews.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_away_does_not_cost_leases_on_the_primary() {
    const BODIES: usize = 100;
    let ReplicaPair { primary, replica } = ReplicaPair::start();
    let lease = Duration::from_secs(4);
    let shop = Shop::open_with(
        &primary.url(),
        |store| store.durability(Durability::Replicated(1)),
        |engine| persistent(engine).lease(lease),
    )
    .await;
    let go = Arc::new(tokio::sync::Notify::new());
    let bodies: Vec<_> = (0..BODIES)
        .map(|number| {
            let (shop, go) = (shop.clone(), Arc::clone(&go));
            tokio::spawn(async move {
                shop.pay_by(&number.to_string(), async |_| {
                    go.notified().await;
                    Ok(())
                })
                .await
            })
        })
        .collect();
    until("all bodies run", || shop.runs() == BODIES).await;
    replica.pause();
    let began = Instant::now();
    until("two leases are over", || began.elapsed() > lease * 2).await;
    // A record whose ttl is far behind the longest was not renewed. All are read at one moment.
    let lives = "local lives = {} \
                 for at, name in ipairs(redis.call('KEYS', ARGV[1])) do \
                 lives[at] = redis.call('PTTL', name) end return lives";
    let lives = primary.cli(&["EVAL", lives, "0", &format!("{}:shop.pay:*", shop.prefix())]);
    let lives: Vec<i64> = lives
        .split_whitespace()
        .map(|life| life.parse().unwrap())
        .collect();
    assert_eq!(lives.len(), BODIES);
    let longest = *lives.iter().max().unwrap();
    let lapsed = lives.iter().filter(|life| longest - **life > 4_000).count();
    eprintln!(
        "{lapsed} of {BODIES} leases lapsed on the primary; renewal failed {} lost {}",
        shop.events.count("renewal failed"),
        shop.events.count("lease lost")
    );
    replica.resume();
    go.notify_waiters();
    assert_eq!(lapsed, 0);
    for body in bodies {
        body.await.unwrap().unwrap();
    }
}

/// A client that could not reach the sentinels during the failover, and reaches them again.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_no_sentinel_could_tell_of_is_noticed() {
    let group = SentinelSetup::builder().partitions().start();
    let proxies: Vec<_> = group
        .sentinel_addrs()
        .into_iter()
        .map(TcpProxy::start)
        .collect();
    let url = url_of(proxies.iter().map(TcpProxy::addr));
    let shop = Shop::open_with(&url, |store| store, |engine| engine).await;
    shop.pay("warm").await.unwrap();
    let old = group.primary();
    for proxy in &proxies {
        proxy.black_hole(true);
    }
    group.isolate(old, Partition::Silent);
    let new = group.await_new_primary(old);
    group.await_settled();
    for proxy in &proxies {
        proxy.black_hole(false);
    }
    let began = Instant::now();
    let mut number = 0;
    loop {
        number += 1;
        let _ = shop.pay(&number.to_string()).await;
        if records(new, &shop) > 1 {
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{number} claims went to a server that is no primary any more"
        );
    }
    eprintln!("noticed after {:?}", began.elapsed());
}

/// A node that is cut off from the others reports an error; the others report the new owner of its keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_node_that_is_cut_off_is_not_believed() {
    let cluster = ClusterSetup::start();
    // Like a node that is cut off: it has slots and a map, but no other node.
    let lonely = RedisServer::builder()
        .args(["--cluster-enabled", "yes"])
        .start();
    lonely.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16382"]);
    // It is the nearest node.
    let far = TcpProxy::start(cluster.addrs()[0]);
    far.delay(Duration::from_millis(20));
    let url = format!("redis+cluster://{},{}", lonely.addr(), far.addr());
    let shop = Shop::open_with(&url, |store| store, |engine| engine).await;
    shop.pay("a").await.unwrap();
}

/// Number of this shop's records on a server.
fn records(server: &RedisServer, shop: &Shop) -> usize {
    let names = server.cli(&["KEYS", &format!("{}:shop.pay:*", shop.prefix())]);
    names.split_whitespace().count()
}

fn url_of(sentinels: impl IntoIterator<Item = SocketAddr>) -> String {
    let hosts: Vec<_> = sentinels.into_iter().map(|at| at.to_string()).collect();
    format!(
        "redis+sentinel://{}/{}",
        hosts.join(","),
        SentinelSetup::NAME
    )
}

/// The runtime on which the store was created ends, while another continues.
#[test]
fn a_failover_is_told_after_the_first_runtime_has_ended() {
    let group = SentinelSetup::builder().partitions().start();
    let url = url_of(group.sentinel_addrs());
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (first, second) = (runtime(), runtime());
    let shop = first.block_on(Shop::open_with(&url, |store| store, |engine| engine));
    let old = group.primary();
    old.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    second.block_on(shop.pay("warm")).unwrap();
    drop(first);
    second.block_on(shop.pay("warmer")).unwrap();
    group.isolate(old, Partition::Silent);
    let new = group.await_new_primary(old);
    group.await_settled();
    let began = Instant::now();
    second.block_on(until("a claim reaches the new primary", || {
        let number = began.elapsed().as_micros().to_string();
        let caller = shop.clone();
        second.spawn(async move { caller.pay(&number).await });
        records(new, &shop) > 2
    }));
    eprintln!("noticed after {:?}", began.elapsed());
}

/// Its time is as old as the reply that carried it, and the retention of an answer is computed from it.
#[tokio::test]
async fn a_late_reply_does_not_tell_the_time_of_claims() {
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.addr());
    let store = RedisStore::builder(proxy.url()).response_timeout(REPLY);
    let store = store.connect().await.unwrap();
    let minute = Duration::from_mins(1);
    let claim = async |number| {
        let request = ClaimRequest {
            dated: false,
            ..request(minute, minute * 2)
        };
        match store.claim(&key(number), &request).await.unwrap() {
            ClaimReply::Granted { fence, .. } => fence.get(),
            other => panic!("{other:?}"),
        }
    };
    proxy.delay(Duration::from_secs(2));
    claim(0).await;
    proxy.delay(Duration::ZERO);
    let time = server.cli(&["TIME"]);
    let (seconds, _) = time.split_once('\n').unwrap();
    let now = seconds.trim().parse::<u64>().unwrap() * 1_000_000;
    let fence = claim(1).await;
    assert!(fence >= now, "{} ms behind", (now - fence) / 1_000);
}
