//! The Redis store on a cluster: routing of its commands while slots move, and nodes fall silent or die
//! and are replaced.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

#[path = "../../watching/client.rs"]
#[expect(dead_code, reason = "of a test binary with other needs")]
mod client;
mod lost_replies;
mod redirects;
mod rights;
mod setup;
mod start;
mod waiting;
mod waiting_through_changes;
