//! Too few connections: of the store, of the server, of the application.

use idem_tests::sql::connect;
use sqlx::PgConnection;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Barrier;

use super::prelude::*;

on_each_server!(a_server_without_connections_left_is_reported,);

async fn a_server_without_connections_left_is_reported<B: Server>() {
    let server = B::serve(&[("max_connections", "12")]);
    let url = server.password_url();
    let store = open::<B>(&url).await;
    let fixture = Fixture::on(&store);
    let first = fixture.pay("a").await.unwrap();
    let mut others = Vec::new();
    while let Some(other) = B::connection_after(&url, "SELECT 1").await {
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

/// Each running body holds one of the pool's two connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_applications_pool_may_run_dry() {
    let test_database = TestDatabase::new::<Postgres>();
    let pool = PgPoolOptions::new().max_connections(2);
    let pool = pool.connect(&test_database.url).await.unwrap();
    let store = connect::<Postgres>(&pool).await;
    store.migrate().await.unwrap();
    let fixture = Fixture::on(&store);
    let both = Arc::new(Barrier::new(2));
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

/// An abandoned claim must not wait in the server. It would block a backend until the transaction that holds the key
/// ends, and each retry another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_claims_leave_no_backend_that_waits() {
    let test_database = TestDatabase::new::<Postgres>();
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
    let waiting = Postgres::WAITING.expect("a server has sessions");
    test_database.until("0", waiting).await;
    tx.rollback().await.unwrap();
}

/// As with a prepared statement of this session that is broken.
#[tokio::test]
async fn a_session_in_which_statements_fail_is_replaced() {
    let (test_database, store) = opened::<Postgres>().await;
    claim_of(&store, 1).await.unwrap();
    for sql in [
        "CREATE TABLE failing AS SELECT pid FROM pg_stat_activity WHERE datname = current_database()",
        "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF pg_backend_pid() IN (SELECT pid FROM failing) THEN RAISE 'not here'; END IF; \
         RETURN NEW; END $$",
        "CREATE TRIGGER fails BEFORE INSERT OR UPDATE ON idem_records FOR EACH ROW EXECUTE FUNCTION fails()",
    ] {
        test_database.sql(sql).await;
    }
    let claimed = claim_of(&store, 2).await.unwrap();
    assert!(matches!(claimed, ClaimReply::Granted { .. }), "{claimed:?}");
}
