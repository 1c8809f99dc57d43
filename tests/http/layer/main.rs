//! The layer for the `Idempotency-Key` header, around routers of axum and services of tower.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod bodies;
mod challenges;
mod client;
mod disconnects;
mod draft;
mod fingerprints;
mod foreign_answers;
mod handler_endings;
mod killed_process;
mod many_clients;
mod middleware;
mod nested_layers;
mod outages;
mod panics;
mod payments;
mod problems;
mod quotas;
mod reconciling;
mod refusals;
mod replays;
mod running;
mod server;
mod settings;
mod slow_bodies;
mod smuggling;
mod spans;
