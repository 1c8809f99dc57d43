//! The harness against real servers: what tests that use it would not show.
//!
//! A proxy, a partition, a setting or a client that does nothing makes the tests that use it fail.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod kinds;
mod postgres;
mod servers;
