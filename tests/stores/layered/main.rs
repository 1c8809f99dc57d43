//! Engines on a fast store in front of a durable one: what calls cost, and that nothing the fast store
//! does leads to a second run or another answer.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod damaged_copies;
mod fixture;
mod local_cache;
mod outages;
mod prelude;
mod replays;
mod resets;
mod warnings;
