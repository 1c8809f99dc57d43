//! Too few connections: of the store, of the server, of the application.

use std::time::Duration;

use idem_runtime::store::StoreErrorKind::Unavailable;
use idem_runtime::store::sql::{Postgres, PostgresStore, SqlStore};
use idem_tests::shop::{Failure, until};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::home::{Kind, Server, on_each_database, open, open_hasty, open_with};
use crate::till::{Till, assert_says, claim};

on_each_database!(
    one_connection_serves_two_hundred_calls,
    whoever_waits_is_told_how_many_connections_there_are;
    a_server_without_connections_left_is_told,
);

async fn one_connection_serves_two_hundred_calls<B: Kind>() {
    let home = B::home();
    let store = open_with::<B>(&home.url, |store| store.connections(1)).await;
    let till = Till::on(&store);
    let mut tasks = JoinSet::new();
    for number in 0..200 {
        let till = till.clone();
        let key = format!("{}", number % 100);
        tasks.spawn(async move {
            loop {
                match till.pay(&key).await {
                    Ok(_) => return,
                    Err(Failure::Idem(error)) => assert!(error.is_retryable(), "{error}"),
                    Err(other) => panic!("{other:?}"),
                }
            }
        });
    }
    tasks.join_all().await;
    for number in 0..100 {
        assert_eq!(till.effects(&number.to_string()), 1);
    }
}

async fn whoever_waits_is_told_how_many_connections_there_are<B: Kind>() {
    let home = B::home();
    let soon = Duration::from_millis(700);
    let store = open_hasty::<B>(&home.url, soon, |store| store.connections(1)).await;
    let held = B::hold(&home.url).await;
    let parts = [
        "a claim",
        "700ms",
        "1 of 1 connections in use",
        "another transaction",
    ];
    assert_says(claim(&store).await, Unavailable, &parts);
    drop(held);
    Till::on(&store).pay("a").await.unwrap();
}

async fn a_server_without_connections_left_is_told<B: Server>() {
    let server = B::serve(&[("max_connections", "12")]);
    let url = server.password_url();
    let store = open::<B>(&url).await;
    let till = Till::on(&store);
    let first = till.pay("a").await.unwrap();
    let mut others = Vec::new();
    while let Some(other) = B::connect(&url).await {
        others.push(other);
    }
    let late = SqlStore::<B>::connect(&url).await;
    assert_says(late, Unavailable, &["connecting", "no connection left"]);
    // It has its own.
    assert_eq!(till.pay("a").await.unwrap(), first);
    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let till = till.clone();
        tasks.spawn(async move { till.pay(&format!("many {number}")).await });
    }
    for outcome in tasks.join_all().await {
        outcome.unwrap();
    }
    assert_eq!(till.all_effects(), 51);
    drop(others);
    until("they are gone", || {
        tokio::task::block_in_place(|| server.try_execute("SELECT 1").is_ok())
    })
    .await;
    open::<B>(&url).await;
}

/// Each body has a connection of a pool of two, and all of them run at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_applications_pool_may_run_dry() {
    let home = Postgres::home();
    let pool = PgPoolOptions::new().max_connections(2);
    let pool = pool.connect(&home.url).await.unwrap();
    let store = PostgresStore::connect(&pool).await.unwrap();
    store.migrate().await.unwrap();
    let till = Till::on(&store);
    let both = std::sync::Arc::new(Barrier::new(2));
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let (till, pool, both) = (till.clone(), pool.clone(), both.clone());
        tasks.spawn(async move {
            let body = async |_| {
                let conn = pool.acquire().await.unwrap();
                both.wait().await;
                // The pool is empty now, and somebody else claims and completes with this.
                till.pay(&format!("inner {number}")).await?;
                drop(conn);
                Ok(())
            };
            till.pay_by(&format!("outer {number}"), body).await.unwrap()
        });
    }
    tasks.join_all().await;
    assert_eq!(till.all_effects(), 40);
}
