//! Connections whose tables are in another schema than the store's.

use std::str::FromStr as _;

use idem_tests::shop;
use idem_tests::sql::connect;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor, MySqlConnection, PgConnection, PgPool};

use super::prelude::*;

/// A call outside of any transaction.
async fn call(engine: &Engine, key: u64) -> Result<String, Error> {
    let call = engine.operation("schemas.order").key(&key);
    call.run(async |_| Ok::<_, Error>(format!("{key} outside")))
        .await
}

/// The same call in a transaction of the application.
async fn call_in_tx(engine: &Engine, pool: &PgPool, key: u64) -> Result<String, Error> {
    let mut tx = pool.begin().await.unwrap();
    let call = engine.operation("schemas.order").key(&key);
    let told = call
        .in_tx(&mut *tx)
        .run(async |_: &mut PgConnection, _| Ok::<_, Error>(format!("{key} in a transaction")));
    let told = told.await;
    // The transaction can go on, also after a refusal.
    tx.execute("INSERT INTO rows VALUES (1)").await.unwrap();
    tx.commit().await.unwrap();
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_path_selects_no_second_table() {
    let test_database = TestDatabase::new::<Postgres>();
    let tables = "CREATE SCHEMA tenant; CREATE TABLE tenant.rows (number INT)";
    test_database.sql(tables).await;
    let pool = PgPoolOptions::new().max_connections(2);
    let pool = pool.after_connect(|conn, _| {
        Box::pin(async move {
            let path = "SET search_path TO tenant, public";
            conn.execute(path).await.map(drop)
        })
    });
    let pool = pool.connect(&test_database.url).await.unwrap();
    let store = connect::<Postgres>(&pool).await;
    store.migrate().await.unwrap();
    let engine = shop::engine(store);

    // The tenant has no table: both calls use that of the store.
    let first = call(&engine, 1).await.unwrap();
    assert_eq!(call_in_tx(&engine, &pool, 1).await.unwrap(), first);
    let first = call_in_tx(&engine, &pool, 2).await.unwrap();
    assert_eq!(call(&engine, 2).await.unwrap(), first);

    // The tenant has one, with records of its own: refused before the body runs.
    let another = "CREATE TABLE tenant.idem_records (LIKE public.idem_records INCLUDING ALL)";
    test_database.sql(another).await;
    for key in [1, 3] {
        let refused = call_in_tx(&engine, &pool, key).await.unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("`search_path`"), "{message}");
        assert!(!refused.is_retryable(), "{message}");
    }
    assert_eq!(call(&engine, 1).await.unwrap(), "1 outside");
    let kept = "SELECT (SELECT count(*) FROM public.idem_records), (SELECT count(*) FROM tenant.idem_records), \
                (SELECT count(*) FROM tenant.rows)";
    assert_eq!(test_database.sql(kept).await, "2|0|4");

    // A store of that table, by its full name.
    let of_tenant = PostgresStore::builder(&pool).table("tenant.idem_records");
    let of_tenant = shop::engine(of_tenant.connect().await.unwrap());
    let first = call_in_tx(&of_tenant, &pool, 3).await.unwrap();
    assert_eq!(call(&of_tenant, 3).await.unwrap(), first);
}

#[tokio::test]
async fn a_store_stays_in_the_schema_of_its_options() {
    let test_database = TestDatabase::new::<Postgres>();
    // The first has a table; the second, which needs quotes, gets one.
    let schemas = "CREATE SCHEMA full_one; CREATE SCHEMA \"Tenant-1 ü\"";
    test_database.sql(schemas).await;
    let options = PgConnectOptions::from_str(&test_database.url).unwrap();
    let path = |path: &str| options.clone().options([("search_path", path)]);
    for schema in ["full_one", "\"Tenant-1 ü\""] {
        let store = connect::<Postgres>(path(schema)).await;
        store.migrate().await.unwrap();
        call(&shop::engine(store), 1).await.unwrap();
    }
    let behind = PostgresStore::connect(path("nowhere,\"Tenant-1 ü\",full_one")).await;
    let behind = shop::engine(behind.unwrap());
    assert_eq!(call(&behind, 1).await.unwrap(), "1 outside");
    let kept = "SELECT (SELECT count(*) FROM full_one.idem_records), \
                (SELECT count(*) FROM \"Tenant-1 ü\".idem_records), to_regclass('idem_records') IS NULL";
    assert_eq!(test_database.sql(kept).await, "1|1|t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_default_database_selects_no_second_table() {
    let test_database = TestDatabase::new::<MySql>();
    test_database.sql("CREATE DATABASE `other schema`").await;
    let store = connect::<MySql>(&test_database.url).await;
    store.migrate().await.unwrap();
    let engine = shop::engine(store);
    let mut conn = MySqlConnection::connect(&test_database.url).await.unwrap();
    conn.execute("USE `other schema`").await.unwrap();
    let first = call(&engine, 1).await.unwrap();
    let again = engine.operation("schemas.order").key(&1_u64);
    let again = again
        .in_tx(&mut conn)
        .run(async |_: &mut MySqlConnection, _| Ok::<_, Error>(String::new()));
    assert_eq!(again.await.unwrap(), first);
}
