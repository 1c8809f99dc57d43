//! Consumers whose handlers write through sea-orm.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_consumers::{Consumer, MemoryQueue, Raw, Summary, TxPool};
use idem_harness::{MariaDbServer, PostgresServer, TcpProxy, TestDir};
use idem_runtime::Engine;
use idem_runtime::store::Store;
use idem_runtime::store::sql::{Backend, IntoSqlSource, SqlStore};
use idem_tests::payment::Runs;
use idem_tests::polls::{Dropped, dropped_after};
use idem_tests::shop::engine;
use idem_tests::sql;
use sea_orm::sqlx::Connection as _;
use sea_orm::{
    ConnectOptions, ConnectionTrait as _, Database, DatabaseConnection, DatabaseTransaction,
    Statement, TransactionTrait as _,
};

use super::desk::BillError::{self, BankDown, NoSuchAccount};

type Collected = Result<(), BillError>;

/// A database with a table of bills, and a count of bodies.
struct Shop {
    db: DatabaseConnection,
    engine: Engine,
    bodies: Runs,
}

/// Of a pool of one connection: each transaction gets that of the one before.
fn options(url: &str) -> ConnectOptions {
    let mut options = ConnectOptions::new(url);
    options.max_connections(1).sqlx_logging(false);
    options
}

async fn connect(url: &str) -> DatabaseConnection {
    Database::connect(options(url)).await.unwrap()
}

async fn bills(db: &DatabaseConnection, id: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM bills WHERE id = '{id}'");
    let query = Statement::from_string(db.get_database_backend(), sql);
    let row = db.query_one_raw(query).await.unwrap().unwrap();
    row.try_get_by_index(0).unwrap()
}

/// The end of a handler after its row is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Value,
    System,
    Business,
    /// A transaction within is still open.
    LeftOpen,
    /// A statement fails; PostgreSQL then refuses others, and SQLite has rolled back.
    Failed,
}

impl Shop {
    async fn new<B: Backend>(db: DatabaseConnection, source: impl IntoSqlSource<B>) -> Self
    where
        SqlStore<B>: Store,
    {
        let store = sql::connect::<B>(source).await;
        store.migrate().await.unwrap();
        let table = "CREATE TABLE bills (id VARCHAR(100) PRIMARY KEY)";
        db.execute_unprepared(table).await.unwrap();
        Self {
            db,
            engine: engine(store),
            bodies: Runs::default(),
        }
    }

    /// Consumes one message, by a handler that ends like this.
    async fn run(&self, id: &str, end: End) -> Summary {
        let queue = MemoryQueue::new();
        queue.send(id, id);
        queue.close();
        let consumer = Consumer::new(self.engine.clone(), "bills.collect").dead_letter_after(2);
        let consumer = consumer
            .retry_after(Duration::from_millis(10))
            .in_tx(self.db.clone());
        let (bodies, left) = (self.bodies.clone(), Arc::new(Mutex::new(Vec::new())));
        let kept = Arc::clone(&left);
        let handled = consumer.run(queue, move |Raw(id), tx: &mut DatabaseTransaction, _| {
            bodies.start();
            let left = Arc::clone(&kept);
            Box::pin(async move {
                let row = format!(
                    "INSERT INTO bills VALUES ('{}')",
                    String::from_utf8_lossy(&id)
                );
                tx.execute_unprepared(&row).await.unwrap();
                match end {
                    End::Value => {}
                    End::System => return Err(BankDown),
                    End::Business => return Collected::Err(NoSuchAccount),
                    End::LeftOpen => {
                        let within = tx.begin().await.unwrap();
                        left.lock().unwrap().push(within);
                    }
                    End::Failed => {
                        let again = match tx.get_database_backend() {
                            sea_orm::DatabaseBackend::Sqlite => {
                                row.replace("INSERT", "INSERT OR ROLLBACK")
                            }
                            _ => row,
                        };
                        tx.execute_unprepared(&again).await.unwrap_err();
                    }
                }
                Ok(())
            })
        });
        let summary = handled.await.unwrap();
        left.lock().unwrap().clear();
        summary
    }

