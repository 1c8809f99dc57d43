//! Consumers: one effect per message, on a queue in memory and on real brokers.

mod memory;
mod redis_streams;
