//! `#[idempotent]` on axum handlers.

mod endings;
mod extractors;
mod handlers;
mod orders;
mod replies;
mod shop;
mod tenants;
