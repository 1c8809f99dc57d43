//! The rows of the semantics table, each on every store: what a caller gets, and how often the
//! body ran.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod answers;
mod attempts;
mod cancellation;
mod completion;
mod context;
mod duplicates;
mod endings;
mod engines;
mod entries;
mod entries_of_functions;
mod extremes;
mod finish;
mod leaders;
mod lease_cancelled;
mod lease_lost;
mod leases;
mod mishaps;
mod outages;
mod outcomes;
mod provenance;
mod reconciling;
mod reconciling_faults;
mod renewing;
mod requests;
mod resets;
mod review;
mod running_limit;
mod shutdown;
mod stage;
mod storing;
mod turns;
mod types;
mod unconfirmed;
mod unknown;
mod unprotected;
mod waiting;
mod waiting_far;