    /// Each end of a handler: the rows, the messages that are acknowledged and that are dead, and the bodies.
    async fn each_end(&self, is_tried: impl Fn(End) -> bool) {
        let goes_on = matches!(
            self.db.get_database_backend(),
            sea_orm::DatabaseBackend::MySql
        );
        for (end, rows, dead, bodies) in [
            (End::Value, 1, 0, 1),
            (End::System, 0, 1, 2),
            (End::Business, 0, 1, 1),
            (End::LeftOpen, 1, 0, 1),
            if goes_on {
                (End::Failed, 1, 0, 1)
            } else {
                (End::Failed, 0, 1, 2)
            },
        ] {
            if !is_tried(end) {
                continue;
            }
            let id = &format!("{end:?}");
            let before = self.bodies.count();
            let summary = self.run(id, end).await;
            let found = (
                bills(&self.db, id).await,
                summary.dead_letters,
                self.bodies.count() - before,
            );
            assert_eq!(found, (rows, dead, bodies), "{id}: {summary:?}");
            if rows == 1 {
                // A later delivery is not handled.
                self.run(id, End::Value).await;
                assert_eq!(self.bodies.count(), before + 1, "{id}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_of_a_handler_on_postgres() {
    let server = PostgresServer::start();
    let db = connect(&server.url()).await;
    let pool = db.get_postgres_connection_pool().clone();
    Shop::new(db, &pool).await.each_end(|_| true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_of_a_handler_on_mariadb() {
    let server = MariaDbServer::start();
    let db = connect(&server.url()).await;
    let pool = db.get_mysql_connection_pool().clone();
    Shop::new(db, &pool).await.each_end(|_| true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_of_a_handler_on_sqlite() {
    let dir = TestDir::new("bills").unwrap();
    let url = format!("sqlite:{}?mode=rwc", dir.path().join("bills.db").display());
    let db = connect(&url).await;
    let pool = db.get_sqlite_connection_pool().clone();
    let mut shop = Shop::new(db, &pool).await;
    shop.each_end(|end| end != End::LeftOpen).await;
    // As the guide says: sqlx still counts the transaction that the handler has left open.
    let mut options = options(&url);
    options.map_sqlx_sqlite_pool_opts(|pool| {
        pool.after_release(|conn, _| {
            Box::pin(async move {
                conn.ping().await?;
                Ok(!conn.is_in_transaction())
            })
        })
    });
    shop.db = Database::connect(options).await.unwrap();
    shop.each_end(|end| end == End::LeftOpen).await;
}

/// The message is delivered again, and the committed record answers it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_commit_runs_no_second_handler() {
    let server = PostgresServer::start();
    let proxy = TcpProxy::start(server.addr());
    let url = server
        .url()
        .replace(&server.addr().to_string(), &proxy.addr().to_string());
    let direct = connect(&server.url()).await;
    let pool = direct.get_postgres_connection_pool().clone();
    let mut shop = Shop::new(direct, &pool).await;
    let direct = std::mem::replace(&mut shop.db, connect(&url).await);
    proxy.drop_next_reply_to("COMMIT");
    let summary = shop.run("m-1", End::Value).await;
    assert_eq!((summary.acknowledged, summary.dead_letters), (1, 0));
    assert_eq!(proxy.stats().dropped_replies, 1);
    shop.db = direct;
    assert_eq!((bills(&shop.db, "m-1").await, shop.bodies.count()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_pool_stops_the_consumer() {
    let server = PostgresServer::start();
    let db = connect(&server.url()).await;
    let pool = db.get_postgres_connection_pool().clone();
    let shop = Shop::new(db, &pool).await;
    let queue = MemoryQueue::new();
    queue.send("m-1", "m-1");
    for db in [shop.db.clone(), DatabaseConnection::default()] {
        shop.db.close_by_ref().await.unwrap();
        let consumer = Consumer::new(shop.engine.clone(), "bills.collect").in_tx(db);
        let handled = consumer.run(queue.clone(), |_: Raw, _, _| {
            Box::pin(async { Collected::Ok(()) })
        });
        let end = handled.await.unwrap_err();
        assert!(
            matches!(end, idem_consumers::ConsumerError::Pool(_)),
            "{end:?}"
        );
    }
}

/// PostgreSQL rolls a failed transaction back at its commit, without an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_a_rollback_is_none() {
    use idem_runtime::store::sql::{SqlReply, SqlSession, SqlTransaction as _};
    let server = PostgresServer::start();
    let db = connect(&server.url()).await;
    db.execute_unprepared("CREATE TABLE bills (id text)")
        .await
        .unwrap();
    for fails in [true, false] {
        let mut tx = TxPool::acquire(&db).await.unwrap();
        let session = tx.session();
        assert_eq!(session.depth(), 0);
        session.begin().await.unwrap();
        assert_eq!(session.depth(), 1);
        let write = async |session: &mut dyn SqlSession, text: &str| {
            let nothing = &mut |_: SqlReply<'_>| Ok(());
            session.script(text.to_owned(), nothing).await
        };
        write(session, "INSERT INTO bills VALUES ('m-1')")
            .await
            .unwrap();
        if fails {
            write(session, "SELECT 1 / 0").await.unwrap_err();
            assert!(session.commit().await.unwrap_err().is_of_server());
            assert_eq!(session.depth(), 1);
            session.rollback().await.unwrap();
        } else {
            session.commit().await.unwrap();
        }
        assert_eq!(session.depth(), 0);
        // Nothing is sent outside of a transaction.
        write(session, "INSERT INTO bills VALUES ('m-2')")
            .await
            .unwrap_err();
        session.begin().await.unwrap_err();
    }
    let query = Statement::from_string(db.get_database_backend(), "SELECT count(*) FROM bills");
    let row = db.query_one_raw(query).await.unwrap().unwrap();
    assert_eq!(row.try_get_by_index::<i64>(0).unwrap(), 1);
}

/// After a dropped acquire, the connection's next user has no transaction. Not on SQLite, where sqlx rolls a `BEGIN`
/// back whose future was dropped.
async fn assert_no_transaction_is_left(server: SocketAddr, url: &str) {
    let proxy = TcpProxy::start(server);
    let through = url.replace(&server.to_string(), &proxy.addr().to_string());
    let (db, direct) = (connect(&through).await, connect(url).await);
    let table = "CREATE TABLE bills (id VARCHAR(100) PRIMARY KEY)";
    db.execute_unprepared(table).await.unwrap();
    // No reply is received within the poll that has sent the message.
    proxy.delay(Duration::from_millis(20));
    for dropped in [Dropped::AtOnce, Dropped::Woken] {
        for polls in 0.. {
            let tx = dropped_after(polls, dropped, TxPool::acquire(&db)).await;
            let is_acquired = tx.map(Result::unwrap).is_some();
            // A task that acquires takes the connection first.
            tokio::task::yield_now().await;
            let id = format!("{dropped:?} after {polls} polls");
            let write = format!("INSERT INTO bills VALUES ('{id}')");
            db.execute_unprepared(&write).await.unwrap();
            assert_eq!(bills(&direct, &id).await, 1, "{id}");
            if is_acquired {
                assert!(polls > 1, "no acquire was dropped");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_dropped_acquire_leaves_no_transaction_on_postgres() {
    let server = PostgresServer::start();
    assert_no_transaction_is_left(server.addr(), &server.url()).await;
}

#[tokio::test]
async fn a_dropped_acquire_leaves_no_transaction_on_mariadb() {
    let server = MariaDbServer::start();
    assert_no_transaction_is_left(server.addr(), &server.url()).await;
}
