//! A store with faults injected by a test.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::forward::Forward;
use crate::env::lock::Lock;
use crate::identity::fingerprint::Fingerprint;
use crate::store::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, ListReply,
    ListRequest, Owner, ReadReply, Record, RecordKey, ReleaseReply, Remains, RenewReply,
    ResolveReply, Store, StoreError, StoreErrorKind, StoreFuture, Watch,
};

/// A fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault.
    None,
    /// It never arrives, and an error is returned.
    Lost,
    /// It is executed, and an error is returned.
    ReplyLost,
    /// It never arrives, and no reply is returned.
    Hangs,
    /// It is executed, and no reply is returned.
    ReplyHangs,
    /// It is executed, and [`Faulty::deliver`] releases its reply.
    ReplyHeld,
    /// Executed when [`Faulty::deliver`] releases it, even for an absent caller: as a command in transit when its
    /// sender gives up.
    Held,
    /// Executed twice, as by a client's resend; the second reply counts.
    Twice,
    /// It is refused permanently.
    Refused,
    /// There is another answer, and this store does not read it.
    TooLarge,
    /// The store is full.
    Full,
    /// The queue is longer than the store can send in time.
    Overloaded,
    /// The server is reachable, and cannot execute it now: it is read-only, for example, or has too many connections.
    Busy,
    /// The server is unreachable.
    Unreachable,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreOperation {
    /// [`Store::claim`]
    Claim,
    /// [`Store::complete`]
    Complete,
    /// [`Store::release`]
    Release,
    /// [`Store::renew`]
    Renew,
    /// [`Store::append`]
    Append,
    /// [`Store::resolve`]
    Resolve,
    /// [`Store::read`], [`Store::poll`]
    Read,
    /// [`Store::watch`]
    Watch,
    /// [`Store::list`]
    List,
}

/// A recorded operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// Its kind.
    pub operation: StoreOperation,
    /// Its owner, if it has one.
    pub owner: Option<Owner>,
    /// The name of the thread that sent it.
    pub thread: String,
}

/// A store that injects faults into another one.
///
/// Faults apply to the next operations of a kind ([`fail`](Self::fail)), or to the n-th operation of all
/// ([`fail_at`](Self::fail_at)), so that a test can go through every step of a call. Clones share their faults.
///
/// It never answers without a request: it hides the answers that the other store has [at hand](Store::at_hand), because
/// those cannot fail.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use idem_runtime::testing::{Fault, Faulty, StoreOperation};
/// use idem_runtime::{Engine, Error, store::memory::MemoryStore};
///
/// let store = Faulty::new(MemoryStore::new());
/// let engine = Engine::new(store.clone());
/// let pay = || engine.operation("pay").key(&7).run(|_| async { Ok::<_, Error>(1) });
///
/// // The answer is stored, but the reply that says so is lost.
/// store.fail(StoreOperation::Complete, [Fault::ReplyLost]);
/// assert_eq!(pay().await, Ok(1));
/// assert_eq!(pay().await, Ok(1));
/// assert_eq!(store.count(StoreOperation::Complete), 2, "it was sent again");
/// # });
/// ```
#[derive(Clone)]
pub struct Faulty(Arc<FaultyState>);

struct FaultyState {
    store: Arc<dyn Store>,
    plan: Lock<FaultPlan>,
    held: Semaphore,
}

#[derive(Default)]
struct FaultPlan {
    next: Vec<(StoreOperation, VecDeque<Fault>)>,
    at: Vec<(usize, Fault)>,
    sent: Vec<Sent>,
}

debug_fields!(Faulty {
    store: |it| &it.0.store
});

