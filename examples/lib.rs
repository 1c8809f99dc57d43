//! Parts that the examples share.

pub mod checkout;
pub mod custom_store;
mod kept;
pub mod payments;
