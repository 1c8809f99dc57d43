//! The benchmarks of `idem-runtime/benches`, and `overload`, in very short rounds: that they run, and that what they print is
//! what it should be. How fast anything is does not matter here.
//!
//! `scripts/test bench` builds them as tests are built, and tells where they are. Not among the tests that
//! `cargo test` runs by itself, which would not find them.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod engine_load;
mod growth;
mod line;
mod micro;
mod options;
mod overload;
mod program;
mod redis_load;
mod row;
mod sql_load;
