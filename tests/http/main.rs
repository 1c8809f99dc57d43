//! idem over HTTP: the layer for the `Idempotency-Key` header, and `#[idempotent]` on handlers of axum.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod attribute;
mod client;
mod grpc;
mod layer;
mod partners;
mod server;
