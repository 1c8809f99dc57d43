//! Peculiarities of `mysql_async`: abandoned messages, unread results, options of a pool.

use std::error::Error as _;
use std::pin::pin;

use idem_runtime::credentials::Credentials;
use idem_runtime::store::sql::{MySql, MySqlStore, SqlError, SqlReply, SqlSession};
use idem_tests::shop::engine;
use idem_tests::sql::connect;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Pool, PoolConstraints, PoolOpts, Transaction, TxOpts};

use super::prelude::*;

type Shop = Fixture<MySql>;

/// A call in this transaction, with an order of this name.
async fn ordered(shop: &Shop, tx: &mut Transaction<'_>, name: &str) -> Answer {
    let answer = shop.call_that_ends(tx, |tx| tx, name, End::Value);
    answer.await.expect("it ends")
}

fn pool(shop: &Shop, connections: usize) -> Pool {
    let constraints = PoolConstraints::new(1, connections).unwrap();
    let pool = PoolOpts::default().with_constraints(constraints);
    Pool::new(options(&shop.place.url).pool_opts(pool))
}

async fn begin(pool: &Pool) -> Transaction<'static> {
    let begun = pool.start_transaction(TxOpts::default()).await;
    begun.expect("the server is up")
}

/// The client would give the reply to any user's next message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_with_an_abandoned_claim_is_closed() {
    let shop = Shop::new().await;
    let pool = pool(&shop, 1);
    let mut first = shop.begin().await;
    assert_eq!(shop.ordered(&mut first).await, Ok(1));
    let mut tx = begin(&pool).await;
    let session = tx.id();
    {
        let mut waits = pin!(answered(shop.order(), &mut tx));
        tokio::select! {
            answer = &mut waits => panic!("it waits: {answer:?}"),
            () = shop.until_waiting(1) => {}
        }
    }
    // The reply is there.
    MySql::rollback(first).await.done();
    shop.until_none_waits().await;
    let next: Result<Option<i64>, _> = tx.query_first("SELECT 7").await;
    next.expect_err("it is closed");
    tx.commit().await.expect_err("it is closed");
    let mut next = begin(&pool).await;
    assert_ne!(next.id(), session, "the pool has replaced it");
    assert_eq!(ordered(&shop, &mut next, "next").await, Ok(2));
    next.commit().await.unwrap();
    assert_eq!(shop.kept("next").await, (1, 1));
}

/// Its reply would have the number expected of the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_with_an_abandoned_message_of_idem_is_closed() {
    let shop = Shop::new().await;
    let mut conn = MySqlAsyncClient::connect(&shop.place.url).await;
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    assert_eq!(ordered(&shop, &mut tx, "mine").await, Ok(1));
    {
        let mut ignore = |_: SqlReply<'_>| Ok(());
        let sleeps = SqlSession::script(&mut tx, "DO SLEEP(1)".to_owned(), &mut ignore);
        let polled = tokio::time::timeout(Duration::from_millis(1), sleeps).await;
        polled.expect_err("it sleeps");
    }
    tx.commit().await.expect_err("it is closed");
    conn.query_drop("DO 1").await.expect_err("it is closed");
    // The server rolls it back when it has slept.
    session_ends(&shop, i64::from(conn.id())).await;
    assert_eq!(shop.kept("mine").await, (0, 0));
}

/// A dropped message of the caller, before or in a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_message_of_the_caller_refuses_a_call() {
    let shop = Shop::new().await;
    for in_body in [false, true] {
        let mut conn = MySqlAsyncClient::connect(&shop.place.url).await;
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        if !in_body {
            abandon(&mut tx).await;
        }
        let call = shop.order().in_tx(&mut tx);
        let call = call.run(async |tx: &mut Transaction<'_>, _| {
            assert!(in_body, "the body runs");
            abandon(tx).await;
            Answer::Ok(1)
        });
        assert_aborted(&refusal(call.await));
        tx.commit().await.expect_err("it is closed");
        assert_eq!(shop.records().await, 0);
    }
}

async fn abandon(tx: &mut Transaction<'_>) {
    let sleeps = tx.query_drop("DO SLEEP(0.2)");
    let polled = tokio::time::timeout(Duration::from_millis(1), sleeps).await;
    polled.expect_err("it sleeps");
}

