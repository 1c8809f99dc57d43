//! The contract of [`idem_runtime::store::Store`] as test cases, for any store.
//!
//! A [`Fixture`] gives the suite access to a store, to its time and to its raw data. [`cases`] returns the cases: each
//! is named with a sentence, has the number of the rule that it tests, and panics with a message when the store is
//! wrong. A store that passes all of them may be used by an [`Engine`](idem_runtime::Engine).
//!
//! Cases run on a tokio runtime. One with several threads makes the cases of rule 1 race for real. Each case needs a
//! fixture of its own with a prefix of its own; cases of different prefixes can run at the same time.
//!
//! # Examples
//!
//! The tests of a custom store. In a target with `harness = false` the loop would pass each case to libtest-mimic,
//! `Trial::test(case.name, …)`, so that cases can be selected by name.
//!
//! ```
//! use idem_runtime::clock::ManualClock;
//! use idem_conformance::{BoxFuture, Fixture, Plant, cases};
//! use idem_runtime::store::memory::MemoryStore;
//! use idem_runtime::store::{RecordKey, Store};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! struct InMemory {
//!     store: MemoryStore,
//!     clock: ManualClock,
//!     prefix: String,
//! }
//!
//! impl Fixture for InMemory {
//!     fn store(&self) -> Arc<dyn Store> {
//!         Arc::new(self.store.clone())
//!     }
//!
//!     fn prefix(&self) -> Arc<str> {
//!         self.prefix.as_str().into()
//!     }
//!
//!     fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
//!         self.clock.advance(by);
//!         Box::pin(async {})
//!     }
//!
//!     fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
//!         let Plant::Bytes { bytes, life } = plant else {
//!             return Box::pin(async { false }); // everything in here is bytes and expires
//!         };
//!         self.store.plant(key, bytes.into(), life);
//!         Box::pin(async { true })
//!     }
//!
//!     fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
//!         let bytes = self.store.peek(key);
//!         Box::pin(async { bytes.map(Into::into) })
//!     }
//! }
//!
//! let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
//! for case in cases() {
//!     println!("rule {}: {}", case.rule, case.name);
//!     let clock = ManualClock::new();
//!     let fixture = InMemory {
//!         store: MemoryStore::builder().clock(clock.clone()).build(),
//!         clock,
//!         prefix: case.name.to_owned(),
//!     };
//!     runtime.block_on((case.run)(Arc::new(fixture)));
//! }
//! ```

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "a case whose times do not fit panics, as it should"
)]

#[macro_use]
mod macros;

mod at_hand;
mod attempts;
mod bodies;
mod case;
mod claims;
mod completing;
mod completions;
mod fences;
mod fingerprints;
mod fixture;
mod journals;
mod keys;
mod late;
mod leases;
mod life;
mod listening;
mod listings;
mod notified_in_time;
mod probe;
mod races;
mod reads;
mod reconciled;
mod reconciling;
mod recorded_attempts;
mod releases;
mod renewals;
mod repeats;
mod resets;
mod resolving;
mod room;
mod starting;
mod suite;
mod types;
mod unknown;
mod unreadable;
mod watching;

pub use self::case::{Case, Tag};
pub use self::fixture::{BoxFuture, Fixture, Plant};
pub use self::suite::cases;
