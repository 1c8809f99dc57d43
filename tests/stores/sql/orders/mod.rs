//! Orders killed at each step and at random moments: the books are right.

mod books;
mod killed_workers;
mod ledger;

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, PostgresServerBuilder, TestDir};
use idem_tests::bounds::bound;
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite, open_shop};
use tokio::runtime::Builder;

use self::books::Books;
use self::killed_workers::Lives;

/// Runs the workers in a new shop: the books are right, and the kills hit transactions.
///
/// `client` names the workers' client; `server` is killed once in so many kills of a worker. Returns the answers that a
/// caller got and that are no longer valid: `true` where the caller's own commit had been acknowledged.
fn lost_with_right_books<D: Database>(
    client: &'static str,
    url: &str,
    kills: u64,
    server: Option<(&DatabaseServer, u64)>,
) -> Vec<bool> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(open_shop::<D>(url));
    let heard = Lives::new(client, url, kills, server).run();
    let violations = Books::read::<D>(url).violations(&heard.ledger);
    assert_eq!(violations, [""; 0]);
    let inside = heard.inside;
    assert!(
        inside * 3 > kills,
        "only {inside} of {kills} kills were inside a transaction: {:?}",
        heard.hits
    );
    for step in killed_workers::STOPS {
        assert!(heard.hits.contains_key(step), "no kill after {step}");
    }
    let mut answers = heard.ledger.last().values().flatten();
    let refused = answers.any(|answer| answer.starts_with("refused"));
    assert!(refused, "nothing was refused");
    heard.ledger.lost()
}

fn kills() -> u64 {
    bound(80, 200)
}

/// As in production, but deadlocks are detected sooner.
fn postgres() -> PostgresServerBuilder {
    let server = PostgresServer::builder().durable();
    server.setting("deadlock_timeout", "50ms")
}

#[test]
fn kills_leave_the_books_right_in_sqlite() {
    let dir = TestDir::new("orders").expect("there is room for a file");
    let url = format!("sqlite:{}?mode=rwc", dir.path().join("shop.db").display());
    let lost = lost_with_right_books::<InSqlite>("sqlite", &url, kills(), None);
    assert_eq!(lost, [false; 0]);
}

/// The server is killed four times as well.
#[test]
fn kills_leave_the_books_right_in_postgres() {
    let server = postgres().start();
    let killed = Some((&*server, kills() / 4));
    let lost = lost_with_right_books::<InPostgres>("postgres", &server.url(), kills(), killed);
    assert_eq!(lost, [false; 0]);
}

/// Most transactions that conflict on a row are refused and retried.
#[test]
fn kills_leave_the_books_right_among_serialization_failures() {
    let server = postgres().setting("default_transaction_isolation", "serializable");
    let server = server.start();
    let lost = lost_with_right_books::<InPostgres>("postgres", &server.url(), 60, None);
    assert_eq!(lost, [false; 0]);
}

/// The server is killed as well.
#[test]
fn kills_leave_the_books_right_by_deadpool_postgres() {
    let (server, kills) = (postgres().start(), bound(40, 200));
    let (url, killed) = (server.url(), Some((&*server, kills / 4)));
    let lost = lost_with_right_books::<InPostgres>("deadpool_postgres", &url, kills, killed);
    assert_eq!(lost, [false; 0]);
}

#[test]
fn kills_leave_the_books_right_by_bb8_postgres() {
    let (server, kills) = (postgres().start(), bound(40, 200));
    let lost = lost_with_right_books::<InPostgres>("bb8_postgres", &server.url(), kills, None);
    assert_eq!(lost, [false; 0]);
}

#[test]
fn kills_leave_the_books_right_in_mariadb() {
    let server = MariaDbServer::builder().durable().start();
    let lost = lost_with_right_books::<InMariaDb>("mariadb", &server.url(), kills(), None);
    assert_eq!(lost, [false; 0]);
}

/// `InnoDB` shows a commit to others before logging it.
///
/// A server that dies in between loses the order and its record together, and the books are right; but a duplicate may
/// have been given the answer. An answer from the call whose own commit was acknowledged is never lost.
#[test]
fn kills_of_the_server_leave_the_books_right_in_mariadb() {
    let server = MariaDbServer::builder().durable().start();
    let killed = Some((&*server, kills() / 10));
    let lost = lost_with_right_books::<InMariaDb>("mariadb", &server.url(), kills(), killed);
    assert!(!lost.contains(&true), "a caller's own commit");
}

/// The client's pool and transactions, and the store on its connections.
#[test]
fn kills_leave_the_books_right_in_mariadb_by_mysql_async() {
    let server = MariaDbServer::builder().durable().start();
    let (url, kills) = (server.url(), bound(40, 200));
    let lost = lost_with_right_books::<InMariaDb>("mysql_async", &url, kills, None);
    assert_eq!(lost, [false; 0]);
}

#[test]
fn kills_leave_the_books_right_by_diesel_in_postgres() {
    let (server, kills) = (postgres().start(), bound(40, 200));
    let lost = lost_with_right_books::<InPostgres>("diesel_postgres", &server.url(), kills, None);
    assert_eq!(lost, [false; 0]);
}

#[test]
fn kills_leave_the_books_right_by_diesel_in_mariadb() {
    let (server, kills) = (MariaDbServer::builder().durable().start(), bound(40, 200));
    let lost = lost_with_right_books::<InMariaDb>("diesel_mysql", &server.url(), kills, None);
    assert_eq!(lost, [false; 0]);
}

#[test]
fn kills_leave_the_books_right_by_sea_orm() {
    let kills = bound(40, 200);
    let dir = TestDir::new("orders").expect("there is room for a file");
    let url = format!("sqlite:{}?mode=rwc", dir.path().join("shop.db").display());
    let lost = lost_with_right_books::<InSqlite>("sea_orm_sqlite", &url, kills, None);
    assert_eq!(lost, [false; 0]);
    let server = postgres().start();
    let killed = Some((&*server, kills / 4));
    let lost =
        lost_with_right_books::<InPostgres>("sea_orm_postgres", &server.url(), kills, killed);
    assert_eq!(lost, [false; 0]);
    let server = MariaDbServer::builder().durable().start();
    let lost = lost_with_right_books::<InMariaDb>("sea_orm_mariadb", &server.url(), kills, None);
    assert_eq!(lost, [false; 0]);
}
