//! A fast store in front of a durable one, as one store.

mod background;
mod breaker;
mod builder;
mod epochs;
mod layers;
mod lazy;
mod stats;
mod store;
mod unacked;

pub use self::builder::LayeredStoreBuilder;
pub use self::lazy::LazyStore;
pub use self::stats::LayeredStats;
pub use self::store::LayeredStore;
