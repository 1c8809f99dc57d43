//! A durable store that counts what it is asked.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Header, Listener, Owner, ReadReply, RecordKey,
    ReleaseReply, RenewReply, ResolveReply, Store, StoreFuture, Watch,
};

#[derive(Default)]
struct Counts {
    claims: AtomicUsize,
    completions: AtomicUsize,
    reads: AtomicUsize,
}

/// Questions about epochs are not counted: they come by the clock, and not by the call.
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

impl Store for Counted {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        count(&self.counts.claims, key);
        self.store.claim(key, request)
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

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        count: bool,
    ) -> StoreFuture<'a, ReleaseReply> {
        self.store.release(key, owner, count)
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        self.store.renew(key, claim)
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        self.store.resolve(key, seen, record)
    }

    fn glance<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        count(&self.counts.reads, key);
        self.store.glance(key)
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        count(&self.counts.reads, key);
        self.store.read(key)
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        self.store.watch(key)
    }

    fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        self.store.listen(prefix, listener)
    }
}
