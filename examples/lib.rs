//! Parts that the examples share.

pub mod checkout;
pub mod kept;
pub mod scenario;
pub mod zookeeper_store;
