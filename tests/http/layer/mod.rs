//! The layer for the `Idempotency-Key` header, around axum's routers and tower's services.

mod bodies;
mod challenges;
mod draft;
mod endings;
mod foreign_answers;
mod key_domains;
mod key_sources;
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
mod streams;
mod wording;
