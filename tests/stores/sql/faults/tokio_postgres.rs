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

/// Statements without names, and with them.
const NAMED: [bool; 2] = [false, true];

fn config(server: &PostgresServer) -> Config {
    server.url().parse().unwrap()
}

fn bb8_of_one(server: &PostgresServer) -> bb8::Pool<PostgresConnectionManager<NoTls>> {
    let manager = PostgresConnectionManager::new(config(server), NoTls);
    bb8::Pool::builder().max_size(1).build_unchecked(manager)
}

/// Otherwise the store and bodies with connections wait for each other.
#[tokio::test]
async fn a_store_of_a_pool_takes_none_of_its_connections() {
    let server = PostgresServer::start();
    let deadpool = DeadpoolPostgres::pool_of_one(&server.url());
    let bb8 = bb8_of_one(&server);
    let (_one, _other) = (deadpool.get().await.unwrap(), bb8.get().await.unwrap());
    let mut stores = Vec::new();
    for named in NAMED {
        for of_pool in [
            PostgresStore::builder(&deadpool),
            PostgresStore::builder(&bb8),
        ] {
            let store = of_pool.named_statements(named).connect();
            stores.push(store.await.unwrap());
        }
    }
    stores[0].migrate().await.unwrap();
    let fixture = Fixture::on(&stores[0]);
    let mut answers = Vec::new();
    for store in &stores {
        answers.push(fixture.beside(store).pay("a").await.unwrap());
    }
    assert_eq!(answers, [&*answers[0]; 4]);
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
    for named in NAMED {
        let proxy = TcpProxy::start(server.addr());
        let config: Config = server.url_at(proxy.addr()).parse().unwrap();
        let store = PostgresStore::builder(config).named_statements(named);
        let store = store.connect().await.unwrap();
        store.migrate().await.unwrap();
        let claim = async |number: u64| {
            let claimed = claim_of(&store, number + 10 * u64::from(named)).await;
            assert!(
                matches!(claimed, Ok(ClaimReply::Granted { .. })),
                "{claimed:?}"
            );
        };
        claim(1).await;
        proxy.cut();
        claim(2).await;
        // An argument of the claim: a named statement is sent without its text.
        proxy.drop_next_reply_to("elsewhere");
        claim(3).await;
        assert_eq!(proxy.stats().dropped_replies, 1);
    }
}

/// In the server's log a statement without a name is `<unnamed>`.
#[tokio::test]
async fn a_statement_with_a_name_is_prepared_once() {
    let server = Postgres::serve(Postgres::LOGS);
    let url = server.url();
    open::<Postgres>(&url).await;
    let config: Config = url.parse().unwrap();
    let deadpool = DeadpoolPostgres::pool_of_one(&url);
    let manager = PostgresConnectionManager::new(config.clone(), NoTls);
    let bb8 = bb8::Pool::builder().build_unchecked(manager);
    let mut number = 0;
    for (store, is_named) in [
        (PostgresStore::builder(&url), true),
        (PostgresStore::builder(&url).named_statements(false), false),
        (PostgresStore::builder(config.clone()), false),
        (PostgresStore::builder(&deadpool), false),
        (PostgresStore::builder(&bb8), false),
        (PostgresStore::builder(config).named_statements(true), true),
        (
            PostgresStore::builder(&deadpool).named_statements(true),
            true,
        ),
        (PostgresStore::builder(&bb8).named_statements(true), true),
    ] {
        let store = store.connect().await.unwrap();
        let before = Postgres::statements(&server).len();
        for _ in 0..3 {
            number += 1;
            claim_of(&store, number).await.unwrap();
        }
        let mut names = Vec::new();
        let all = Postgres::statements(&server);
        for line in &all[before..] {
            let executed = line.split_once(" execute ");
            names.extend(executed.and_then(|(_, statement)| statement.split(':').next()));
        }
        assert_eq!(names, [names[0]; 3], "{store:?}");
        assert_eq!(names[0] != "<unnamed>", is_named, "{names:?} {store:?}");
    }
}

/// The server refuses prepared statements whose columns changed their type (0A000).
#[tokio::test]
async fn a_store_goes_on_after_a_change_of_its_table() {
    const STALE: &str = "cached plan must not change result type";
    let server = PostgresServer::start();
    let url = server.url();
    open::<Postgres>(&url).await;
    let by_tokio_postgres = |named| PostgresStore::builder(config(&server)).named_statements(named);
    let mut refusals = Vec::new();
    for (number, (store, column)) in [
        (PostgresStore::builder(&url), "varchar"),
        (by_tokio_postgres(true), "text"),
        (by_tokio_postgres(false), "varchar"),
    ]
    .into_iter()
    .enumerate()
    {
        let store = store.connect().await.unwrap();
        let mut claims = Vec::new();
        for round in 0..3 {
            if round == 1 {
                // As a migration may.
                server.execute("ALTER TABLE idem_records ADD COLUMN IF NOT EXISTS extra bigint");
            } else if round == 2 {
                server.execute(&format!(
                    "ALTER TABLE idem_records ALTER COLUMN state TYPE {column}"
                ));
            }
            for key in [number as u64, 10 + 3 * number as u64 + round] {
                claims.push(match claim_of(&store, key).await.unwrap() {
                    ClaimReply::Granted { .. } => "granted",
                    ClaimReply::Running { .. } => "running",
                    other => panic!("{other:?}"),
                });
            }
        }
        let [first, rest @ ..] = &claims[..] else {
            panic!("nothing is claimed");
        };
        assert_eq!(*first, "granted");
        assert_eq!(
            rest,
            ["granted", "running", "granted", "running", "granted"]
        );
        refusals.push(server.log().matches(STALE).count());
    }
    assert_eq!(refusals, [1, 2, 2]);
}

/// An abandoned connection has its own task. It would wait for a silent server.
#[tokio::test]
async fn a_connection_without_a_reply_is_closed() {
    let server = PostgresServer::start();
    for named in NAMED {
        let proxy = TcpProxy::start(server.addr());
        let config: Config = server.url_at(proxy.addr()).parse().unwrap();
        open::<Postgres>(&server.url()).await;
        let connect = || {
            let store = PostgresStore::builder(config.clone()).named_statements(named);
            store.response_timeout(Duration::from_secs(1)).connect()
        };
        // A busy machine may delay the first replies.
        let claims = async {
            loop {
                if let Ok(store) = connect().await
                    && claim(&store).await.is_ok()
                {
                    break store;
                }
            }
        };
        let store = patiently("a claim", claims).await;
        assert!(proxy.stats().live > 0);
        proxy.black_hole(true);
        claim(&store).await.unwrap_err();
        drop(store);
        until("each connection is closed", || proxy.stats().live == 0).await;
    }
}
