//! The flawed store as a store, and as a fixture of the suite.

use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use idem_conformance::{BoxFuture, Fixture, Plant};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{
    AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, ListReply, ListRequest,
    Listener, Owner, ReadReply, Record, RecordKey, ReleaseReply, Remains, RenewReply, ResolveReply,
    Store, StoreFuture, Watch, Watchers,
};

use crate::flaw::Flaw;
use crate::store::Flawed;

impl Flawed {
    /// Makes what follows one moment.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Flawed {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        if self.0.is(Flaw::LooksThenWrites) {
            return StoreFuture::pending(async move {
                let found = self.0.look(key);
                tokio::task::yield_now().await;
                match found {
                    Ok(found) => self.0.claim(key, found, request),
                    Err(error) => Ok(ClaimReply::Unreadable(error)),
                }
            });
        }
        let _turn = self.turn();
        let reply = match self.0.look(key) {
            Ok(found) => self.0.claim(key, found, request),
            Err(error) => Ok(ClaimReply::Unreadable(error)),
        };
        if let Ok(ClaimReply::Done { record, .. }) = &reply {
            self.0.know(key, record);
        }
        StoreFuture::ready(reply)
    }

    fn at_hand(&self, key: &RecordKey, asked: Fingerprint) -> Option<(Record, Duration)> {
        let _turn = self.turn();
        self.0.at_hand(key, asked)
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        let _turn = self.turn();
        if self.0.is(Flaw::RefusesCompletionsThatSayNothing) {
            let lease_left = Duration::ZERO;
            return StoreFuture::ready(Ok(CompleteReply::Superseded { lease_left }));
        }
        StoreFuture::ready(self.0.complete(key, record))
    }

    fn complete_claim<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        let _turn = self.turn();
        StoreFuture::ready(self.0.complete_claim(key, claim, record))
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
    ) -> StoreFuture<'a, ReleaseReply> {
        let _turn = self.turn();
        StoreFuture::ready(Ok(self.0.release(key, *owner, remains)))
    }

    fn release_with_journal<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journal: &'a Journal,
        seen: Option<&'a Journal>,
    ) -> StoreFuture<'a, ReleaseReply> {
        let _turn = self.turn();
        let reply = self
            .0
            .release_with_journal(key, *owner, remains, (journal, seen));
        StoreFuture::ready(Ok(reply))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        let _turn = self.turn();
        StoreFuture::ready(Ok(self.0.renew(key, claim)))
    }

    fn keeps_journals(&self) -> bool {
        true
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        let _turn = self.turn();
        StoreFuture::ready(Ok(self.0.append(key, claim, journal, known)))
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        let _turn = self.turn();
        let reply = self.0.resolve(key, (seen, journal), record);
        self.0.tell_listeners(key, record);
        StoreFuture::ready(reply)
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        let _turn = self.turn();
        let mut reply = self.0.read(key);
        if let ReadReply::Found { record, left } = &mut reply
            && self.0.is(Flaw::ShowsClaimsAfterTheirLease)
        {
            *left = record.header.retain;
        }
        StoreFuture::ready(Ok(reply))
    }

    fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        self.0.listen(prefix, listener);
        true
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        let tells_nobody = self.0.is(Flaw::TellsNobody);
        let watch = tells_nobody.then(|| Watchers::default().watch(key));
        StoreFuture::ready(Ok(watch))
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        let _turn = self.turn();
        StoreFuture::ready(Ok(self.0.read(key)))
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        let _turn = self.turn();
        StoreFuture::ready(self.0.list(request))
    }
}

impl Fixture for Flawed {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn prefix(&self) -> Arc<str> {
        "flawed".into()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.0.clock.advance(by);
        Box::pin(async {})
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        let Plant::Bytes { bytes, life } = plant else {
            return Box::pin(async { false });
        };
        self.0.put(key, bytes.into(), life);
        Box::pin(async { true })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let bytes = self.0.bytes(key);
        Box::pin(async { bytes.map(|(bytes, _)| bytes.into()) })
    }

    fn patience(&self) -> Duration {
        // It notifies at once or never.
        Duration::from_millis(10)
    }

    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        let scarce = Self::of_size(self.0.flaw, 10);
        Box::pin(async { Some(Arc::new(scarce) as Arc<dyn Fixture>) })
    }
}
