//! Parts that the examples share.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "parts of programs, which an error or a missing server ends with its text"
)]

pub mod checkout;
pub mod kept;
pub mod scenario;
pub mod zookeeper_store;
