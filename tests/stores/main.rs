//! Stores without faults of their servers: clocks, commands and their costs, listings, processes that share a key, and
//! watches.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod clock;
mod listings;
mod memory;
mod processes;
#[path = "redis/commands.rs"]
mod redis_commands;
mod watching;
