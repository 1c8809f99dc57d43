// Its examples are compiled where the features are there that they use.
#![cfg_attr(
    any(not(doctest), feature = "postgres"),
    doc = include_str!("../README.md")
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A private feature: the items that it guards name the public ones by hand.
#![cfg_attr(
    docsrs,
    doc(auto_cfg(hide(feature = "_diesel", feature = "_sql", feature = "_sqlx")))
)]

#[macro_use]
mod debug;

#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis-streams"))]
mod builder;
mod consume;
mod delivery;
mod handler_error;
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
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis-streams"))]
mod reconnect;
#[cfg(feature = "redis-streams")]
mod redis_stream;
mod run;
mod source_events;
mod subscription;
#[cfg(feature = "_sql")]
mod tx_pool;
mod verdict;

#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis-streams"))]
#[doc(hidden)]
pub use self::builder::Connect;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis-streams"))]
pub use self::builder::SourceBuilder;
pub use self::consume::{ConsumerError, Summary};
pub use self::delivery::{BrokerError, Delivery, Message, Raw, Source};
pub use self::handler_error::HandlerError;
#[cfg(feature = "_sql")]
pub use self::in_tx::{ConsumerInTx, TxFuture};
#[cfg(feature = "nats")]
pub use self::jet_stream::{JetStream, JetStreamBuilder, JetStreamDelivery};
#[cfg(feature = "kafka")]
pub use self::kafka_topic::{KafkaDelivery, KafkaTopic};
pub use self::memory_queue::{MemoryDelivery, MemoryQueue};
#[cfg(feature = "rabbitmq")]
pub use self::rabbit_queue::builder::RabbitQueueBuilder;
#[cfg(feature = "rabbitmq")]
pub use self::rabbit_queue::{RabbitDelivery, RabbitQueue};
#[cfg(feature = "redis-streams")]
pub use self::redis_stream::{RedisStream, RedisStreamBuilder, RedisStreamDelivery};
pub use self::run::{Consumer, DeliveryId, MessageId, OnBusinessError};
pub use self::source_events::SourceEvents;
pub use self::subscription::OnLostSubscription;
#[cfg(any(feature = "bb8-postgres", feature = "deadpool-postgres"))]
pub use self::tx_pool::tokio_postgres::PooledTx;
#[cfg(feature = "_sql")]
pub use self::tx_pool::{TxPool, TxPoolError};
pub use self::verdict::{DeadLetterReason, Verdict};
