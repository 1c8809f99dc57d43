//! Orders that are killed at any moment, and books that are right all the same.

mod books;
mod ledger;
mod lives;

use std::time::Instant;

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, PostgresServerBuilder, TestDir};
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite, open_shop};
use tokio::runtime::Builder;

use self::books::Books;
use self::lives::{Heard, Lives};

fn open<D: Database>(url: &str) {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime
        .expect("a runtime starts")
        .block_on(open_shop::<D>(url));
}

/// Runs the lives in a new shop, says how that went, and what is wrong in the books.
fn run<D: Database>(lives: Lives<'_>) -> (Heard, Vec<String>) {
    let (url, kills) = (lives.url, lives.kills);
    open::<D>(url);
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
    (heard, violations)
}

/// The books are right, and the kills were where they hurt.
fn assert_books_are_right<D: Database>(lives: Lives<'_>) {
    let kills = usize::try_from(lives.kills).expect("some kills");
    let (heard, violations) = run::<D>(lives);
    assert_eq!(violations, [""; 0]);
    let inside = heard.inside;
    assert!(
        inside * 2 > kills,
        "only {inside} of {kills} kills were inside a transaction"
    );
    for step in ["begun", "claimed", "ordered", "stock", "points", "recorded"] {
        assert!(heard.hits.contains_key(step), "no kill after {step}");
    }
    let answers = heard.ledger.answers().values().flatten();
    let refused = answers
        .filter(|answer| answer.starts_with("refused"))
        .count();
    assert!(refused > 0, "nothing was refused");
}

/// An order was placed twice, and the books tell.
fn assert_books_are_wrong<D: Database>(lives: Lives<'_>) {
    let (_, violations) = run::<D>(lives);
    eprintln!("found: {violations:#?}");
    let twice = violations.iter().any(|one| one.contains(" has 2 rows"));
    assert!(
        twice,
        "every order was placed once by chance, or nobody looks"
    );
}

/// The server is killed four times as well.
fn with_a_server<D: Database>(server: &DatabaseServer) {
    let url = server.url();
    let mut lives = Lives::new(D::NAME, &url, "inside");
    lives.server = Some((server, lives.kills / 4));
    assert_books_are_right::<D>(lives);
}

/// As in production, but a deadlock is found sooner.
fn postgres() -> PostgresServerBuilder {
    let server = PostgresServer::builder().durable();
    server.setting("deadlock_timeout", "50ms")
}

fn file(dir: &TestDir) -> String {
    format!("sqlite:{}?mode=rwc", dir.path().join("shop.db").display())
}

#[test]
fn two_hundred_kills_leave_the_books_right_in_sqlite() {
    let dir = TestDir::new("orders").expect("there is room for a file");
    assert_books_are_right::<InSqlite>(Lives::new(InSqlite::NAME, &file(&dir), "inside"));
}

#[test]
fn two_hundred_kills_leave_the_books_right_in_postgres() {
    let server = postgres().start();
    with_a_server::<InPostgres>(&server);
}

/// Most of the transactions that meet another on a row are refused there, and tried again.
#[test]
fn kills_leave_the_books_right_among_serialization_failures() {
    let server = postgres().setting("default_transaction_isolation", "serializable");
    let server = server.start();
    let url = server.url();
    let mut lives = Lives::new(InPostgres::NAME, &url, "inside");
    lives.kills = 60;
    assert_books_are_right::<InPostgres>(lives);
}

#[test]
fn two_hundred_kills_leave_the_books_right_in_mariadb() {
    with_a_server::<InMariaDb>(&MariaDbServer::builder().durable().start());
}

/// The books would tell if the record were committed apart from the order.
#[test]
fn a_record_that_stands_apart_leaves_the_books_wrong() {
    let server = postgres().start();
    let url = server.url();
    let lives = Lives::new(InPostgres::NAME, &url, "apart");
    assert_books_are_wrong::<InPostgres>(lives);
}

/// The books would tell if every statement were committed by itself.
#[test]
fn an_order_without_a_transaction_leaves_the_books_wrong() {
    let dir = TestDir::new("orders").expect("there is room for a file");
    let url = file(&dir);
    let mut lives = Lives::new(InSqlite::NAME, &url, "lease");
    lives.kills = 30;
    assert_books_are_wrong::<InSqlite>(lives);
}
