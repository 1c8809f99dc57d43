//! HTTP: the `Idempotency-Key` header.
//!
//! After [draft-ietf-httpapi-idempotency-key-header-07][draft]: a client names a request by a key of its own, and
//! sends the same key when it repeats the request; the first one is worked on, and every repeat gets its answer.
//!
//! [draft]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07
#![cfg_attr(feature = "axum", doc = include_str!("docs/axum.md"))]

mod body;
mod exchange;
#[cfg(feature = "axum")]
mod extract;
mod headers;
mod key;
mod layer;
mod problem;
mod reply;
mod request;
mod scope;
mod service;
mod status;
mod wire;

pub use self::body::{Buffered, RequestBody, ResponseBody};
pub use self::key::{IDEMPOTENCY_KEY, IdempotencyKey, KeyRefusal, KeyRules};
pub use self::layer::IdempotencyLayer;
pub use self::problem::Problem;
pub use self::reply::Reply;
pub use self::service::{IDEMPOTENT_REPLAYED, Idempotency};
pub use self::status::{StatusPolicy, Verdict};
