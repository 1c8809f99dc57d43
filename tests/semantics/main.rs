//! The rows of the semantics table, each on every store: what a caller gets, and how often the
//! body ran.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod answers;
mod completion;
mod duplicates;
mod endings;
mod engines;
mod extremes;
mod leases;
mod mishaps;
mod outages;
mod outcomes;
mod provenance;
mod review;