/// The client discards the rest of it before the next message; an error in it is that of the next message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_leaves_a_result_unread() {
    let shop = Shop::new().await;
    let mut conn = MySqlAsyncClient::connect(&shop.place.url).await;
    for (key, script, succeeds) in [
        ("rows", "SELECT 1 UNION SELECT 2; SELECT 3", true),
        ("none", "DO 1; UPDATE shelves SET pieces = 9; DO 1", true),
        (
            "error",
            "SELECT 1; INSERT INTO orders (name) VALUES (NULL)",
            false,
        ),
    ] {
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let call = shop.call(key).in_tx(&mut tx);
        let answer = call.run(async |tx: &mut Transaction<'_>, _| {
            drop(tx.query_iter(script).await.unwrap());
            Answer::Ok(1)
        });
        let answer = answer.await;
        if succeeds {
            assert_eq!(answer, Ok(1), "{key}");
            tx.commit().await.unwrap();
            assert!(state(shop.call(key)).await.is_some(), "{key}");
        } else {
            assert_aborted(&refusal(answer));
            tx.rollback().await.unwrap();
            assert!(state(shop.call(key)).await.is_none(), "{key}");
        }
    }
}

/// The client closes none without a cache; a server has 16,382 in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_stays_prepared_without_a_cache() {
    let shop = Shop::new().await;
    for (size, closes) in [(0, 3), (32, 0)] {
        let opts = options(&shop.place.url).stmt_cache_size(size);
        let mut conn = Conn::new(opts).await.unwrap();
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let before = closed(&mut tx).await;
        for key in 0..3 {
            let key = format!("{size} {key}");
            assert!(ordered(&shop, &mut tx, &key).await.is_ok());
        }
        assert_eq!(closed(&mut tx).await - before, closes, "{size}");
        tx.commit().await.unwrap();
    }
}

async fn closed(tx: &mut Transaction<'_>) -> i64 {
    let status: Option<(String, i64)> = tx
        .query_first("SHOW SESSION STATUS LIKE 'Com_stmt_close'")
        .await
        .unwrap();
    status.unwrap().1
}

/// While it reads rows, the client has an earlier statement's number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_statement_of_a_script_has_its_own_number_of_rows() {
    let shop = Shop::new().await;
    let mut conn = MySqlAsyncClient::connect(&shop.place.url).await;
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    let (mut ends, mut rows) = (Vec::new(), 0);
    let mut receive = |reply: SqlReply<'_>| {
        match reply {
            SqlReply::Done {
                affected,
                last_insert_id,
                ..
            } => ends.push((affected, last_insert_id)),
            _ => rows += 1,
        }
        Ok(())
    };
    let script = "INSERT INTO orders VALUES ('a'), ('b'); SELECT name FROM orders; \
                  UPDATE orders SET name = 'c' WHERE name = 'none'; SELECT 1 WHERE 1 = 0; \
                  UPDATE orders SET name = CONCAT('c', LAST_INSERT_ID(7))";
    let sent = SqlSession::script(&mut tx, script.to_owned(), &mut receive);
    sent.await.unwrap();
    assert_eq!(rows, 2);
    assert_eq!(ends, [(2, 0), (0, 0), (0, 0), (0, 0), (2, 7)]);
}

/// The rest of the reply is discarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_a_receiver_leaves_the_session_usable() {
    let shop = Shop::new().await;
    let mut conn = MySqlAsyncClient::connect(&shop.place.url).await;
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    let mut parts = 0;
    let mut receive = |_: SqlReply<'_>| {
        parts += 1;
        Err(SqlError::client("it does not like rows"))
    };
    let script = "SELECT 1 UNION SELECT 2; SELECT 3; INSERT INTO orders VALUES (NULL)";
    let sent = SqlSession::script(&mut tx, script.to_owned(), &mut receive);
    let error = sent.await.unwrap_err();
    assert!(!error.is_of_server(), "{error:?}");
    assert_eq!(parts, 1);
    assert_eq!(tx.count("SELECT 7").await, 7);
}

/// The server ends them all, and idem makes others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_connections_are_lost_connects_again() {
    let shop = Shop::new().await;
    let store = connect::<MySql>(options(&shop.place.url)).await;
    let engine = engine(store);
    let database = shop.place.url.rsplit_once('/').unwrap().1;
    let sessions = format!(
        "SELECT COALESCE(MIN(id), 0) FROM information_schema.processlist \
         WHERE db = '{database}' AND id <> CONNECTION_ID()"
    );
    let mut operator = MySqlAsyncClient::connect(&shop.place.url).await;
    for key in 0..5_u32 {
        let call = engine.operation("orders.create").key(&key);
        assert_eq!(call.run(async move |_| Answer::Ok(key)).await, Ok(key));
        loop {
            match operator.count(&sessions).await {
                0 => break,
                // It may have ended by itself.
                session => drop(operator.run(&format!("KILL {session}")).await),
            }
        }
    }
}

