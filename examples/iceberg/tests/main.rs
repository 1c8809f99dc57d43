//! The catalog: rules of keys, and `PyIceberg` through faults and kills.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod kills;
mod network;
mod printed;
mod pyiceberg;
mod rules;
mod service;