impl Faulty {
    /// A store without faults yet.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(FaultyState {
            store: Arc::new(store),
            plan: Lock::default(),
            held: Semaphore::new(0),
        }))
    }

    /// Injects these faults into the next operations of this kind, one each.
    pub fn fail(&self, operation: StoreOperation, faults: impl IntoIterator<Item = Fault>) {
        let faults = faults.into_iter().collect();
        self.0.plan.lock().next.push((operation, faults));
    }

    /// Removes the faults that have not occurred yet.
    pub fn heal(&self) {
        let mut plan = self.0.plan.lock();
        plan.next.clear();
        plan.at.clear();
    }

    /// Injects this fault into operation `step`, counted over all kinds.
    pub fn fail_at(&self, step: usize, fault: Fault) {
        self.0.plan.lock().at.push((step, fault));
    }

    /// Releases one held reply or operation.
    pub fn deliver(&self) {
        self.0.held.add_permits(1);
    }

    /// The operations so far.
    #[must_use]
    pub fn log(&self) -> Vec<Sent> {
        self.0.plan.lock().sent.clone()
    }

    /// The owners of the operations of this kind so far.
    #[must_use]
    pub fn sent(&self, operation: StoreOperation) -> Vec<Option<Owner>> {
        let plan = self.0.plan.lock();
        let of_kind = plan.sent.iter().filter(|sent| sent.operation == operation);
        of_kind.map(|sent| sent.owner).collect()
    }

    /// The number of operations of this kind so far.
    #[must_use]
    pub fn count(&self, operation: StoreOperation) -> usize {
        self.sent(operation).len()
    }

    /// The number of handles of this store.
    #[must_use]
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    fn fault(&self, operation: StoreOperation, owner: Option<Owner>) -> Fault {
        let mut plan = self.0.plan.lock();
        let step = plan.sent.len();
        plan.sent.push(Sent {
            operation,
            owner,
            thread: std::thread::current().name().unwrap_or("").to_owned(),
        });
        if let Some(&(_, fault)) = plan.at.iter().find(|&&(at, _)| at == step) {
            return fault;
        }
        let mut plans = plan.next.iter_mut().filter(|(kind, _)| *kind == operation);
        plans
            .find_map(|(_, faults)| faults.pop_front())
            .unwrap_or(Fault::None)
    }

    fn run<'a, T: Send + Unpin + 'static>(
        &'a self,
        operation: StoreOperation,
        owner: Option<Owner>,
        send: impl Fn(Arc<dyn Store>) -> StoreFuture<'static, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let failed = |kind| StoreError::new(kind, "an injected fault");
        let unavailable = move || failed(StoreErrorKind::Unavailable);
        let refused = |error| StoreFuture::ready(Err(error));
        let fault = self.fault(operation, owner);
        let store = Arc::clone(&self.0.store);
        match fault {
            Fault::None => send(store),
            Fault::Lost => refused(unavailable()),
            Fault::Refused => refused(failed(StoreErrorKind::Refused)),
            Fault::TooLarge => refused(failed(StoreErrorKind::TooLarge)),
            Fault::Full => refused(failed(StoreErrorKind::Full)),
            Fault::Overloaded => {
                let wait = Duration::from_millis(100);
                refused(StoreError::overloaded("an injected fault", wait))
            }
            Fault::Busy => refused(unavailable().answered()),
            Fault::Unreachable => refused(unavailable().unreachable()),
            Fault::Hangs => StoreFuture::pending(std::future::pending()),
            Fault::ReplyLost | Fault::ReplyHangs | Fault::ReplyHeld => {
                let reply = send(store);
                StoreFuture::pending(async move {
                    let reply = reply.await;
                    match fault {
                        Fault::ReplyLost => return Err(unavailable()),
                        Fault::ReplyHangs => std::future::pending().await,
                        _ => self.held().await,
                    }
                    reply
                })
            }
            Fault::Held => {
                let (this, work) = (self.clone(), send(store));
                // In a task of its own, so that it is executed even if no caller waits for it.
                let task = tokio::spawn(async move {
                    this.held().await;
                    work.await
                });
                StoreFuture::pending(
                    async move { task.await.unwrap_or_else(|_| Err(unavailable())) },
                )
            }
            Fault::Twice => {
                let first = send(Arc::clone(&store));
                StoreFuture::pending(async move {
                    let _ = first.await;
                    send(store).await
                })
            }
        }
    }

    async fn held(&self) {
        // Never closed.
        if let Ok(permit) = self.0.held.acquire().await {
            permit.forget();
        }
    }
}

/// Operations with a fault. Arguments are cloned, because a fault may execute the operation later, or twice.
macro_rules! operations {
    ($($kind:ident $owner:expr =>
        $name:ident($($given:ident: $of:ty),* $(; $copied:ident: $copy:ty)?) -> $reply:ty;)+) => {$(
        fn $name<'a>(&'a self, $($given: &'a $of,)* $($copied: $copy)?) -> StoreFuture<'a, $reply> {
            self.run(StoreOperation::$kind, $owner, move |store| {
                $(let $given = $given.clone();)*
                StoreFuture::pending(async move { store.$name($(&$given,)* $($copied)?).await })
            })
        }
    )+};
}

fn owner_of(record: &[u8]) -> Option<Owner> {
    Header::decode(record).ok().map(|header| header.owner)
}

impl Forward for Faulty {
    fn inner(&self) -> &dyn Store {
        &*self.0.store
    }

    fn at_hand(&self, _: &RecordKey, _: Fingerprint) -> Option<(Record, Duration)> {
        None
    }

    operations! {
        Renew Some(claim.owner) => renew(key: RecordKey, claim: Header) -> RenewReply;
        Append Some(claim.owner) =>
            append(key: RecordKey, claim: Header, journal: Journal; known: usize) -> AppendReply;
        Watch None => watch(key: RecordKey) -> Option<Watch>;
        Read None => read(key: RecordKey) -> ReadReply;
        Read None => poll(key: RecordKey) -> ReadReply;
        List None => list(request: ListRequest) -> ListReply;
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        admission.sent();
        self.run(StoreOperation::Claim, Some(request.owner), move |store| {
            let (key, request) = (key.clone(), request.clone());
            let admission = Admission::new(admission.patience());
            StoreFuture::pending(async move { store.claim(&key, &request, &admission).await })
        })
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        self.run(StoreOperation::Complete, owner_of(record), move |store| {
            let (key, claim, record) = (key.clone(), claim.copied(), record.clone());
            StoreFuture::pending(async move { store.complete(&key, claim.as_ref(), &record).await })
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        self.run(StoreOperation::Release, Some(*owner), move |store| {
            let (key, owner) = (key.clone(), *owner);
            let journals = journals.map(|(journal, seen)| (journal.clone(), seen.cloned()));
            StoreFuture::pending(async move {
                let journals = journals.as_ref();
                let journals = journals.map(|(journal, seen)| (journal, seen.as_ref()));
                store.release(&key, &owner, remains, journals).await
            })
        })
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        self.run(StoreOperation::Resolve, owner_of(record), move |store| {
            let (key, seen, record) = (key.clone(), *seen, record.clone());
            let journal = journal.cloned();
            StoreFuture::pending(async move {
                store.resolve(&key, &seen, journal.as_ref(), &record).await
            })
        })
    }
}
