//! The layer for the `Idempotency-Key` header, around routers of axum and services of tower.

mod bodies;
mod challenges;
mod draft;
mod endings;
mod foreign_answers;
mod key_domains;
mod key_sources;
mod many_clients;
mod middleware;
mod problems;
mod profiles;
mod quotas;
mod reconciling;
mod refusals;
mod replays;
mod running;
mod settings;
mod slow_bodies;
mod smuggling;
mod spans;
mod wording;
