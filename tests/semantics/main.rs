//! The rows of the semantics table, each on every store: answers and runs of bodies.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod answers;
mod attempts;
mod cancellation;
mod chosen_lives;
mod context;
mod cooperative_yield;
mod delayed_storing;
mod digest_keys;
mod duplicates;
mod engines;
mod entries;
mod entries_of_functions;
mod extreme_durations;
mod labels;
mod leader_handover;
mod lease_cancelled;
mod lease_lost;
mod leases;
mod on_cancel_finish;
mod one_answer;
mod open_steps;
mod outages;
mod outcomes;
mod prelude;
mod provenance;
mod reconciling;
mod reconciling_faults;
mod recorded_attempts;
mod requests;
mod resets;
mod rows;
mod running_limit;
mod sealed_steps;
mod shutdown;
mod steps;
mod support;
mod suspended;
mod tokens;
mod types;
mod unconfirmed;
mod unconfirmed_steps;
mod unknown;
mod unprotected;
