//! Faults around a Redis, one in each test: the error is clear, the body does not run
//! twice, and no answer is lost.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

#[path = "redis_faults/access.rs"]
mod access;
#[path = "redis_faults/background.rs"]
mod background;
#[path = "redis_faults/connections.rs"]
mod connections;
#[path = "redis_faults/records.rs"]
mod records;
#[path = "redis_faults/refusals.rs"]
mod refusals;
#[path = "redis_faults/replicated.rs"]
mod replicated;
#[path = "redis_faults/report.rs"]
mod report;
#[path = "redis_faults/restarts.rs"]
mod restarts;
#[path = "redis_faults/rights.rs"]
mod rights;
#[path = "redis_faults/silence.rs"]
mod silence;
#[path = "redis_faults/staged.rs"]
mod staged;
#[path = "redis_faults/tls.rs"]
mod tls;
#[path = "redis_faults/told.rs"]
mod told;
