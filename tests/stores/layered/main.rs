//! Engines on a fast store in front of a durable one: what calls cost, and that nothing the fast store
//! does leads to a second run or another answer.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

/// The writes of a fast store in memory with replaced lookups.
macro_rules! changes_its_copies {
    () => {
        fn keep<'a>(
            &'a self,
            key: &'a RecordKey,
            copy: &'a bytes::Bytes,
            left: Duration,
        ) -> StoreFuture<'a, ()> {
            self.copies.keep(key, copy, left)
        }

        fn forget<'a>(
            &'a self,
            key: &'a RecordKey,
            owner: Option<&'a Owner>,
        ) -> StoreFuture<'a, ()> {
            self.copies.forget(key, owner)
        }
    };
}

mod damaged_copies;
mod fixture;
mod local_cache;
mod outages;
mod prelude;
mod replays;
mod resets;
mod warnings;
