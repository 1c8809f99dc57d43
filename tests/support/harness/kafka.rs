//! A Kafka cluster for tests.

use std::sync::{Mutex, PoisonError};

use crate::Worker;

/// A Kafka cluster in a process of its own, killed when the value is dropped.
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
    #[must_use]
    pub fn start() -> Self {
        let mut worker = Worker::sibling("idem-kafka").arg("3").spawn();
        let brokers = worker.line_after("brokers ");
        Self {
            worker: Mutex::new(worker),
            brokers,
        }
    }

    /// The addresses of the brokers, as clients take them.
    #[must_use]
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Creates a topic.
    pub fn create_topic(&self, name: &str, partitions: u32) {
        self.ask(&format!("topic {name} {partitions}"));
    }

    /// Closes the connections of all brokers, and refuses new ones.
    pub fn take_down(&self) {
        self.ask("down");
    }

    /// Accepts connections again.
    pub fn bring_up(&self) {
        self.ask("up");
    }

    fn ask(&self, line: &str) {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker.send(line);
        let reply = worker.line();
        assert_eq!(reply, "ok", "the cluster refuses: {line}");
    }
}
