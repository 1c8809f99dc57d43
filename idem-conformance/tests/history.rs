//! The printed history of a flawed store is code that compiles, fails on that store and passes on a right one.

#![allow(
    clippy::unwrap_used,
    unused_qualifications,
    reason = "the printed code, as it is pasted"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idem_conformance::{BoxFuture, Fixture, Plant, sequences};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Header, Journal, Owner, ReadReply, RecordKey,
    ReleaseReply, Remains, RenewReply, ResolveReply, Store, StoreFuture,
};
use tokio::runtime::Runtime;

include!("golden/history.rs");

/// A memory store, whose releases may be those of every owner.
#[derive(Clone, Debug)]
struct Careless {
    store: MemoryStore,
    clock: ManualClock,
    takes_any_owner: bool,
}

impl Careless {
    fn fixture(takes_any_owner: bool) -> Arc<dyn Fixture> {
        let clock = ManualClock::new();
        Arc::new(Self {
            store: MemoryStore::builder().clock(clock.clone()).build(),
            clock,
            takes_any_owner,
        })
    }
}

impl Store for Careless {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        self.store.claim(key, request)
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        self.store.complete(key, record)
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::pending(async move {
            let owner = match self.store.read(key).await? {
                ReadReply::Found { record, .. } if self.takes_any_owner => record.header.owner,
                _ => *owner,
            };
            self.store.release(key, &owner, remains).await
        })
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        self.store.renew(key, claim)
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        self.store.resolve(key, seen, journal, record)
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        self.store.read(key)
    }
}

impl Fixture for Careless {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn prefix(&self) -> Arc<str> {
        "careless".into()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(by);
        Box::pin(async {})
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        let Plant::Bytes { bytes, life } = plant else {
            return Box::pin(async { false });
        };
        self.store.plant(key, bytes.into(), life);
        Box::pin(async { true })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let bytes = self.store.peek(key);
        Box::pin(async { bytes.map(Into::into) })
    }
}

/// Every history is printed so that it can be pasted. `IDEM_GOLDEN=overwrite` writes the golden anew.
#[test]
fn the_shortest_history_is_printed_as_code() {
    let runtime = Runtime::new().expect("a runtime starts");
    let sound = runtime.block_on(sequences(Careless::fixture(false), 0..50));
    assert!(sound.is_ok(), "{}", sound.unwrap_err());
    let found = runtime.block_on(sequences(Careless::fixture(true), 0..50));
    let history = found.expect_err("a release by another owner is found");
    assert_eq!(history.calls(), 2);
    if std::env::var_os("IDEM_GOLDEN").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/history.rs");
        std::fs::write(file, history.to_string()).expect("the golden can be written");
    }
    assert_eq!(history.to_string(), include_str!("golden/history.rs"));
}

#[test]
fn the_printed_code_passes_on_a_right_store() {
    let runtime = Runtime::new().expect("a runtime starts");
    runtime.block_on(history(&Careless::fixture(false)));
}

#[test]
#[should_panic(expected = "Superseded")]
fn the_printed_code_fails_on_the_store_in_which_it_was_found() {
    let runtime = Runtime::new().expect("a runtime starts");
    runtime.block_on(history(&Careless::fixture(true)));
}
