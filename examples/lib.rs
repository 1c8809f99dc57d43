//! Parts that the examples share.

pub mod payments;
