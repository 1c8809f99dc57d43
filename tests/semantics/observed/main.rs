//! An operator's view of a call: span, events and metrics. This process has a subscriber and an exporter.
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
