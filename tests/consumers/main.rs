//! Consumers: one effect per message, on a queue in memory and on real brokers.

#![allow(
    clippy::unwrap_used,
    reason = "a part of a test panics when it does not get what it needs"
)]

mod adapter;
mod credentials;
mod desk;
mod faulty_adapters;
mod in_tx;
mod in_tx_mysql_async;
#[cfg(feature = "kafka")]
mod kafka;
mod killed;
mod losses;
mod memory;
mod nats;
mod pools;
mod rabbitmq;
mod rabbitmq_tls;
mod redis_streams;
mod rules;
mod sea_orm;
mod verdicts;
