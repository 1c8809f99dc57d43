//! A durable store that counts its claims and completions.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Header, ReadReply, Record, RecordKey, StoreFuture,
};
use idem_runtime::testing::Forward;

use crate::prelude::*;

#[derive(Default)]
struct Counts {
    claims: AtomicUsize,
    completions: AtomicUsize,
    reads: AtomicUsize,
}

/// Reads of the epoch are not counted, because the clock causes them and not a call.
#[derive(Clone)]
pub(crate) struct Counted {
    store: Arc<dyn Store>,
    counts: Arc<Counts>,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counted").field(&self.store).finish()
    }
}

fn count(counter: &AtomicUsize, key: &RecordKey) {
    if key.operation().as_str() != "idem.epoch" {
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counted {
    pub(crate) fn memory() -> Self {
        Self::over(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn over(store: Arc<dyn Store>) -> Self {
        let counts = Arc::default();
        Self { store, counts }
    }

    /// Claims and completions so far.
    pub(crate) fn asked(&self) -> (usize, usize) {
        let read = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        (read(&self.counts.claims), read(&self.counts.completions))
    }

    pub(crate) fn reads(&self) -> usize {
        self.counts.reads.load(Ordering::SeqCst)
    }
}

impl Forward for Counted {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        count(&self.counts.claims, key);
        self.store.claim(key, request)
    }

    /// Disabled, so that every call sends a command that can be counted.
    fn at_hand(&self, _: &RecordKey, _: Fingerprint) -> Option<(Record, Duration)> {
        None
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        count(&self.counts.completions, key);
        self.store.complete(key, record)
    }

    fn complete_claim<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        count(&self.counts.completions, key);
        self.store.complete_claim(key, claim, record)
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        count(&self.counts.reads, key);
        self.store.poll(key)
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        count(&self.counts.reads, key);
        self.store.read(key)
    }
}
