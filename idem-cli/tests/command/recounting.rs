//! `idem stats --every` on a store that cannot be reached for a while.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use idem_harness::RedisServer;
use idem_runtime::store::redis::RedisStore;
use serde_json::Value;

use crate::command::words;
use crate::filled::{PREFIX, Site, receipt};

/// A command that ends with the test.
struct Counting(Child);

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_fails_is_reported_and_the_next_follows() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let site = Site::new(server.url(), Arc::new(store));
    site.pay("o-1", Ok(receipt("r-1"))).await.unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_idem"));
    command.args(["--store", &server.url(), "--prefix", PREFIX]);
    command.args(words("--timeout 1s stats --every 100ms --json"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut counting = Counting(command.spawn().unwrap());
    let mut counts = BufReader::new(counting.0.stdout.take().unwrap()).lines();
    let mut failures = BufReader::new(counting.0.stderr.take().unwrap()).lines();
    let mut counted = || {
        let line = counts.next().unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["total"]["records"].clone()
    };
    assert_eq!((counted(), counted()), (1.into(), 1.into()));
    server.kill();
    let failure = failures.next().unwrap().unwrap();
    assert!(failure.contains("the store cannot be reached"), "{failure}");
    // The command has made no claim.
    assert!(!failure.contains("claim"), "{failure}");
    server.restart();
    // The counts of before the failure, and those of the new server, which is empty.
    while counted() == 1 {}
    assert_eq!(counted(), 0);
}
