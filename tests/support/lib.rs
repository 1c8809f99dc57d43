//! Parts that the tests share.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    missing_debug_implementations,
    missing_docs,
    reason = "a part of a test panics when it does not get what it needs, and its callers are tests"
)]

pub mod bounds;
pub mod brokers;
pub mod checker;
pub mod claims;
pub mod events;
pub mod faulty;
pub mod fixture;
mod layers;
pub mod lines;
mod memory;
pub mod orders;
pub mod payment;
pub mod polls;
mod redis;
pub mod secret;
pub mod seeded;
pub mod shop;
pub mod sql;

pub use self::redis::{InRedis, Redis, Shape, sentinel_url};
pub use layers::InLayers;
pub use memory::InMemory;
