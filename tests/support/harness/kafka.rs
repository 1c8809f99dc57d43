//! A Kafka cluster for tests.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Worker;

/// Keeps the ids of members unique.
///
/// The mock cluster takes the address of a member for its id (`rd_kafka_mock_cgrp_classic_member_add`), and aborts when
/// a member that it had given up comes back, and another one has its id. The `calloc` of glibc, up to 2.40, takes
/// nothing from the cache of a thread, so that the address of a member that went there is no other member's.
const UNIQUE_MEMBERS: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=65535");

/// A Kafka cluster in its own process, killed on drop.
///
/// It is the mock cluster of librdkafka: real protocol over TCP, consumer groups with rebalances and committed offsets,
/// and no broker of Apache Kafka. Its data is in memory, and its ports are free ones that the system chose. The program
/// is the binary `idem-kafka` of the package under test.
#[derive(Debug)]
pub struct KafkaCluster {
    worker: Mutex<Worker>,
    brokers: String,
}

impl KafkaCluster {
    /// Starts three brokers without a topic, and waits until they listen.
    pub fn start() -> Self {
        let mut worker = Worker::sibling("idem-kafka")
            .arg("3")
            .env(UNIQUE_MEMBERS.0, UNIQUE_MEMBERS.1)
            .spawn();
        let brokers = worker.line_after("brokers ");
        Self {
            worker: Mutex::new(worker),
            brokers,
        }
    }

    /// The addresses of the brokers, as clients take them.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    pub fn create_topic(&self, name: &str, partitions: u32) {
        self.ask(&format!("topic {name} {partitions}"));
    }

    /// Makes every broker say that there is no such topic.
    pub fn forget_topic(&self, name: &str) {
        self.ask(&format!("gone {name}"));
    }

    /// Refuses this many commits of offsets, as during a rebalance.
    pub fn refuse_commits(&self, commits: u32) {
        self.ask(&format!("refuse {commits}"));
    }

    /// Replies to the next heartbeat that another member has its `group.instance.id`.
    pub fn fence(&self) {
        self.ask("fence");
    }

    /// Freezes the process of all brokers.
    pub fn pause(&self) {
        self.worker().pause();
    }

    pub fn resume(&self) {
        self.worker().resume();
    }

    /// Closes the connections of all brokers, and refuses new ones.
    pub fn take_down(&self) {
        self.ask("down");
    }

    /// Accepts connections again.
    pub fn bring_up(&self) {
        self.ask("up");
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, line: &str) {
        let mut worker = self.worker();
        worker.send(line);
        let reply = worker.line();
        assert_eq!(reply, "ok", "the cluster refuses: {line}");
    }
}
