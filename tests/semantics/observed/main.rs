//! What an operator sees of a call: its span, its events and its metrics, by a subscriber and an exporter of this
//! process.
//!
//! Each test has an operation of its own, by whose name it finds its spans and its metrics.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]
#![allow(
    clippy::float_cmp,
    reason = "samples of counters are whole numbers, which an f64 holds exactly"
)]

mod composition;
mod metrics;
mod secrets;
mod seen;
mod spans;
mod support;
