//! The example as a separate process, built together with this test.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use idem_harness::{TestDir, Worker, eventually};

use super::http::Request;
use super::support;

/// A running shop, killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    process: Worker,
    pub(crate) address: String,
    _books: Option<TestDir>,
}

pub(crate) fn program() -> PathBuf {
    support::built("checkout")
}

impl Server {
    /// A shop with new books of its own.
    pub(crate) fn new(args: &[&str]) -> Self {
        let books = TestDir::new("checkout").unwrap();
        let file = books.path().join("shop.db");
        let place = ["--file", file.to_str().unwrap()];
        Self {
            _books: Some(books),
            ..Self::start(&[&place, args].concat())
        }
    }

    pub(crate) fn start(args: &[&str]) -> Self {
        let builder = Worker::program(program()).args(args.iter().copied());
        let mut process = builder.args(["--port", "0"]).spawn();
        let line = process.line_after("shop at http://");
        let (address, _) = line.split_once('/').unwrap();
        Self {
            process,
            address: address.to_owned(),
            _books: None,
        }
    }

    /// One of the counters of the live page.
    pub(crate) fn count(&self, counter: &str) -> u64 {
        let live = Request::new("GET", "/live/rows").send(&self.address);
        let before = format!("data-counter=\"{counter}\" data-count=\"");
        live.between(&before, "\"").unwrap().parse().unwrap()
    }

    /// Waits until a counter has reached this count.
    pub(crate) fn wait_for(&self, counter: &str, count: u64) {
        eventually(counter, || self.count(counter) >= count);
    }

    /// Paid orders and charges: a customer's payment counts in both.
    pub(crate) fn sold(&self) -> (u64, u64) {
        (self.count("orders"), self.count("charges"))
    }

    /// Lets payments go on that wait for Enter, each for two.
    pub(crate) fn enter(&mut self, lines: usize) {
        for _ in 0..lines {
            self.process.send("");
        }
    }

    pub(crate) fn kill9(mut self) {
        self.process.kill9();
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = self.process.pid().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(told.unwrap().success());
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.process.wait()
    }
}
