//! `#[idempotent]` on axum handlers.

mod extractors;
mod handlers;
mod orders;
mod replies;
mod shop;
mod tenants;
