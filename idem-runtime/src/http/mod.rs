#![cfg_attr(all(doc, not(doctest)), doc = include_str!("../docs/links.txt"))]
//! HTTP: the `Idempotency-Key` header.
//!
//! After [draft-ietf-httpapi-idempotency-key-header-07][draft]: a client names a request by a key of its own, and sends
//! the same key when it repeats the request; the first one is executed, and every repeat gets its answer.
//!
//! [`IdempotencyLayer`] does it for every service of tower and every router of axum, whatever its handlers are: it
//! stores the response.
//!
//! | the request | the response | reference |
//! |---|---|---|
//! | has no key, and needs one | 400 `key-missing` | draft, 2.7 |
//! | has a key that is not one string, too long, or two of them | 400 `key-invalid` | draft, 2.1; RFC 8941, 3.3.3 |
//! | has no caller that the scope recognizes | 403 `caller-unknown` | draft, 2.2 and 5 |
//! | has a body that is too long, too slow, or breaks off | 413 `body-too-large`, 408 `body-timeout`, 400 `body-unreadable` | RFC 9110, 15.5.14 and 15.5.9 |
//! | is the first with its key | the handler's response | draft, 2.6 |
//! | would be executed, and too many are running | 503 `too-many-running` with `Retry-After`: [`max_running`](IdempotencyLayer::max_running) | RFC 9110, 15.6.4 |
//! | would be executed, and its caller's quota is used up | 429 `quota-exceeded` with `Retry-After`: [`quota`](IdempotencyLayer::quota) | RFC 6585, 4 |
//! | has a key that came with another request ([`Fingerprinter`]) | 422 `key-reused` | draft, 2.4 and 2.7 |
//! | repeats a running request | the response, if it comes within 5 s; then 409 `request-running` with `Retry-After` | draft, 2.6 and 2.7, where it is 409 at once: [`on_running`](IdempotencyLayer::on_running) |
//! | is executed, and the store does not confirm its response in time | 503 `answer-unconfirmed` with `Retry-After`; its repeat gets the response | [`on_unconfirmed`](IdempotencyLayer::on_unconfirmed) |
//! | repeats a finished request | its status, [stored headers](IdempotencyLayer#headers-that-are-stored) and body, and `idempotent-replayed: true` | draft, 2.6 |
//! | repeats a finished request, where repeats are refused | 409 `request-repeated` with `Retry-After` | [`on_duplicate`](IdempotencyLayer::on_duplicate) |
//! | repeats a request refused with nothing done (by default 400, 403, 404, 422, 429, 503, …), or that got a challenge (401, 428, 402 with a demand for payment, …) | the handler's new response | [`StatusPolicy`] |
//! | repeats one of unknown outcome (by default 500, 502, 504, …, a panic) | 500 `outcome-unknown`, [until that is known](#a-request-of-unknown-outcome) | [`StatusPolicy::ambiguous`] |
//! | repeats one whose attempts all crashed | 500 `attempts-exhausted` | [`max_attempts`](IdempotencyLayer::max_attempts) |
//! | repeats one whose response is being streamed, or was cut off | 409 `request-running` with `Retry-After`; once the stream has ended, the response; `max_run` after a cut, 500 `outcome-unknown` | draft, 2.6: [streams](IdempotencyLayer#streams) |
//! | repeats one whose response was too large, or a stream that is not recorded | 500 `answer-lost` | [`IdempotencyLayer::max_response_bytes`], [`record_streams`](IdempotencyLayer::record_streams) |
//! | comes while the store is down, or the engine shuts down | 503 `unavailable` with `Retry-After` | RFC 9110, 15.6.4 |
//! | any, of a layer with a setting out of its bounds | 500 `misconfigured` | RFC 9110, 15.6.1 |
//!
//! idem's own responses are a [`Problem`]: a document after RFC 9457, or in the wording of a partner's API ([`Refusals`]).
//!
//! # A request of unknown outcome
//!
//! A repeat of it gets 500 `outcome-unknown` until it is known whether the first was done. That can be determined
//!
//! - by the service: [`IdempotencyLayer::reconcile`] queries the provider before a repeat is refused;
//! - by an operator: [`IdempotencyLayer::entry`] finds the record by the key that the client names, and
//!   [`Engine::entry`](crate::Engine::entry) by the digest that an event has. If it was done,
//!   [`Entry::resolve_response`](crate::admin::Entry::resolve_response) stores the response that the client has missed, and
//!   every repeat gets it. If it was not done, and can no longer be, [`Entry::reset`](crate::admin::Entry::reset) lets the
//!   next repeat be executed.
//!
//! [draft]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07
#![doc = include_str!("../docs/middleware.md")]
#![cfg_attr(feature = "axum", doc = include_str!("../docs/axum.md"))]

mod body;
mod domain;
mod exchange;
#[cfg(feature = "axum")]
mod extract;
mod fingerprint;
mod headers;
mod iso8601;
mod key;
mod layer;
mod mark;
mod payment;
mod pointer;
mod problem;
mod profile;
mod protocol;
mod recording;
mod refusals;
mod replayed;
mod reply;
mod request;
mod resolve;
mod scope;
mod service;
mod settings;
mod source;
mod status;
mod target;
mod wire;

pub use self::body::Buffered;
#[cfg(feature = "tonic")]
pub(crate) use self::body::Collected;
pub use self::domain::KeyDomain;
pub use self::fingerprint::Fingerprinter;
pub use self::iso8601::iso8601_duration;
pub use self::key::{IDEMPOTENCY_KEY, IdempotencyKey, KeyRefusal, KeyRules};
pub use self::layer::IdempotencyLayer;
pub use self::mark::{MarkReplays, MarkedReplays};
pub use self::problem::Problem;
pub use self::profile::Profile;
#[cfg(feature = "tonic")]
pub(crate) use self::protocol::{Counter, Messages, Protocol};
pub use self::refusals::{Refusal, Refusals};
pub use self::replayed::IDEMPOTENT_REPLAYED;
pub use self::reply::Reply;
pub use self::service::Idempotency;
#[cfg(feature = "tonic")]
pub(crate) use self::service::{ServiceFuture, pass, protect, refuse};
#[cfg(feature = "tonic")]
pub(crate) use self::settings::LayerSettings;
pub use self::source::KeySource;
pub use self::status::{KeyVerdict, StatusPolicy};
