//! Too few connections: of the store, of the server, of the application.

use idem_runtime::store::sql::SqlStoreBuilder;
use idem_tests::shop::Failure;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection};
use tokio::sync::Barrier;

use crate::prelude::*;

on_each_database!(
    one_connection_serves_two_hundred_calls,
    a_wait_for_a_connection_reports_their_number;
    a_server_without_connections_left_is_reported,
);

async fn one_connection_serves_two_hundred_calls<B: Kind>() {
    let test_database = B::test_database();
    let store = open_with::<B>(&test_database.url, |store| store.connections(1)).await;
    let fixture = Fixture::on(&store);
    let mut tasks = JoinSet::new();
    for number in 0..200 {
        let fixture = fixture.clone();
        let key = format!("{}", number % 100);
        tasks.spawn(async move {
            loop {
                match fixture.pay(&key).await {
                    Ok(_) => return,
                    Err(Failure::Idem(error)) => assert!(error.is_retryable(), "{error}"),
                    Err(other) => panic!("{other:?}"),
                }
            }
        });
    }
    tasks.join_all().await;
    for number in 0..100 {
        assert_eq!(fixture.effects(&number.to_string()), 1);
    }
}

async fn a_wait_for_a_connection_reports_their_number<B: Kind>() {
    let test_database = B::test_database();
    let soon = Duration::from_millis(700);
    let store = open_hasty::<B>(&test_database.url, soon, |store| store.connections(1)).await;
    let held = B::hold(&test_database.url).await;
    let parts = [
        "a claim",
        "700ms",
        "1 of 1 connections in use",
        "another transaction",
    ];
    assert_says(claim(&store).await, Unavailable, &parts);
    drop(held);
    Fixture::on(&store).pay("a").await.unwrap();
}

async fn a_server_without_connections_left_is_reported<B: Server>() {
    let server = B::serve(&[("max_connections", "12")]);
    let url = server.password_url();
    let store = open::<B>(&url).await;
    let fixture = Fixture::on(&store);
    let first = fixture.pay("a").await.unwrap();
    let mut others = Vec::new();
    while let Some(other) = B::connect(&url).await {
        others.push(other);
    }
    let late = SqlStore::<B>::connect(&url).await;
    assert_says(late, Unavailable, &["connecting", "no connection left"]);
    // The store keeps its own connection.
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let fixture = fixture.clone();
        tasks.spawn(async move { fixture.pay(&format!("many {number}")).await });
    }
    for outcome in tasks.join_all().await {
        outcome.unwrap();
    }
    assert_eq!(fixture.all_effects(), 51);
    drop(others);
    until("they are gone", || {
        tokio::task::block_in_place(|| server.try_execute("SELECT 1").is_ok())
    })
    .await;
    open::<B>(&url).await;
}

/// Each body holds a connection of a pool of two, and all bodies run concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_applications_pool_may_run_dry() {
    let test_database = Postgres::test_database();
    let pool = PgPoolOptions::new().max_connections(2);
    let pool = pool.connect(&test_database.url).await.unwrap();
    let store = PostgresStore::connect(&pool).await.unwrap();
    store.migrate().await.unwrap();
    let fixture = Fixture::on(&store);
    let both = std::sync::Arc::new(Barrier::new(2));
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let (fixture, pool, both) = (fixture.clone(), pool.clone(), both.clone());
        tasks.spawn(async move {
            let body = async |_| {
                let conn = pool.acquire().await.unwrap();
                both.wait().await;
                // The bodies hold the whole pool now; the inner call must succeed without it.
                fixture.pay(&format!("inner {number}")).await?;
                drop(conn);
                Ok(())
            };
            fixture
                .pay_by(&format!("outer {number}"), body)
                .await
                .unwrap()
        });
    }
    tasks.join_all().await;
    assert_eq!(fixture.all_effects(), 40);
}

/// An abandoned claim must not wait in the server, because there it blocks a backend until the transaction that holds
/// the key ends, and each retry blocks another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_claims_leave_no_backend_that_waits() {
    let test_database = Postgres::test_database();
    let calm = Engine::new(open::<Postgres>(&test_database.url).await);
    let mut holder = PgConnection::connect(&test_database.url).await.unwrap();
    let mut tx = holder.begin().await.unwrap();
    let held = calm.operation("orders.create").key("order-7");
    let held: Result<u32, Error> = held.in_tx(&mut tx).run(async |_, _| Ok(1)).await;
    assert_eq!(held.unwrap(), 1);
    // The deadline leaves time for more than one claim.
    let hasty = |store: SqlStoreBuilder<_>| store.response_timeout(Duration::from_secs(2));
    let store = open_with::<Postgres>(&test_database.url, hasty).await;
    let engine = Engine::builder(store).claim_deadline(Duration::from_secs(5));
    let engine = engine.build().unwrap();
    let duplicate = engine.operation("orders.create").key("order-7");
    let duplicate: Result<u32, Error> = duplicate.run(|_| async { Ok(2) }).await;
    assert_eq!(duplicate.unwrap_err().kind(), &ErrorKind::StoreUnavailable);
    until_none(
        &test_database,
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    .await;
    tx.rollback().await.unwrap();
}

/// A session ended by the server is handled like any other lost session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_ended_for_being_idle_costs_no_call() {
    let test_database = Postgres::test_database();
    let name = test_database.sql("SELECT current_database()").await;
    // Longer than the pause between two statements on a busy machine.
    let setting = format!("ALTER DATABASE {name} SET idle_session_timeout = '2s'");
    test_database.sql(&setting).await;
    let engine = Engine::new(open::<Postgres>(&test_database.url).await);
    for key in ["a", "b"] {
        let call = engine.operation("orders.create").key(key);
        let answer: Result<u32, Error> = call.run(|_| async { Ok(1) }).await;
        answer.unwrap();
        until_none(
            &test_database,
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    }
}

/// Waits until a query returns a count of zero.
async fn until_none(test_database: &TestDatabase, count: &str) {
    let polling = async {
        while test_database.sql(count).await != "0" {
            sleep(Duration::from_millis(50)).await;
        }
    };
    patiently("the sessions are gone", polling).await;
}
