//! The rows of the semantics table, each on every store: what a caller gets, and how often the
//! body ran.

#![allow(
    clippy::redundant_closure_for_method_calls,
    reason = "the closures read like the sentences that they test"
)]

mod completion;
mod duplicates;
mod endings;
mod engines;
mod leases;
mod outages;
mod outcomes;
