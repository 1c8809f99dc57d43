//! Stores for tests: one with faults at an exact operation, and one whose operations are overridden.
//!
//! [`ManualClock`](crate::clock::ManualClock) moves the time of a [`MemoryStore`](crate::store::memory::MemoryStore) and of
//! engines; the guide's page [`testing`](crate::guide::testing) shows them together. The crate `idem-conformance` checks a
//! store of your own.

mod faulty;
mod forward;

pub use self::faulty::{Fault, Faulty, Sent, StoreOperation};
pub use self::forward::Forward;
