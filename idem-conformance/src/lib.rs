//! The contract of [`idem_runtime::store::Store`] as test cases, for any store.
//!
//! A [`Fixture`] gives the suite access to a store, to its time and to its raw data. [`cases`] returns the cases: each
//! is named with a sentence, has the number of the rule that it tests, and panics with a message when the store is
//! wrong. A store that passes all of them may be used by an [`Engine`](idem_runtime::Engine).
//!
//! Most rules are tested by *sequences* of operations: each reply of the store is compared with that of a model of its
//! records, which knows no transition of the runtime. Four cases make 40 sequences each, which a flaw that needs a rare
//! order escapes; [`sequences`] makes any number: run ten thousand before a store is used. The named cases beside them
//! test what a sequence cannot show: races, a full store, the bytes of names and answers, leases and lives to the
//! millisecond, and how soon notifications arrive.
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
//!
//! # Histories
//!
//! Where a reply is not the model's, the shortest history found that shows it is printed as code: with the calls, the
//! expected replies, and what was observed. Pasted into a test, it fails on that store. This one is of a store that
//! releases a claim for every owner:
//!
//! ```
#![doc = include_str!("../tests/golden/history.rs")]
//! ```

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
