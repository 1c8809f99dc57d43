//! Leases and the lives of records go by the clock of the server: what a step of it does, and who hears
//! of it. The servers are real, and so is the step: see [`idem_harness::FakeClock`].

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod fixture;
mod no_step;
mod servers;
mod sqlite;
mod steps;
