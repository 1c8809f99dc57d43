#![doc = include_str!("../README.md")]
//!
//! # A history
//!
//! Printed for a store that releases a claim for every owner:
//!
//! ```
#![doc = include_str!("../tests/golden/history.rs")]
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "a case whose times do not fit panics, as it should"
)]

#[macro_use]
mod macros;

mod case;
mod claims;
mod completions;
mod exact;
mod fixture;
#[cfg(feature = "http")]
pub mod http;
mod journals;
mod life;
mod listings;
mod notifications;
mod notified;
mod probe;
mod races;
mod resolving;
mod room;
mod sequences;
mod suite;
mod unreadable;

pub use self::case::{Case, Tag};
pub use self::fixture::{BoxFuture, Fixture, Plant};
pub use self::sequences::{History, replay, sequences};
pub use self::suite::cases;
