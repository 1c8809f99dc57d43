//! Servers that are killed in the middle of a request.

use std::net::SocketAddr;
use std::time::Duration;

use idem_harness::{RedisServer, TestDir, Worker};
use idem_runtime::store::sql::SqliteStore;

use crate::client::{Answer, KEY};
use crate::server::{Client, connect, with_key};

const LEASE: Duration = Duration::from_mins(1);

/// A server in a process of its own.
struct Process {
    worker: Worker,
    addr: SocketAddr,
}

impl Process {
    fn start(url: &str, attempts: u16, manner: &str) -> Self {
        let mut worker = Worker::program(env!("CARGO_BIN_EXE_idem-http-server"))
            .arg(url)
            .arg(attempts.to_string())
            .arg(manner)
            .spawn();
        let addr = worker.line_after("listening ").trim().parse().unwrap();
        Self { worker, addr }
    }

    async fn send(&self) -> Client {
        let mut client = connect(self.addr).await;
        client.write(&with_key(KEY, "tea")).await;
        client
    }

    async fn ask(&self) -> Answer {
        self.send().await.answer().await
    }

    /// Takes a request, and is killed while its handler runs.
    async fn killed(mut self) {
        let client = self.send().await;
        self.worker.line_after("run");
        self.worker.kill9();
        assert_eq!(client.rest().await, b"", "there is no answer");
    }
}

/// How the next server treats a request whose server was killed: before the lease is over, and then.
async fn the_next(
    url: &str,
    attempts: u16,
    time_passes: impl AsyncFn(Duration),
) -> (Answer, Process) {
    Process::start(url, attempts, "held").killed().await;
    let next = Process::start(url, attempts, "free");
    for passes in [LEASE / 3, LEASE / 6] {
        time_passes(passes).await;
        let refused = next.ask().await;
        assert_eq!(refused.problem(), (409, "request-running"));
        let seconds = refused.headers["retry-after"].to_str().unwrap();
        // A lease of a minute is no reason to stay away for a minute.
        assert_eq!(seconds, "2");
    }
    time_passes(LEASE).await;
    (next.ask().await, next)
}

/// It is worked on again, as the second attempt.
async fn again(url: &str, time_passes: impl AsyncFn(Duration)) {
    let (answer, mut next) = the_next(url, 3, time_passes).await;
    assert_eq!(answer.body, "done: tea");
    assert!(!answer.is_replayed());
    assert_eq!(next.worker.line_after("event claimed "), "2");
    next.worker.line_after("run");
    // Another process has the answer too.
    let third = Process::start(url, 3, "held");
    let replay = third.ask().await;
    assert_eq!(replay.body, "done: tea");
    assert!(replay.is_replayed());
}

/// Where no second attempt is allowed, none is made.
async fn not_again(url: &str, time_passes: impl AsyncFn(Duration)) {
    let (answer, mut next) = the_next(url, 1, time_passes).await;
    assert_eq!(answer.problem(), (500, "attempts-exhausted"));
    next.worker.kill9();
    let told = next.worker.rest();
    assert!(!told.iter().any(|line| line == "run"), "{told:?}");
}

/// Where a hook finds that it was done, no handler runs either, and the repeat gets the found response.
async fn found(url: &str, time_passes: impl AsyncFn(Duration)) {
    for attempts in [1, 3] {
        // Each with a key of its own: the first is done by then.
        let body = format!("tea {attempts}");
        let key = format!("\"{attempts}\"");
        let mut killed = Process::start(url, attempts, "held");
        let mut client = connect(killed.addr).await;
        client.write(&with_key(&key, &body)).await;
        killed.worker.line_after("run");
        killed.worker.kill9();
        assert_eq!(client.rest().await, b"", "there is no answer");

        let mut next = Process::start(url, attempts, "found");
        time_passes(LEASE).await;
        for _ in 0..2 {
            let mut client = connect(next.addr).await;
            client.write(&with_key(&key, &body)).await;
            let answer = client.answer().await;
            assert_eq!(answer.body, format!("found: {body}"));
            assert!(answer.is_replayed());
        }
        next.worker.kill9();
        let told = next.worker.rest();
        assert!(!told.iter().any(|line| line == "run"), "{told:?}");
        let asked = told.iter().filter(|line| *line == "event landed");
        assert_eq!(asked.count(), 1, "{told:?}");
    }
}

fn in_redis(server: &RedisServer) -> impl AsyncFn(Duration) {
    async |by| {
        let aged = server.advance(by, "");
        assert!(aged > 0);
    }
}

async fn in_sqlite(url: &str) -> impl AsyncFn(Duration) {
    let store = SqliteStore::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    async move |by| store.age(by).await.unwrap()
}

fn file(dir: &TestDir) -> String {
    format!("sqlite:{}", dir.path().join("shop.db").display())
}

#[tokio::test]
async fn redis_a_request_whose_server_was_killed_runs_again_after_its_lease() {
    let server = RedisServer::start();
    again(&server.url(), in_redis(&server)).await;
}

#[tokio::test]
async fn redis_a_request_that_may_run_once_only_does_not_run_again() {
    let server = RedisServer::start();
    not_again(&server.url(), in_redis(&server)).await;
}

#[tokio::test]
async fn sqlite_a_request_whose_server_was_killed_runs_again_after_its_lease() {
    let dir = TestDir::new("killed").unwrap();
    let url = file(&dir);
    again(&url, in_sqlite(&url).await).await;
}

#[tokio::test]
async fn sqlite_a_request_that_may_run_once_only_does_not_run_again() {
    let dir = TestDir::new("killed").unwrap();
    let url = file(&dir);
    not_again(&url, in_sqlite(&url).await).await;
}

#[tokio::test]
async fn redis_a_request_whose_server_was_killed_is_found_by_a_hook() {
    let server = RedisServer::start();
    found(&server.url(), in_redis(&server)).await;
}

#[tokio::test]
async fn sqlite_a_request_whose_server_was_killed_is_found_by_a_hook() {
    let dir = TestDir::new("killed").unwrap();
    let url = file(&dir);
    found(&url, in_sqlite(&url).await).await;
}
