//! The catalog: its rules of keys, and `PyIceberg` behind a bad network and against one that is killed.

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
