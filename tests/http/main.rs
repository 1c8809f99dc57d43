//! The layer for the `Idempotency-Key` header, around routers of axum and services of tower.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod basics;
mod bodies;
mod client;
mod crowd;
mod departures;
mod draft;
mod endings;
mod fingerprints;
mod killed;
mod middleware;
mod outages;
mod payments;
mod planted;
mod problems;
mod quotas;
mod refusals;
mod review;
mod running;
mod server;
mod settings;
mod settling;
mod slow_bodies;
mod smuggling;
mod spans;
