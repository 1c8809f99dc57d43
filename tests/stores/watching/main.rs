//! Watches of a key: notification by each store, its content, and connections that do not
//! outlive the wait.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod broken;
mod client;
mod cluster;
mod memory;
mod redis;
mod refused;
mod runtimes;
