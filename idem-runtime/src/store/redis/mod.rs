//! Redis store: one string per key, one round trip per operation.

mod builder;
mod change;
mod claim;
mod cluster;
mod complete;
mod connect;
mod endpoint;
mod failure;
mod link;
mod listing;
mod notify;
mod probe;
mod read;
mod script;
mod sentinel;
mod server;
mod source;
mod store;
mod subscriber_connection;
mod topology;
mod wire;

pub use self::builder::RedisStoreBuilder;
pub use self::probe::Report;
pub use self::server::Durability;
pub use self::source::RedisSource;
pub use self::store::RedisStore;
