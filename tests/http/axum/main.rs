//! `#[idempotent]` on axum handlers, over real HTTP.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod client;
mod endings;
mod extractors;
mod handlers;
mod orders;
mod replies;
mod shop;
mod tenants;
