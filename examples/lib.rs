//! Parts that the examples share.

pub mod checkout;
mod kept;
pub mod payments;
pub mod scenario;
pub mod zookeeper_store;
