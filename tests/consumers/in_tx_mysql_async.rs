//! Consumers in the transactions of `mysql_async`'s pool.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use idem_consumers::{Consumer, ConsumerError, MemoryQueue, Raw, Summary, TxFuture, TxPool as _};
use idem_harness::{MariaDbServer, TcpProxy};
use idem_runtime::store::sql::{MySql, SqlSession as _};
use idem_runtime::{Engine, Policy};
use idem_tests::payment::Runs;
use idem_tests::shop::engine;
use idem_tests::sql::connect;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, Transaction};
use tokio::sync::Notify;

use super::desk::BillError::{self, BankDown};

type Collected = Result<(), BillError>;

/// The end of a handler, by the number of its run.
type Ending = for<'c> fn(u32, &'c mut Transaction<'static>) -> TxFuture<'c, Collected>;

/// A database with a table of bills, behind a proxy.
struct Desk {
    /// Of one connection, through the proxy.
    pool: Pool,
    /// Without the proxy.
    direct: Pool,
    engine: Engine,
    proxy: TcpProxy,
    _server: MariaDbServer,
    bodies: Runs,
}

fn pool(url: &str) -> Pool {
    let one = PoolConstraints::new(1, 1).unwrap();
    let pool = PoolOpts::default().with_constraints(one);
    let opts = OptsBuilder::from_opts(Opts::from_url(url).unwrap());
    Pool::new(opts.prefer_socket(false).pool_opts(pool))
}

impl Desk {
    async fn new() -> Self {
        let server = MariaDbServer::start();
        let proxy = TcpProxy::start(server.addr());
        let direct = pool(&server.url());
        let store = connect::<MySql>(&direct).await;
        store.migrate().await.unwrap();
        let mut conn = direct.get_conn().await.unwrap();
        let table = "CREATE TABLE bills (id VARCHAR(100) NOT NULL)";
        conn.query_drop(table).await.unwrap();
        drop(conn);
        Self {
            pool: pool(&server.url_at(proxy.addr())),
            direct,
            engine: engine(store),
            proxy,
            _server: server,
            bodies: Runs::default(),
        }
    }

    fn consumer(&self) -> Consumer {
        Consumer::new(self.engine.clone(), "bills.collect").retry_after(Duration::from_millis(10))
    }

    /// Consumes a message. Its handler writes a row and ends like this.
    async fn run(&self, consumer: Consumer, end: Ending) -> Result<Summary, ConsumerError> {
        let bodies = self.bodies.clone();
        let consumer = consumer.in_tx(self.pool.clone());
        let handled = consumer.run(one_message(), move |Raw(id), tx, _| {
            let run = bodies.start();
            Box::pin(async move {
                write(tx, &id).await;
                end(run, tx).await
            })
        });
        handled.await
    }

    async fn bodies_and_rows(&self) -> (u32, i64) {
        let mut conn = self.direct.get_conn().await.unwrap();
        let rows = conn
            .query_first("SELECT count(*) FROM bills")
            .await
            .unwrap();
        (self.bodies.count(), rows.unwrap())
    }
}

/// A closed queue, as the broker delivers the message again.
fn one_message() -> MemoryQueue {
    let queue = MemoryQueue::new();
    queue.send("m-1", "m-1");
    queue.close();
    queue
}

async fn write(tx: &mut Transaction<'static>, id: &[u8]) {
    let row = tx.exec_drop("INSERT INTO bills VALUES (?)", (id,));
    row.await.unwrap();
}

