//! A store that fails where a test tells it to: between the engine and a real one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Header, Owner, ReadReply, RecordKey, ReleaseReply,
    RenewReply, ResolveReply, Store, StoreError, StoreErrorKind, StoreFuture, Watch,
};
use tokio::sync::Semaphore;

/// What goes wrong with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It never arrives, and an error comes back.
    Lost,
    /// It happens, and an error comes back.
    ReplyLost,
    /// It never arrives, and nothing comes back.
    Hangs,
    /// It happens, and nothing comes back.
    ReplyHangs,
    /// It happens, and its reply arrives when [`Faulty::deliver`] says so.
    ReplyHeld,
    /// It is refused for good.
    Refused,
    /// Another answer is there, and this store does not read it.
    TooLarge,
}

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `Store::claim`
    Claim,
    /// `Store::complete`
    Complete,
    /// `Store::release`
    Release,
    /// `Store::renew`
    Renew,
    /// `Store::resolve`
    Resolve,
}

/// A store in front of another one. Clones share their faults.
#[derive(Clone, Debug)]
pub struct Faulty(Arc<Inner>);

/// What the clones of a [`Faulty`] share.
#[derive(Debug)]
pub struct Inner {
    store: Arc<dyn Store>,
    faults: Mutex<Vec<(Operation, VecDeque<Fault>)>>,
    sent: Mutex<Vec<(Operation, Option<Owner>)>>,
    held: Semaphore,
    renewed_by: Mutex<Vec<String>>,
}

impl Faulty {
    /// A store without faults yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Inner {
            store,
            faults: Mutex::default(),
            sent: Mutex::default(),
            held: Semaphore::new(0),
            renewed_by: Mutex::default(),
        }))
    }

    /// What the clones share.
    #[must_use]
    pub fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// The next operations of this kind fail like this, one after the other.
    pub fn fail(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        let mut plans = self.0.faults.lock().unwrap_or_else(PoisonError::into_inner);
        plans.push((operation, faults.into_iter().collect()));
    }

    /// Lets a reply that is held arrive.
    pub fn deliver(&self) {
        self.0.held.add_permits(1);
    }

    /// The names of the threads that renewed.
    #[must_use]
    pub fn renewed_by(&self) -> Vec<String> {
        let threads = self.0.renewed_by.lock();
        threads.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The operations so far.
    #[must_use]
    pub fn sent(&self, operation: Operation) -> Vec<Option<Owner>> {
        let sent = self.0.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = sent.iter().filter(|(kind, _)| *kind == operation);
        of_kind.map(|(_, owner)| *owner).collect()
    }

    fn run<'a, T: Send + Unpin + 'a>(
        &'a self,
        operation: Operation,
        owner: Option<Owner>,
        work: impl FnOnce() -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        let mut sent = self.0.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.push((operation, owner));
        drop(sent);
        let mut plans = self.0.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = plans
            .iter_mut()
            .filter(|(kind, _)| *kind == operation)
            .find_map(|(_, plan)| plan.pop_front())
            .unwrap_or(Fault::None);
        drop(plans);
        let failed = |kind| Err(StoreError::new(kind, "an injected fault"));
        match fault {
            Fault::None => work(),
            Fault::Lost => StoreFuture::ready(failed(StoreErrorKind::Unavailable)),
            Fault::Refused => StoreFuture::ready(failed(StoreErrorKind::Refused)),
            Fault::TooLarge => StoreFuture::ready(failed(StoreErrorKind::TooLarge)),
            Fault::Hangs => StoreFuture::pending(std::future::pending()),
            Fault::ReplyLost => {
                let work = work();
                StoreFuture::pending(async move {
                    let _ = work.await;
                    failed(StoreErrorKind::Unavailable)
                })
            }
            Fault::ReplyHeld => {
                let work = work();
                StoreFuture::pending(async move {
                    let reply = work.await;
                    if let Ok(permit) = self.0.held.acquire().await {
                        permit.forget();
                    }
                    reply
                })
            }
            Fault::ReplyHangs => {
                let work = work();
                StoreFuture::pending(async move {
                    let _ = work.await;
                    std::future::pending().await
                })
            }
        }
    }
}

impl Store for Faulty {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        self.run(Operation::Claim, Some(request.owner), || {
            self.0.store.claim(key, request)
        })
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        let owner = Header::decode(record).ok().map(|header| header.owner);
        self.run(Operation::Complete, owner, || {
            self.0.store.complete(key, record)
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        count: bool,
    ) -> StoreFuture<'a, ReleaseReply> {
        self.run(Operation::Release, Some(*owner), || {
            self.0.store.release(key, owner, count)
        })
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        let thread = std::thread::current().name().unwrap_or("").to_owned();
        let mut threads = self
            .0
            .renewed_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        threads.push(thread);
        drop(threads);
        self.run(Operation::Renew, Some(claim.owner), || {
            self.0.store.renew(key, claim)
        })
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        let owner = Header::decode(record).ok().map(|header| header.owner);
        self.run(Operation::Resolve, owner, || {
            self.0.store.resolve(key, seen, record)
        })
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        self.0.store.watch(key)
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        self.0.store.read(key)
    }
}
