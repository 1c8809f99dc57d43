//! Leases and expiries of records follow the clock of the server: the effect of a clock step, and its reports. The
//! servers are real, and so is the step: see [`idem_harness::FakeClock`].

mod fixture;
mod no_step;
mod servers;
mod sqlite;
mod steps;