/// Consumes a message until it is acknowledged.
async fn acknowledged(desk: &Desk, end: Ending) {
    let summary = desk.run(desk.consumer(), end).await.unwrap();
    assert_eq!((summary.acknowledged, summary.dead_letters), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_message_are_kept_together() {
    let desk = Desk::new().await;
    let third: Ending =
        |run, _| Box::pin(async move { if run < 3 { Err(BankDown) } else { Ok(()) } });
    acknowledged(&desk, third).await;
    assert_eq!(desk.bodies_and_rows().await, (3, 1));
    acknowledged(&desk, third).await;
    assert_eq!(desk.bodies_and_rows().await, (3, 1));
}

/// The next delivery finds the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_is_lost_is_not_repeated() {
    let desk = Desk::new().await;
    desk.proxy.drop_next_reply_to("COMMIT");
    acknowledged(&desk, |_, _| Box::pin(async { Ok(()) })).await;
    assert_eq!(desk.proxy.stats().dropped_replies, 1);
    assert_eq!(desk.bodies_and_rows().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ends_or_breaks_its_transaction_commits_nothing() {
    let breaks: [Ending; 3] = [
        |run, tx| {
            Box::pin(async move {
                if run == 1 {
                    tx.query_drop("ROLLBACK").await.unwrap();
                }
                Ok(())
            })
        },
        |run, tx| {
            Box::pin(async move {
                if run == 1 {
                    let killed = tx.query_drop("KILL CONNECTION_ID()").await;
                    killed.unwrap_err();
                }
                Ok(())
            })
        },
        // Its own message is abandoned.
        |run, tx| {
            Box::pin(async move {
                if run == 1 {
                    let sleeps = tx.query_drop("SELECT SLEEP(0.1)");
                    let slept = tokio::time::timeout(Duration::from_millis(1), sleeps).await;
                    slept.unwrap_err();
                }
                Ok(())
            })
        },
    ];
    for end in breaks {
        let desk = Desk::new().await;
        acknowledged(&desk, end).await;
        assert_eq!(desk.bodies_and_rows().await, (2, 1));
    }
}

/// After a dropped message the client's replies are one message late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_not_acknowledged_by_the_reply_to_another_message() {
    let desk = Desk::new().await;
    let mut tx = desk.pool.acquire().await.unwrap();
    tx.begin().await.unwrap();
    let handle = Pool::handle(&mut tx);
    write(handle, b"m-1").await;
    let mut sleeps = Box::pin(handle.query_drop("DO SLEEP(0.1)"));
    let polled = |cx: &mut Context<'_>| Poll::Ready(sleeps.as_mut().poll(cx).is_pending());
    assert!(poll_fn(polled).await, "it has its reply already");
    drop(sleeps);
    handle.query_drop("DO 1").await.unwrap();
    let committed = tx.commit().await;
    committed.expect_err("the reply is that to another message");
    drop(tx);
    assert_eq!(desk.bodies_and_rows().await, (0, 0));
}

/// Its transaction is rolled back, and the pool has its connection back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_dropped_at_shutdown_commits_nothing() {
    let desk = Desk::new().await;
    let written = Arc::new(Notify::new());
    let short = Policy::new().lease(Duration::from_secs(1));
    let consumer = desk.consumer().policy(short).drain(Duration::ZERO);
    let consumer = consumer.in_tx(desk.pool.clone());
    let (handler_has, shutdown) = (Arc::clone(&written), written.notified());
    let handled = consumer.run_until(
        one_message(),
        move |Raw(id), tx, _| {
            let written = Arc::clone(&handler_has);
            Box::pin(async move {
                write(tx, &id).await;
                written.notify_one();
                std::future::pending::<Collected>().await
            })
        },
        shutdown,
    );
    assert_eq!(handled.await.unwrap().abandoned, 1);
    assert_eq!(desk.bodies_and_rows().await, (0, 0));
    acknowledged(&desk, |_, _| Box::pin(async { Ok(()) })).await;
    assert_eq!(desk.bodies_and_rows().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_pool_stops_the_consumer() {
    let desk = Desk::new().await;
    desk.pool.clone().disconnect().await.unwrap();
    let end = desk.run(desk.consumer(), |_, _| Box::pin(async { Ok(()) }));
    let end = end.await.unwrap_err();
    assert!(matches!(end, ConsumerError::Pool(_)), "{end:?}");
}
