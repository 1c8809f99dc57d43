//! Consumers of message brokers: one effect per message, however often it is delivered.
//!
//! A broker delivers at least once: again after a crash, a time-out, a rebalance, an acknowledgement that was lost. A
//! [`Consumer`] takes deliveries from a [`Source`], runs the handler as an idempotent call whose key is the message's
//! id, and settles each delivery by the result: the second delivery of a finished message is acknowledged, and the
//! handler does not run.
//!
//! | result of the call | verdict |
//! | --- | --- |
//! | a value, now or stored | acknowledge |
//! | a business error | dead letter, or acknowledge: [`Consumer::on_business_error`] |
//! | a system error | retry, after a pause that doubles from 1 s to 1 min |
//! | an unknown outcome | dead letter: an operator resolves the record and sends the message again |
//! | a refusal of idem | as [`Error::verdict`](crate::Error::verdict) |
//! | a panic | retry; the attempt counts |
//! | `n` failed or abandoned attempts | dead letter: [`Consumer::dead_letter_after`] |
//!
//! # Subscriptions
//!
//! The name of a message's record has its operation, its id and the subscription ([`Source::subscription`]): a second
//! consumer group, of another service, runs each message of its own, although operation and store are the same. All
//! processes of one subscription share its records. [`Consumer::subscription`] keeps the name where a queue is renamed
//! or moved.
//!
//! # Leases and the broker's deadline
//!
//! Every third of the lease, the delivery's own deadline is extended by one lease ([`Delivery::extend`]), for as long
//! as the lease is held. A body whose lease is lost is dropped at its next await, and its message is not acknowledged.
//! A delivery whose message is being handled elsewhere is held for at most one lease, so that redeliveries do not use
//! up the broker's delivery limit, and then given back.
//!
//! # Transactions
//!
//! With a SQL store, [`Consumer::in_tx`] commits a record of the message, the handler's rows and its answer in one
//! transaction, and acknowledges after the commit.
//!
//! # Examples
//!
//! ```
//! use idem_runtime::consumer::{Consumer, MemoryQueue};
//! use idem_runtime::{Classify, Context, Engine, store::memory::MemoryStore};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize)]
//! struct Bill { account: u64, cents: u64 }
//!
//! #[derive(Serialize, Deserialize, Classify)]
//! enum BillError {
//!     #[class(business)] NoSuchAccount,
//!     #[class(system)] DatabaseDown,
//! }
//!
//! async fn collect(bill: Bill, _: Context) -> Result<u64, BillError> {
//!     if bill.account == 0 { Err(BillError::NoSuchAccount) } else { Ok(bill.cents) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let queue = MemoryQueue::new();
//! queue.send("m-1", br#"{"account": 7, "cents": 1250}"#);
//! queue.send("m-1", br#"{"account": 7, "cents": 1250}"#); // sent again after a lost reply
//! queue.send("m-2", br#"{"account": 0, "cents": 1250}"#);
//! queue.close();
//!
//! let consumer = Consumer::new(Engine::new(MemoryStore::new()), "bills.collect").dead_letter_after(5);
//! let summary = consumer.run(queue.clone(), collect).await?;
//! assert_eq!((summary.acknowledged, summary.dead_letters), (2, 1));
//! assert_eq!(queue.dead_letters()[0].0, "m-2");
//! # Ok(()) }
//! ```

mod consume;
mod delivery;
mod handled;
#[cfg(feature = "_sql")]
mod in_tx;
#[cfg(feature = "nats")]
mod jet_stream;
#[cfg(feature = "kafka")]
mod kafka_topic;
mod memory_queue;
#[cfg(any(feature = "nats", feature = "redis-streams"))]
mod progress;
#[cfg(feature = "rabbitmq")]
mod rabbit_queue;
#[cfg(feature = "redis-streams")]
mod redis_stream;
mod run;
mod source_events;
mod subscription;
mod verdict;

pub use self::consume::{ConsumerError, Summary};
pub use self::delivery::{BrokerError, Delivery, Message, Raw, Source};
#[cfg(feature = "_sql")]
pub use self::in_tx::{ConsumerInTx, TxFuture};
#[cfg(feature = "nats")]
pub use self::jet_stream::builder::JetStreamBuilder;
#[cfg(feature = "nats")]
pub use self::jet_stream::{JetStream, JetStreamDelivery};
#[cfg(feature = "kafka")]
pub use self::kafka_topic::{KafkaDelivery, KafkaTopic};
pub use self::memory_queue::{MemoryDelivery, MemoryQueue};
#[cfg(feature = "rabbitmq")]
pub use self::rabbit_queue::builder::RabbitQueueBuilder;
#[cfg(feature = "rabbitmq")]
pub use self::rabbit_queue::{RabbitDelivery, RabbitQueue};
#[cfg(feature = "redis-streams")]
pub use self::redis_stream::builder::RedisStreamBuilder;
#[cfg(feature = "redis-streams")]
pub use self::redis_stream::{RedisStream, RedisStreamDelivery};
pub use self::run::{Consumer, DeliveryId, MessageId, OnBusinessError};
pub use self::source_events::SourceEvents;
pub use self::subscription::OnLostSubscription;
pub use self::verdict::{DeadLetterReason, Verdict};
