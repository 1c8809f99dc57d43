//! Idempotency for async Rust.
