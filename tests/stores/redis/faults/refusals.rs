//! A server that replies, and refuses to write.

use idem_harness::{ReplicaPair, RespConn};
use idem_runtime::key::KeyBuilder;
use idem_runtime::store::{Needs, Store as _};
use idem_tests::shop::assert_store_says;

use crate::prelude::*;

/// Leaves the server without memory, or removes its limit.
fn full(server: &RedisServer, is_full: bool) {
    let bytes = if is_full { "1" } else { "0" };
    server.cli(&["CONFIG", "SET", "maxmemory", bytes]);
}

#[tokio::test]
async fn a_full_memory_refuses_claims_and_nothing_else() {
    let (server, shop) = Shop::alone_and_hasty().await;
    let stored = shop.pay("a").await;
    let mut completed = None;
    let released = shop.pay_by("released", async |_| {
        completed = Some(shop.pay_while("b", || full(&server, true)).await);
        Err(Failure::Down)
    });
    let released = released.await;
    let runs = shop.runs();
    assert_unavailable(shop.pay("c").await);
    assert_store_says(
        &shop,
        StoreErrorKind::Full,
        "Redis is out of memory (`maxmemory`)",
    )
    .await;
    // A claim of a released key needs memory as well.
    assert_eq!(released, Err(Failure::Down));
    assert_eq!(shop.events.count("released"), 1);
    assert_unavailable(shop.pay("released").await);
    assert_store_says(&shop, StoreErrorKind::Full, "out of memory").await;
    assert_eq!(shop.pay("a").await, stored);
    assert_eq!(Some(shop.pay("b").await), completed);
    assert_eq!(shop.events.count("unsaved"), 0);
    assert_eq!(shop.runs(), runs);
    full(&server, false);
    assert_eq!(shop.pay("c").await.unwrap().attempt, 1);
    assert_eq!(shop.pay("released").await.unwrap().attempt, 1);
}

#[tokio::test]
async fn a_renewal_needs_no_memory() {
    let server = RedisServer::start();
    let lease = Duration::from_secs(3);
    let settings = |engine| persistent(engine).lease(lease);
    let shop = Shop::open_with(&server.url(), patient, settings).await;
    let long = shop.pay_by("a", async |_| {
        full(&server, true);
        happened(&shop.events, "renewed", 2).await;
        Ok(())
    });
    let receipt = long.await.unwrap();
    assert_eq!(shop.events.count("renewal failed"), 0);
    assert_eq!(shop.pay("a").await, Ok(receipt));
}

#[tokio::test]
async fn a_replica_replays_and_sends_claims_to_the_primary() {
    let ReplicaPair { primary, replica } = ReplicaPair::start();
    let shop = Shop::open(&primary.url()).await;
    let answer = shop.pay("a").await;
    assert_eq!(primary.cli(&["WAIT", "1", "20000"]), "1");
    let beside = shop.beside_hasty(&replica.url()).await;
    assert_eq!(beside.events.count("warning: Redis role: replica"), 1);
    assert_eq!(beside.pay("a").await, answer);
    let refused = beside.pay("b").await;
    assert_unavailable(refused);
    beside
        .says_unavailable("a replica; connect to the primary")
        .await;
    assert_eq!(beside.runs(), 0);
    // A record that is absent here may exist on the primary.
    let mut request = asks(Owner::random());
    request.needs = Needs::Record;
    let store = RedisStore::connect(&replica.url()).await.unwrap();
    let digest = KeyBuilder::new("absent", 64).key(&1).unwrap();
    let key = RecordKey::new("absent".into(), Operation::new("absent"), digest);
    let absent = store.claim(&key, &request).await.unwrap_err();
    let said = absent.to_string();
    assert!(said.contains("a replica; connect to the primary"), "{said}");
}

