//! The Redis store on a cluster: routing of its commands while slots move, and nodes fall silent or die
//! and are replaced.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

#[path = "cluster/answers.rs"]
mod answers;
#[path = "watching/client.rs"]
#[expect(dead_code, reason = "of a test binary with other needs")]
mod client;
#[path = "cluster/lost_replies.rs"]
mod lost_replies;
#[path = "cluster/redirects.rs"]
mod redirects;
#[path = "cluster/rights.rs"]
mod rights;
#[path = "cluster/setup.rs"]
mod setup;
#[path = "cluster/silence.rs"]
mod silence;
#[path = "cluster/start.rs"]
mod start;
#[path = "cluster/waiting.rs"]
mod waiting;
#[path = "cluster/waiting_through_changes.rs"]
mod waiting_through_changes;
