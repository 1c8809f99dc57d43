//! The harness against real servers.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod brokers;
mod cluster;
mod database;
mod databases;
mod kinds;
mod partition;
mod proxy;
mod redis;
mod sentinel;
mod servers;
mod tls;
mod worker;
