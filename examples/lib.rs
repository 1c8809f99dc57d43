//! Parts that the examples share.

pub mod checkout;
pub mod custom_store;
pub mod payments;
