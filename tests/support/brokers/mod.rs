//! Brokers for the tests of consumers: a server of its own for each test, and a source of its messages.

pub mod redis_streams;

use std::time::Duration;

use idem_runtime::consumer::{BrokerError, Source};

pub use self::redis_streams::RedisStreams;

/// A broker with one queue, its consumers and its dead letters.
///
/// A new broker is one file: this trait on a real server. `tests/consumers/worker.rs` lists the brokers for the
/// consumer processes, and `tests/consumers/killed/mod.rs` for the tests.
pub trait Broker: Sized + Send + Sync {
    /// The adapter under test.
    type Source: Source;

    /// The name, as consumer processes are told.
    const NAME: &'static str;

    /// Whether a kill at any moment leaves one dead letter of a message, and not two.
    const ONE_LETTER: bool;

    /// Starts a server that keeps its data over a kill.
    fn start() -> impl Future<Output = Self> + Send;

    /// What [`source`](Self::source) connects to, in a process of its own.
    fn url(&self) -> String;

    /// Sends messages whose id and payload are both this text.
    fn send(&self, ids: &[String]) -> impl Future<Output = ()> + Send;

    /// Kills the server, and starts it again with its data.
    fn restart(&self) -> impl Future<Output = ()> + Send;

    /// The number of messages that are not settled; at least 1 while one is not delivered.
    fn unsettled(&self) -> impl Future<Output = usize> + Send;

    /// The id and the reason of each dead letter.
    fn dead_letters(&self) -> impl Future<Output = Vec<(String, String)>> + Send;

    /// A consumer of the queue, whose messages are delivered again after this time unless extended.
    fn source(
        url: &str,
        held: Duration,
    ) -> impl Future<Output = Result<Self::Source, BrokerError>> + Send;
}
