//! A store at whose operations a call stops: before they are sent, and before their replies are delivered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use idem_runtime::key::KeyDigest;
use idem_runtime::store::author::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, RenewReply,
    StoreFuture,
};
use idem_runtime::store::{RecordKey, Store};
use idem_runtime::testing::Forward;
use tokio::sync::RwLock;

use crate::call::Call;

/// The calls of this process, by the digests of their keys.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<HashMap<[u8; 32], Arc<Call>>>);

impl Calls {
    pub(crate) fn add(&self, digest: &KeyDigest, call: &Arc<Call>) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.insert(*digest.as_bytes(), Arc::clone(call));
    }

    fn of(&self, key: &RecordKey) -> Arc<Call> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let call = calls.get(key.digest().as_bytes());
        Arc::clone(call.expect("this process calls the key"))
    }
}

#[derive(Debug)]
pub(crate) struct GatedStore {
    store: Arc<dyn Store>,
    calls: Arc<Calls>,
    renewals: Renewals,
}

/// Held by each renewal, or by a process that sends none temporarily.
pub(crate) type Renewals = Arc<RwLock<()>>;

impl GatedStore {
    pub(crate) fn new(store: Arc<dyn Store>, calls: Arc<Calls>, renewals: Renewals) -> Self {
        Self {
            store,
            calls,
            renewals,
        }
    }
}

impl Forward for GatedStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        StoreFuture::pending(async move {
            let call = self.calls.of(key);
            call.pass("claiming").await;
            let reply = self.store.claim(key, request, admission).await;
            // A call that waits for another one claims more than once.
            if !matches!(reply, Ok(ClaimReply::Running { .. })) {
                call.pass("claimed").await;
            }
            reply
        })
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::pending(async move {
            let call = self.calls.of(key);
            call.pass("completing").await;
            let reply = self.store.complete(key, claim, record).await;
            call.pass("completed").await;
            reply
        })
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        let points = self.calls.of(key).append();
        let is_renewal = journal.as_bytes().len() == known;
        StoreFuture::pending(async move {
            let append = self.store.append(key, claim, journal, known);
            if is_renewal {
                let _permit = self.renewals.read().await;
                return append.await;
            }
            let Some([before, after]) = points else {
                return append.await;
            };
            let call = self.calls.of(key);
            call.pass(&before).await;
            let reply = append.await;
            call.pass(&after).await;
            reply
        })
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::pending(async move {
            let _permit = self.renewals.read().await;
            self.store.renew(key, claim).await
        })
    }
}
