//! Brokers for the tests of consumers: a server of its own for each test, and a source of its messages.

#[cfg(feature = "kafka")]
pub mod kafka;
pub mod nats;
pub mod rabbit;
pub mod redis_streams;

use std::net::SocketAddr;
use std::time::Duration;

use idem_consumers::{BrokerError, OnLostSubscription, Source};
use serde::{Deserialize, Serialize};

#[cfg(feature = "kafka")]
pub use self::kafka::Kafka;
pub use self::nats::Nats;
pub use self::rabbit::Rabbit;
pub use self::redis_streams::RedisStreams;

/// A broker with one queue, its consumers and its dead letters.
///
/// A new broker is one file: this trait on a real server. `tests/consumers/worker.rs` lists the brokers for the
/// consumer processes, `tests/consumers/killed/mod.rs` and `tests/consumers/rules.rs` for the tests.
pub trait Broker: Sized + Send + Sync + 'static {
    /// The adapter under test.
    type Source: Source;

    /// The name in the options of a consumer process.
    const NAME: &'static str;

    /// Whether a kill at any moment leaves exactly one dead letter.
    const ONE_LETTER: bool;

    /// Whether the server keeps its data over a kill.
    const RESTARTS: bool = true;

    /// The permitted silence of a consumer, beyond its lease.
    const SILENCE: Duration = Duration::ZERO;

    /// The number of consumers that an ordinary run kills, stalls and replaces.
    const FAULTS: [usize; 3] = [6, 3, 2];

    /// Starts a server that keeps its data over a kill, where possible.
    fn start() -> impl Future<Output = Self> + Send;

    /// A queue of its own on a server that may be shared.
    fn shared() -> impl Future<Output = Self> + Send {
        Self::start()
    }

    /// What [`source`](Self::source) connects to, in a process of its own.
    fn url(&self) -> String;

    /// Sends messages whose id and payload are both this text.
    fn send(&self, ids: &[String]) -> impl Future<Output = ()> + Send;

    fn kill(&self);

    /// Starts it again, with its data.
    fn revive(&self);

    /// The number of messages that are not settled; at least 1 while one is not delivered.
    fn unsettled(&self) -> impl Future<Output = usize> + Send;

    /// The ids of the messages that are settled; `None` if the broker does not tell.
    fn settled(&self) -> impl Future<Output = Option<Vec<String>>> + Send {
        async { None }
    }

    /// The id and the reason of each dead letter.
    fn dead_letters(&self) -> impl Future<Output = Vec<(String, String)>> + Send;

    /// A consumer of the queue. Its messages are delivered again after this time unless extended.
    fn source(
        url: &str,
        held: Duration,
    ) -> impl Future<Output = Result<Self::Source, BrokerError>> + Send;
}

/// Settings of a consumer process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ConsumerSettings {
    pub broker: String,
    /// Of the broker.
    pub url: String,
    /// URL of the store of the records: `redis://…` or `postgres://…`.
    pub store: String,
    pub bank: SocketAddr,
    /// The bank's name for this process.
    pub name: u32,
    pub lease: Duration,
    pub concurrency: usize,
    pub attempts: u16,
    /// Writes a row in the message's transaction, in the store.
    pub tx: bool,
}

/// A broker that may forget the subscription of its consumers.
pub trait Subscribed: Broker {
    /// The parts of the subscription's name.
    const NAMES: [&'static str; 2];

    /// Sets where the source continues.
    fn on_lost(source: Self::Source, on_lost: OnLostSubscription) -> Self::Source;

    fn unsubscribe(&self) -> impl Future<Output = ()> + Send;

    /// Whether the subscription is there.
    fn is_subscribed(&self) -> impl Future<Output = bool> + Send;

    /// Drops a delivery of a deleted subscription. Checks its verdict where that is an error.
    fn forgotten(delivery: <Self::Source as Source>::Delivery) -> impl Future<Output = ()> + Send {
        async move { drop(delivery) }
    }
}
