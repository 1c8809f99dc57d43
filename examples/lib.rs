//! Parts that the examples share.

pub mod custom_store;
pub mod payments;
