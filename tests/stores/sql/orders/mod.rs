//! Orders killed at random moments, and books that are right all the same.

mod books;
mod killed_workers;
mod ledger;

use std::time::Instant;

use idem_harness::{MariaDbServer, PostgresServer, PostgresServerBuilder, TestDir};
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite, open_shop};
use tokio::runtime::Builder;

use self::books::Books;
use self::killed_workers::{Heard, Lives};

/// Runs the workers in a new shop, prints a summary, and returns the violations in the books.
fn run<D: Database>(lives: Lives<'_>) -> (Heard, Vec<String>) {
    let (url, kills) = (lives.url, lives.kills);
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    runtime.block_on(open_shop::<D>(url));
    let began = Instant::now();
    let heard = lives.run();
    let books = Books::read::<D>(url);
    let (orders, answers) = heard.ledger.size();
    eprintln!(
        "{}: {kills} kills, {} of them inside a transaction whose body had begun; {orders} orders, {} placed; \
         {answers} answers; {:?}",
        D::NAME,
        heard.inside,
        books.placed(),
        began.elapsed()
    );
    eprintln!("tasks killed after each step: {:?}", heard.hits);
    eprintln!("tried again: {:#?}", heard.again);
    let violations = books.violations(&heard.ledger);
    eprintln!("violations: {violations:#?}");
    eprintln!("answers that were lost: {:?}", heard.ledger.lost());
    (heard, violations)
}

/// The books are right, and the kills hit transactions. Returns the answers given to a caller that are no longer valid:
/// `true` where the caller's own commit had been acknowledged.
fn lost_with_right_books<D: Database>(lives: Lives<'_>) -> Vec<bool> {
    let kills = usize::try_from(lives.kills).expect("some kills");
    let (heard, violations) = run::<D>(lives);
    assert_eq!(violations, [""; 0]);
    let inside = heard.inside;
    assert!(
        inside * 3 > kills,
        "only {inside} of {kills} kills were inside a transaction"
    );
    for step in ["begun", "claimed", "ordered", "recorded"] {
        assert!(heard.hits.contains_key(step), "no kill after {step}");
    }
    let mut answers = heard.ledger.last().values().flatten();
    let refused = answers.any(|answer| answer.starts_with("refused"));
    assert!(refused, "nothing was refused");
    heard.ledger.lost().iter().map(|(.., ran)| *ran).collect()
}

/// An order was placed twice, and the books show it.
fn assert_books_are_wrong<D: Database>(lives: Lives<'_>) {
    let (_, violations) = run::<D>(lives);
    let twice = violations.iter().any(|one| one.contains(" has 2 rows"));
    assert!(
        twice,
        "every order was placed once by chance, or the check does not look"
    );
}

/// As in production, but deadlocks are detected sooner.
fn postgres() -> PostgresServerBuilder {
    let server = PostgresServer::builder().durable();
    server.setting("deadlock_timeout", "50ms")
}

fn file(dir: &TestDir) -> String {
    format!("sqlite:{}?mode=rwc", dir.path().join("shop.db").display())
}

#[test]
fn kills_leave_the_books_right_in_sqlite() {
    let dir = TestDir::new("orders").expect("there is room for a file");
    let url = file(&dir);
    let lives = Lives::new(InSqlite::NAME, &url, "inside");
    assert_eq!(lost_with_right_books::<InSqlite>(lives), [false; 0]);
}

/// The server is killed four times as well.
#[test]
fn kills_leave_the_books_right_in_postgres() {
    let server = postgres().start();
    let url = server.url();
    let mut lives = Lives::new(InPostgres::NAME, &url, "inside");
    lives.server = Some((&server, lives.kills / 4));
    assert_eq!(lost_with_right_books::<InPostgres>(lives), [false; 0]);
}

/// Most of the transactions that conflict on a row are refused there, and retried.
#[test]
fn kills_leave_the_books_right_among_serialization_failures() {
    let server = postgres().setting("default_transaction_isolation", "serializable");
    let server = server.start();
    let url = server.url();
    let mut lives = Lives::new(InPostgres::NAME, &url, "inside");
    lives.kills = 60;
    assert_eq!(lost_with_right_books::<InPostgres>(lives), [false; 0]);
}

#[test]
fn kills_leave_the_books_right_in_mariadb() {
    let server = MariaDbServer::builder().durable().start();
    let url = server.url();
    let lives = Lives::new(InMariaDb::NAME, &url, "inside");
    assert_eq!(lost_with_right_books::<InMariaDb>(lives), [false; 0]);
}

/// `InnoDB` shows a commit to other connections a moment before it is in the log. A server that dies in this moment
/// loses the order and its record together, and the books are right; but a duplicate may have been given the answer.
/// An answer from the call whose own commit was acknowledged is never lost.
#[test]
fn kills_of_the_server_leave_the_books_right_in_mariadb() {
    let server = MariaDbServer::builder().durable().start();
    let url = server.url();
    let mut lives = Lives::new(InMariaDb::NAME, &url, "inside");
    lives.server = Some((&server, lives.kills / 10));
    let lost = lost_with_right_books::<InMariaDb>(lives);
    assert!(!lost.contains(&true), "a caller's own commit");
}

/// The check finds a record that is committed apart from the order.
#[test]
fn a_record_that_stands_apart_leaves_the_books_wrong() {
    let server = postgres().start();
    let url = server.url();
    let mut lives = Lives::new(InPostgres::NAME, &url, "apart");
    // As many as a full run has: few of them strike between the two commits.
    lives.kills = 200;
    assert_books_are_wrong::<InPostgres>(lives);
}

/// The check finds statements that are committed separately.
#[test]
fn an_order_without_a_transaction_leaves_the_books_wrong() {
    let dir = TestDir::new("orders").expect("there is room for a file");
    let url = file(&dir);
    let mut lives = Lives::new(InSqlite::NAME, &url, "lease");
    lives.kills = 30;
    assert_books_are_wrong::<InSqlite>(lives);
}
