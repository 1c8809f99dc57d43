//! A payment service whose calls are idempotent, driven by a webhook log with repeats.
//!
//! Start reading at [`service`]: three annotated functions. The rest is for the demonstration: a log ([`request`]), a
//! client that calls again ([`client`]), doubles that fail ([`provider`], [`faults`]), the books ([`ledger`]) and a
//! check ([`check`]). State that outlives the process is in the ledger's database, and in the [`notes`] of the doubles.

pub mod args;
pub mod check;
pub mod client;
pub mod counts;
pub mod error;
pub mod faults;
pub mod ledger;
pub mod notes;
pub mod place;
pub mod provider;
pub mod report;
pub mod request;
pub mod service;
