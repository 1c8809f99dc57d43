//! Watches of a key: notification by each store, its content, and connections that do not
//! outlive the wait.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

#[path = "watching/broken.rs"]
mod broken;
#[path = "watching/client.rs"]
mod client;
#[path = "watching/cluster.rs"]
mod cluster;
#[path = "watching/memory.rs"]
mod memory;
#[path = "watching/redis.rs"]
mod redis;
#[path = "watching/refused.rs"]
mod refused;
#[path = "watching/runtimes.rs"]
mod runtimes;
