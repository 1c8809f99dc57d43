//! The example as a separate process, built together with this test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use idem_harness::{HANG_LIMIT, TestDir, Worker};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::browser::PAUSE;
use super::support;

const PAID_ORDERS: &str = "SELECT count(*) FROM checkout_orders WHERE state = 'paid'";
const UNPAID_ORDERS: &str = "SELECT count(*) FROM checkout_orders WHERE state = 'new'";
const PAID_CHARGES: &str = "SELECT count(*) FROM checkout_charges WHERE state = 'paid'";

/// A running shop, killed on drop.
#[derive(Debug)]
pub(crate) struct Shop {
    process: Worker,
    pub(crate) addr: SocketAddr,
    pace: Pace,
    books: TestDir,
}

/// How long a payment takes.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// No longer than a page needs.
    Fast,
    /// Until [`Shop::pay`].
    ByHand,
}

impl Shop {
    /// A shop with new books in a file.
    pub(crate) fn start() -> Self {
        Self::with(Pace::Fast)
    }

    /// A shop whose payments wait for [`pay`](Self::pay).
    pub(crate) fn by_hand() -> Self {
        Self::with(Pace::ByHand)
    }

    fn with(pace: Pace) -> Self {
        let books = TestDir::new("checkout").unwrap();
        let (process, addr) = run(&books, pace, 0);
        Self {
            process,
            addr,
            pace,
            books,
        }
    }

    /// Ends a payment.
    pub(crate) fn pay(&mut self) {
        for _moment in ["before the charge", "after it"] {
            self.process.send("");
        }
    }

    /// The address of a page: `url("/")`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Ends a payment once a counter has come so far.
    pub(crate) async fn pay_after(&mut self, counter: &str, count: i64) {
        self.wait_for(counter, count).await;
        self.pay();
    }

    pub(crate) fn kill9(&mut self) {
        self.process.kill9();
    }

    /// The same shop again at the same place, after it was killed.
    pub(crate) fn restart(&mut self) {
        (self.process, self.addr) = run(&self.books, self.pace, self.addr.port());
    }

    pub(crate) fn count(&self, counter: &str) -> i64 {
        let mut connection = TcpStream::connect(self.addr).unwrap();
        let request = "GET /live/rows HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).unwrap();
        let mut rows = String::new();
        connection.read_to_string(&mut rows).unwrap();
        let before = format!("data-counter=\"{counter}\" data-count=\"");
        let (_, count) = rows.split_once(&before).unwrap();
        count.split_once('"').unwrap().0.parse().unwrap()
    }

    /// Waits until a counter has come so far.
    pub(crate) async fn wait_for(&self, counter: &str, count: i64) {
        let come = async || self.count(counter) >= count;
        until(counter, come).await;
    }

    /// Waits until an order is in the books, and is being paid.
    pub(crate) async fn wait_for_order(&self) {
        let is_there = async || self.row(UNPAID_ORDERS).await > 0;
        until("an order", is_there).await;
    }

    /// How many submissions were executed, and how many replayed.
    pub(crate) fn calls(&self) -> (i64, i64) {
        (self.count("executed"), self.count("replayed"))
    }

    /// This many orders were paid, each by one charge. No order is half done.
    pub(crate) async fn assert_sold(&self, orders: i64) {
        self.assert_books(orders, 0).await;
    }

    /// This many orders were paid, by one charge each; others wait.
    pub(crate) async fn assert_books(&self, orders: i64, waiting: i64) {
        assert_eq!(self.row(PAID_ORDERS).await, orders, "paid orders");
        assert_eq!(self.row(PAID_CHARGES).await, orders, "charges");
        assert_eq!(self.row(UNPAID_ORDERS).await, waiting, "orders not paid");
        let shown = (self.count("orders"), self.count("charges"));
        assert_eq!(shown, (orders, orders), "what the live page says");
    }

    async fn row(&self, sql: &'static str) -> i64 {
        let options = SqliteConnectOptions::new().filename(file(&self.books));
        let pool = SqlitePool::connect_with(options.read_only(true)).await;
        sqlx::query_scalar(sql)
            .fetch_one(&pool.unwrap())
            .await
            .unwrap()
    }
}

async fn until(what: &str, done: impl AsyncFn() -> bool) {
    let wait = async {
        while !done().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let outcome = tokio::time::timeout(HANG_LIMIT, wait).await;
    outcome.unwrap_or_else(|_| panic!("{what}: not within {HANG_LIMIT:?}"));
}

fn file(books: &TestDir) -> PathBuf {
    books.path().join("checkout.db")
}

fn run(books: &TestDir, pace: Pace, port: u16) -> (Worker, SocketAddr) {
    let mut process = Worker::program(support::built("checkout"))
        .arg("--file")
        .arg(file(books))
        .args(match pace {
            Pace::Fast => &["--slow", "20"][..],
            Pace::ByHand => &["--by-hand"],
        })
        .args(["--port".to_owned(), port.to_string()])
        .spawn();
    let line = process.line_after("shop at http://");
    let (addr, _) = line.split_once('/').unwrap();
    (process, addr.parse().unwrap())
}
