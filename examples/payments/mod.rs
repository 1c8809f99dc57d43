//! A payment service whose calls are idempotent, driven by a webhook log with repeats.
//!
//! Start reading at [`service`]: three annotated functions. The rest is for the demonstration:
//! a log ([`delivery`], [`generator`]), a client that calls again ([`client`]), doubles that fail
//! ([`provider`], [`faults`]), counters ([`counts`]) and a check ([`check`]). State that outlives
//! the process is in a [`database`], and in the [`notes`] of the doubles.

mod agreement;
pub mod args;
pub mod check;
pub mod client;
pub mod counts;
pub mod damage;
pub mod database;
pub mod delivery;
pub mod error;
pub mod faults;
pub mod generator;
pub mod ledger;
pub mod money;
pub mod notes;
pub mod place;
pub mod progress;
pub mod provider;
mod random;
pub mod report;
pub mod request;
pub mod run;
pub mod service;
mod sql;