/// `BODY` is a reserved word then. (sqlx begins no transaction in this mode: `BEGIN` begins a block.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_in_the_mode_of_oracle() {
    let shop = Shop::new().await;
    let opts = || options(&shop.place.url).init(vec!["SET sql_mode = 'ORACLE'"]);
    let mut conn = Conn::new(opts()).await.unwrap();
    for runs in [1, 1, 2] {
        let end = if runs == 2 { "other" } else { "mine" };
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        assert_eq!(ordered(&shop, &mut tx, end).await, Ok(runs));
        tx.commit().await.unwrap();
    }
    assert_eq!(shop.kept("mine").await, (1, 2));
    let store = MySqlStore::builder(opts()).table("oracle").connect().await;
    let store = store.unwrap();
    store.migrate().await.unwrap();
    let engine = engine(store);
    for answer in [Err(OrderError::Down), Ok(1), Ok(1)] {
        let call = engine.operation("orders.create").key("order-7");
        let given = answer.clone();
        assert_eq!(call.run(async move |_| given).await, answer);
    }
}

/// A statement counts the rows that it has changed, or found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_number_of_changed_rows_is_right() {
    let shop = Shop::new().await;
    for found_rows in [false, true] {
        let opts = options(&shop.place.url).client_found_rows(found_rows);
        let mut conn = Conn::new(opts).await.unwrap();
        let key = &format!("{found_rows}");
        for (end, expected, kept) in [
            (End::System, Err(OrderError::Down), 0),
            (End::Value, Ok(2), 1),
            (End::Value, Ok(2), 1),
        ] {
            let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
            let answer = shop.call_that_ends(&mut tx, |tx| tx, key, end).await;
            let expected = expected.map(|run| run + 2 * u32::from(found_rows));
            assert_eq!(answer, Some(expected), "{key}");
            tx.commit().await.unwrap();
            assert_eq!(shop.orders(key).await, kept, "{key}");
        }
        // A call that has ended its transaction: its record is gone, and nothing counts.
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let call = shop.call(&format!("{key} ended")).in_tx(&mut tx);
        let ended = call.run(async |tx: &mut Transaction<'_>, _| {
            tx.query_drop("ROLLBACK").await.unwrap();
            Answer::Ok(1)
        });
        assert_aborted(&refusal(ended.await));
    }
}

/// The store's own connections have the pool's options, and never await it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_takes_the_options_of_a_pool_and_none_of_its_connections() {
    let shop = Shop::new().await;
    let pool = pool(&shop, 1);
    let store = connect::<MySql>(&pool).await;
    let mut tx = begin(&pool).await;
    let engine = engine(store);
    let calls = (0..20_u32).map(|key| {
        let call = engine.operation("orders.create").key(&(key % 5));
        call.run(async move |_| Answer::Ok(key % 5))
    });
    for (number, answer) in futures_util::future::join_all(calls)
        .await
        .into_iter()
        .enumerate()
    {
        assert_eq!(answer, Ok(u32::try_from(number % 5).unwrap()));
    }
    assert_eq!(ordered(&shop, &mut tx, "mine").await, Ok(1));
    tx.commit().await.unwrap();
    assert_eq!(shop.kept("mine").await, (1, 6));
}

/// They replace user and password of the options and of a pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_replaces_the_credentials_of_options() {
    let shop = Shop::new().await;
    let user = format!("u{}", shop.place.url.rsplit_once("database").unwrap().1);
    let mut conn = MySqlAsyncClient::connect(&shop.place.url).await;
    let grant = format!("GRANT ALL ON *.* TO '{user}'@'%' IDENTIFIED BY 'right'");
    conn.run(&grant).await.unwrap();
    let store = |password: &'static str| {
        let user = user.clone();
        let provider = move || {
            let credentials = Credentials::new(password).user(user.clone());
            async move { Ok::<_, std::io::Error>(credentials) }
        };
        let store = MySqlStore::builder(&pool(&shop, 1)).credentials(provider);
        store.connect()
    };
    let right = store("right").await.unwrap();
    let sessions =
        format!("SELECT count(*) FROM information_schema.processlist WHERE user = '{user}'");
    assert_eq!(conn.count(&sessions).await, 1);
    drop(right);
    let wrong = store("wrong").await.unwrap_err();
    assert!(wrong.to_string().contains("password"), "{wrong}");
    assert!(!format!("{wrong:?}").contains("wrong"), "{wrong:?}");
    assert!(wrong.source().is_none(), "{wrong:?}");
}
