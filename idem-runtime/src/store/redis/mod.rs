//! Redis store: one string per key, one round trip per operation.

mod address;
mod append;
mod arguments;
mod batches;
mod builder;
mod claim;
mod cluster;
mod complete;
mod connect;
mod core;
mod durability;
mod endpoint;
mod failure;
mod front;
mod limits;
mod link;
mod listing;
mod notify;
mod poll;
mod probe;
mod read;
mod release;
mod renew;
mod reply;
mod resolve;
mod script;
mod sentinel;
mod server;
mod source;
mod store;
mod subscriber_connection;
#[cfg(feature = "redis-tls")]
mod tls;
mod topology;
mod value;
mod watch;
mod wire;

pub use self::builder::RedisStoreBuilder;
pub use self::durability::Durability;
pub use self::probe::{Report, Server};
pub use self::source::RedisSource;
pub use self::store::RedisStore;
