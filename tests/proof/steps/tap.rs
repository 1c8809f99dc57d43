//! Two ends of the line between engine and store: the store's end, which records what truly happens, and the
//! engine's end, where a test checks whether the engine's thread is through.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::store::author::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, JournalKind,
    Owner, ReadReply, Record, ReleaseReply, Remains, RenewReply, ResolveReply, State, StoreFuture,
    Watch,
};
use idem_runtime::store::{RecordKey, Store};
use idem_runtime::testing::Forward;
use tokio::sync::{Notify, Semaphore};

use crate::history::{History, What};
use crate::parts::NAMES;

/// The number of operations in transit to and from the real store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Arc<(AtomicUsize, Notify)>);

struct Sent(Traffic);

impl Traffic {
    fn send(&self) -> Sent {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Sent(self.clone())
    }

    /// Waits until there is none.
    pub(crate) async fn over(&self) {
        loop {
            let changed = self.0.1.notified();
            if self.0.0.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
        self.0.0.1.notify_waiters();
    }
}

/// The store's end.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) history: History,
    pub(crate) traffic: Traffic,
}

impl Tap {
    fn pass<'a, T: Send + Unpin + 'a>(
        &self,
        work: StoreFuture<'a, T>,
        note: impl FnOnce(&T) + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let sent = self.traffic.send();
        StoreFuture::pending(async move {
            let reply = work.await;
            if let Ok(reply) = &reply {
                note(reply);
            }
            drop(sent);
            reply
        })
    }
}

impl Forward for Tap {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        let until = self.history.store_time() + request.lease;
        self.pass(self.store.claim(key, request, admission), move |reply| {
            let (fence, reconciling) = match reply {
                ClaimReply::Granted { fence, .. } => (fence, false),
                ClaimReply::Reconcile { fence, .. } => (fence, true),
                _ => return,
            };
            self.history.add(What::Granted {
                owner: self.history.owner(request.owner),
                fence: fence.get(),
                until,
                reconciling,
            });
        })
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        self.ends(claim.expect("the engine passes it").owner, false);
        self.pass(self.store.complete(key, claim, record), move |reply| {
            if let CompleteReply::Stored { .. } = reply {
                self.stored(record);
            }
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        self.ends(*owner, true);
        let work = self.store.release(key, owner, remains, journals);
        self.pass(work, move |reply| match journals {
            Some((journal, _)) if *reply == ReleaseReply::Released => self.steps_stored(journal),
            _ => {}
        })
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        let before = self.history.store_time();
        self.pass(self.store.renew(key, claim), move |reply| {
            if let RenewReply::Renewed | RenewReply::Reasserted = reply {
                self.renewed(claim, before);
            }
        })
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        let before = self.history.store_time();
        self.pass(
            self.store.append(key, claim, journal, known),
            move |reply| {
                if let AppendReply::Appended | AppendReply::Reasserted = reply {
                    self.renewed(claim, before);
                    self.steps_stored(journal);
                }
            },
        )
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        self.pass(
            self.store.resolve(key, seen, journal, record),
            move |reply| {
                if *reply == ResolveReply::Resolved {
                    self.stored(record);
                }
            },
        )
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        self.pass(self.store.watch(key), |_| ())
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        self.pass(self.store.poll(key), |_| ())
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        self.pass(self.store.read(key), |_| ())
    }
}

impl Tap {
    /// Recorded before the store has it, because otherwise later grants precede it.
    fn ends(&self, owner: Owner, releases: bool) {
        let owner = self.history.owner(owner);
        self.history.add(What::Ends(owner, releases));
    }

    fn stored(&self, record: &Bytes) {
        let record = Record::decode(record.clone()).expect("the engine sends records");
        self.history.add(match record.header.state {
            State::Done { outcome, .. } => What::Stored(outcome),
            _ => What::Reset,
        });
        if record.header.state == State::Released && record.header.journal != JournalKind::Steps {
            self.history.add(What::StepsDropped);
        }
        self.steps_stored(&record.journal());
    }

    fn renewed(&self, claim: &Header, before: Duration) {
        let (lease, reconciling) = match claim.state {
            State::Pending { lease } => (lease, false),
            State::Reconciling { lease } => (lease, true),
            _ => return,
        };
        self.history.add(What::Granted {
            owner: self.history.owner(claim.owner),
            fence: claim.fence.get(),
            until: before + lease,
            reconciling,
        });
    }

    /// Records the results in a journal. The length of an entry is in front of it, then its kind, a small letter for an
    /// attempt; the length of its label is at 47, and the label behind that.
    fn steps_stored(&self, journal: &Journal) {
        let mut rest = &journal.as_bytes()[..];
        while let Some((length, behind)) = rest.split_first_chunk() {
            let length = usize::try_from(u32::from_be_bytes(*length)).expect("short");
            let (entry, behind) = behind.split_at(length);
            if entry[0].is_ascii_lowercase() {
                rest = behind;
                continue;
            }
            let label = &entry[44..44 + usize::from(entry[43])];
            let step = NAMES.iter().position(|name| name.as_bytes() == label);
            let step = step.expect("the steps have these names");
            if matches!(entry[0], b'D' | b'E') {
                self.history.step_stored(u8::try_from(step).expect("few"));
            }
            rest = behind;
        }
    }
}

/// The operation whose reads show that the engine's thread is idle. It never reaches the store.
pub(crate) const ECHO: &str = "echo";

#[derive(Debug)]
pub(crate) struct Echo<S> {
    pub(crate) store: S,
    /// Gets a permit when the engine and its thread are gone.
    pub(crate) gone: Arc<Semaphore>,
}

impl<S> Drop for Echo<S> {
    fn drop(&mut self) {
        self.gone.add_permits(1);
    }
}

impl<S: Store> Forward for Echo<S> {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        if key.operation().as_str() == ECHO {
            return StoreFuture::ready(Ok(ReadReply::Absent));
        }
        self.store.read(key)
    }
}
