//! Stores by tokio-postgres, of its configuration or of a pool.

use std::error::Error as _;

use bb8_postgres::PostgresConnectionManager;
use bb8_postgres::bb8;
use idem_harness::PostgresServer;
use idem_runtime::credentials::Credentials;
use idem_tests::shop::assert_contains;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, NoTls};

use super::prelude::*;
use crate::transactions::clients::DeadpoolPostgres;

fn config(server: &PostgresServer) -> Config {
    server.url().parse().unwrap()
}

fn bb8_of_one(server: &PostgresServer) -> bb8::Pool<PostgresConnectionManager<NoTls>> {
    let manager = PostgresConnectionManager::new(config(server), NoTls);
    bb8::Pool::builder().max_size(1).build_unchecked(manager)
}

/// Otherwise bodies that hold the pool would wait for the store, which would wait for the pool.
#[tokio::test]
async fn a_store_of_a_pool_takes_none_of_its_connections() {
    let server = PostgresServer::start();
    let deadpool = DeadpoolPostgres::pool_of_one(&server.url());
    let bb8 = bb8_of_one(&server);
    let (_one, _other) = (deadpool.get().await.unwrap(), bb8.get().await.unwrap());
    let stores = [
        PostgresStore::connect(&deadpool).await.unwrap(),
        PostgresStore::connect(&bb8).await.unwrap(),
    ];
    stores[0].migrate().await.unwrap();
    let fixture = Fixture::on(&stores[0]);
    let answers = [
        fixture.pay("a").await.unwrap(),
        fixture.beside(&stores[1]).pay("a").await.unwrap(),
    ];
    assert_eq!(answers[0], answers[1]);
    assert_eq!(fixture.all_effects(), 1);
    assert_eq!((deadpool.status().size, bb8.state().connections), (1, 1));
}

#[tokio::test]
async fn credentials_beside_those_of_a_pool_are_refused() {
    let server = PostgresServer::start();
    let provider = || async { Ok::<_, std::io::Error>(Credentials::new("password-marker")) };
    let deadpool = DeadpoolPostgres::pool_of_one(&server.url());
    for builder in [
        PostgresStore::builder(&deadpool),
        PostgresStore::builder(&bb8_of_one(&server)),
    ] {
        let refused = builder.credentials(provider).connect().await.unwrap_err();
        let source = refused.source().unwrap();
        assert_contains(source, "a pool's credentials cannot be replaced");
        assert_says::<()>(Err(refused), Refused, &["connecting"]);
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_connect_is_reported() {
    let server = PostgresServer::start();
    let mut without_tls = config(&server);
    without_tls.ssl_mode(SslMode::Require);
    let mut of_nobody = config(&server);
    of_nobody.user("nobody").password("password-marker");
    let mut elsewhere = Config::new();
    elsewhere
        .host("127.0.0.1")
        .port(1)
        .user("app")
        .password("password-marker");
    for (config, kind, parts) in [
        (without_tls, Unavailable, ["connecting", "no TLS"]),
        (of_nobody, Refused, ["connecting", "PostgreSQL error 28"]),
        (elsewhere, Unavailable, ["connecting", "cannot be made"]),
        (Config::new(), Refused, ["connecting", "the address"]),
    ] {
        let refused = PostgresStore::connect((config, NoTls)).await;
        assert_says(refused, kind, &parts);
    }
}

/// The statement is sent again on a new one.
#[tokio::test]
async fn connections_that_were_cut_are_replaced() {
    let server = PostgresServer::start();
    let proxy = TcpProxy::start(server.addr());
    let config: Config = server.url_at(proxy.addr()).parse().unwrap();
    let store = PostgresStore::connect(config).await.unwrap();
    store.migrate().await.unwrap();
    claim_of(&store, 1).await.unwrap();
    proxy.cut();
    claim_of(&store, 2).await.unwrap();
    proxy.drop_next_reply_to("INSERT INTO");
    claim_of(&store, 3).await.unwrap();
    assert_eq!(proxy.stats().dropped_replies, 1);
}

/// A connection that the store gives up has a task of its own, which would wait for the reply of a silent server.
#[tokio::test]
async fn a_connection_without_a_reply_is_closed() {
    let server = PostgresServer::start();
    let proxy = TcpProxy::start(server.addr());
    let config: Config = server.url_at(proxy.addr()).parse().unwrap();
    let store = PostgresStore::builder(config).response_timeout(Duration::from_secs(1));
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    assert!(proxy.stats().live > 0);
    proxy.black_hole(true);
    claim(&store).await.unwrap_err();
    drop(store);
    until("each connection is closed", || proxy.stats().live == 0).await;
}