#[tokio::test]
async fn a_primary_that_is_demoted_during_a_body_gets_the_answer_when_it_is_back() {
    let (server, shop) = Shop::alone_and_hasty().await;
    let stored = shop.pay("a").await;
    // No primary listens there, so the data stay.
    let demote = || server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let answer = shop.pay_while("b", demote).await;
    assert_eq!(shop.events.count("unsaved"), 1);
    assert_eq!(shop.pay("a").await, stored);
    assert_unavailable(shop.pay("c").await);
    shop.says_unavailable("a replica; connect to the primary")
        .await;
    server.cli(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    assert_unavailable(shop.pay("a").await);
    shop.says_unavailable("wait for the failover to finish")
        .await;
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    happened(&shop.events, "completed", 2).await;
    assert_eq!(shop.pay("b").await, answer);
    assert_eq!(shop.runs(), 2);
}

#[tokio::test]
async fn too_few_replicas_refuse_claims_and_completions_but_no_replay() {
    let (server, shop) = Shop::alone_and_hasty().await;
    let stored = shop.pay("a").await;
    let need = |replicas| server.cli(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    let answer = shop.pay_while("b", || need("1")).await;
    assert_eq!(shop.events.count("unsaved"), 1);
    assert_eq!(shop.pay("a").await, stored);
    assert_unavailable(shop.pay("c").await);
    shop.says_unavailable("too few replicas").await;
    need("0");
    happened(&shop.events, "completed", 2).await;
    assert_eq!(shop.pay("b").await, answer);
    assert_eq!(shop.runs(), 2);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_written_refuses_claims_but_no_replay() {
    let server = RedisServer::builder()
        .arg("--dbfilename", "snapshot")
        .start();
    let shop = Shop::open_hasty(&server.url()).await;
    let stored = shop.pay("a").await;
    // A directory has the name of the file.
    std::fs::create_dir(server.dir().join("snapshot")).unwrap();
    server.cli(&["CONFIG", "SET", "save", "3600 1"]);
    server.cli(&["BGSAVE"]);
    until("the snapshot has failed", || {
        let told = server.cli(&["INFO", "persistence"]);
        told.contains("rdb_last_bgsave_status:err")
    })
    .await;
    assert_unavailable(shop.pay("b").await);
    shop.says_unavailable("cannot write its snapshot").await;
    assert_eq!(shop.pay("a").await, stored);
    server.cli(&["CONFIG", "SET", "save", ""]);
    shop.pay("b").await.unwrap();
    assert_eq!(shop.runs(), 2);
}

#[tokio::test]
async fn a_server_busy_with_a_script_is_named_and_retried() {
    let server = RedisServer::builder().arg("--lua-time-limit", "20").start();
    let shop = Shop::open_hasty(&server.url()).await;
    let stored = shop.pay("a").await;
    let mut busy = server.connect();
    busy.send(&["EVAL", "while true do end", "0"]).unwrap();
    let mut other = RespConn::open(server.addr()).unwrap();
    until("the script is slow", || {
        let reply = other.command(&["PING"]).unwrap();
        reply
            .as_error()
            .is_some_and(|text| text.starts_with("BUSY"))
    })
    .await;
    assert_unavailable(shop.pay("a").await);
    shop.says_unavailable("somebody's long script").await;
    assert_eq!(
        other.command(&["SCRIPT", "KILL"]).unwrap().to_string(),
        "OK"
    );
    assert!(matches!(busy.read().unwrap(), Reply::Error(_)));
    assert_eq!(shop.pay("a").await, stored);
}

async fn stored_once_there_is_room_again(server: &RedisServer) {
    let shop = Shop::open_hasty(&server.url()).await;
    let stored = shop.pay("a").await;
    let mut only = server.connect();
    let mut limit = |clients| {
        let reply = only.command(&["CONFIG", "SET", "maxclients", clients]);
        assert_eq!(reply.unwrap().to_string(), "OK");
        only.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    };
    let answer = shop.pay_while("b", || limit("1")).await;
    assert_eq!(shop.events.count("unsaved"), 1);
    assert_unavailable(shop.pay("c").await);
    shop.says_unavailable("(`maxclients`); ").await;
    limit("100");
    happened(&shop.events, "completed", 2).await;
    assert_eq!(shop.pay("a").await, stored);
    assert_eq!(shop.pay("b").await, answer);
    assert_eq!(shop.runs(), 2);
}

#[tokio::test]
async fn a_server_that_takes_no_more_connections_gets_the_answer_later() {
    stored_once_there_is_room_again(&RedisServer::start()).await;
}

#[tokio::test]
async fn a_store_is_told_that_the_server_has_no_place_and_connects_when_clients_leave() {
    let of = RedisServer::builder;
    for server in [of().start(), of().password(PASSWORD).start()] {
        let (mut operator, others) = (server.connect(), [(); 9].map(|()| server.connect()));
        let limited = operator.command(&["CONFIG", "SET", "maxclients", "10"]);
        assert_eq!(limited.unwrap().to_string(), "OK");
        let refused = RedisStore::connect(&server.url()).await.unwrap_err();
        let said = refused.to_string();
        assert!(
            said.contains("takes no more connections (`maxclients`)"),
            "{said}"
        );
        drop(others);
        until("the clients have left", || {
            let clients = operator.command(&["INFO", "clients"]).unwrap();
            String::from_utf8_lossy(clients.as_bytes().unwrap()).contains("connected_clients:1\r")
        })
        .await;
        let shop = Shop::open(&server.url()).await;
        assert_eq!(shop.pay("a").await, shop.pay("a").await);
        assert_eq!(shop.runs(), 1);
    }
}

#[tokio::test]
async fn a_server_that_refuses_logins_gets_the_answer_later() {
    let server = RedisServer::builder().password(PASSWORD).start();
    stored_once_there_is_room_again(&server).await;
}
