//! The [`Store`] contract as test cases, for any store.
//!
//! A [`Fixture`] gives the suite access to a store, to its time and to its raw data. [`cases`] returns the cases: each
//! is named with a sentence, has the number of the rule that it tests, and panics with a message when the store is
//! wrong. A store that passes all of them may be used by an [`Engine`](crate::Engine).
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
//! use idem_runtime::conformance::{BoxFuture, Fixture, Plant, cases};
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

/// Lists the cases of a file, the rule that each tests, and its tag.
macro_rules! cases {
    ($($rule:literal $name:ident $(: $tag:ident)?,)+) => {
        pub(super) fn cases() -> Vec<super::Case> {
            vec![$(super::Case {
                name: stringify!($name),
                rule: $rule,
                tag: cases!(@tag $($tag)?),
                run: |fixture| Box::pin($name(super::probe::Probe::new(fixture))),
            }),+]
        }
    };
    (@tag) => { super::Tag::Decision };
    (@tag transport) => { super::Tag::Transport };
}

/// Destructures a reply, or panics at the line of the case with the actual reply.
macro_rules! expect {
    ($reply:expr, $pattern:pat => $out:expr $(, $($why:tt)+)?) => {
        match $reply {
            $pattern => $out,
            other => panic!(
                "expected `{}`, the store said `{other:?}`{}",
                stringify!($pattern),
                expect!(@why $($($why)+)?),
            ),
        }
    };
    (@why) => { "" };
    (@why $($why:tt)+) => { format!(": {}", format_args!($($why)+)) };
}

mod at_hand;
mod attempts;
mod bodies;
mod claims;
mod completing;
mod completions;
mod faulty;
mod fences;
mod fingerprints;
mod forward;
mod keys;
mod late;
mod leases;
mod life;
mod listening;
mod listings;
mod patience;
mod probe;
mod races;
mod reads;
mod reconciled;
mod reconciling;
mod releases;
mod renewals;
mod repeats;
mod resets;
mod resolving;
mod room;
mod starting;
mod types;
mod unknown;
mod unreadable;
mod watching;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use self::faulty::{Fault, Faulty, Operation, Sent};
pub use self::forward::Forward;
use crate::store::{RecordKey, Store};

/// A boxed future that is `Send`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store under test, with the privileged access of a test.
///
/// One fixture serves one case: there must be no record under its [`prefix`](Self::prefix), or under one that begins
/// with it.
pub trait Fixture: Send + Sync {
    /// The store. Each call may return another client of the same store.
    fn store(&self) -> Arc<dyn Store>;

    /// The prefix of this fixture's keys.
    fn prefix(&self) -> Arc<str>;

    /// Moves the store's time forward for all keys under the prefix.
    ///
    /// A server whose clock cannot be moved ages the records instead: the remaining life of each is reduced by `by`,
    /// and an expired one is deleted.
    fn advance(&self, by: Duration) -> BoxFuture<'_, ()>;

    /// Writes a value under a key, bypassing the store. Returns `false`, and changes nothing, if this kind of store
    /// cannot hold such a value.
    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool>;

    /// Reads the bytes under a key, bypassing the store.
    ///
    /// `None` if there is no live value, or one that is not bytes.
    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>>;

    /// The most that the store's time advances by itself during a case.
    ///
    /// Zero, the default, is a clock that stands still. Times are tested to the millisecond, less this.
    ///
    /// At most 20 seconds.
    fn drift(&self) -> Duration {
        Duration::ZERO
    }

    /// The time limit of a [`Watch`](crate::store::Watch) notification, by the machine's clock.
    ///
    /// After it the store is taken for one that does not notify. 20 seconds, the default, is long enough for a busy
    /// machine.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }

    /// A fixture of an empty store of the same kind with little capacity.
    ///
    /// It holds at most some thousand records of 16 KiB each. `None`, the default, if this kind of store is never full.
    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        Box::pin(async { None })
    }
}

/// A value that [`Fixture::plant`] writes under a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Plant {
    /// Bytes that expire.
    Bytes {
        /// The bytes, a record or not.
        bytes: Vec<u8>,
        /// Their life.
        life: Duration,
    },
    /// Bytes without an expiry.
    Immortal {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A value of another type than that of records, such as a Redis list.
    OtherType,
}

/// The difference between stores that makes a case relevant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tag {
    /// The deciding code. Stores that share it, and differ only in the transport, pass together.
    Decision,
    /// The transport as well: the connection, its protocol, the topology, the rights of a user, large bodies. Such a
    /// case should run on every kind of connection.
    Transport,
}

/// A test of one rule of the contract.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// The requirement on a store, in words.
    pub name: &'static str,
    /// The number of the rule in the contract of [`Store`].
    pub rule: u8,
    /// The difference that makes the case relevant.
    pub tag: Tag,
    /// Runs the case, which panics if the store is wrong.
    pub run: fn(Arc<dyn Fixture>) -> BoxFuture<'static, ()>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("rule", &self.rule)
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

/// All cases, in the order of their subjects.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        claims::cases(),
        completions::cases(),
        completing::cases(),
        releases::cases(),
        renewals::cases(),
        repeats::cases(),
        leases::cases(),
        life::cases(),
        late::cases(),
        fences::cases(),
        attempts::cases(),
        fingerprints::cases(),
        types::cases(),
        unreadable::cases(),
        keys::cases(),
        bodies::cases(),
        reads::cases(),
        at_hand::cases(),
        reconciling::cases(),
        reconciled::cases(),
        starting::cases(),
        unknown::cases(),
        resolving::cases(),
        resets::cases(),
        races::cases(),
        room::cases(),
        watching::cases(),
        listening::cases(),
        listings::cases(),
    ]
    .concat()
}
