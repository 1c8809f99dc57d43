//! A memory store that decides with one flaw, and its fixture.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use idem_conformance::{BoxFuture, Fixture, Plant};
use idem_runtime::clock::{Clock, ManualClock};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::author::{
    self as rules, Admission, AnswerTypes, AppendReply, ClaimReply, ClaimRequest, CompleteReply,
    Current, HEADER, Header, Hearing, Journal, JournalKind, ListReply, ListRequest, Listener,
    Owner, ReadReply, Record, ReleaseReply, Remains, RenewReply, ResolveReply, State, StoreFuture,
    Unreadable, Watch, Watchers,
};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{Fence, OutcomeKind, RecordKey, Store, StoreError};

use crate::table::{At, Seen};

/// The owner of an operation that has none.
const NO_OWNER: Owner = Owner::from_bytes([0; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Claim,
    Complete,
    CompleteClaim,
    Release,
    ReleaseWithJournal,
    Renew,
    Append,
    Resolve,
    Read,
    Poll,
    AtHand,
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Claim(ClaimReply),
    Complete(CompleteReply),
    Release(ReleaseReply),
    Renew(RenewReply),
    Append(AppendReply),
    Resolve(ResolveReply),
    Read(ReadReply),
    AtHand(Option<(Record, Duration)>),
}

pub(crate) struct Write {
    pub(crate) header: Header,
    /// Answer and journal.
    pub(crate) tail: Vec<u8>,
    pub(crate) life: Duration,
}

/// An operation on a record: its view of it, and, with a reply, its effect.
pub(crate) struct Step {
    pub(crate) op: Op,
    /// The stored header and remaining life, as a flaw presents them.
    pub(crate) before: Option<(Header, Duration)>,
    pub(crate) found: Option<(Record, Duration)>,
    /// Why the record cannot be read.
    pub(crate) unreadable: Option<Unreadable>,
    pub(crate) asked: ClaimRequest,
    /// The claim, the observed header, or a header of the releasing owner.
    pub(crate) claim: Header,
    pub(crate) brought: Record,
    pub(crate) remains: Remains,
    pub(crate) journal: Journal,
    pub(crate) read: Option<Journal>,
    pub(crate) known: usize,
    pub(crate) reply: Option<Reply>,
    pub(crate) write: Option<Write>,
}

impl Step {
    fn new(op: Op, owner: Owner) -> Self {
        let claim = Header::new(State::Released, owner, Fence::default(), Duration::ZERO);
        Self {
            op,
            before: None,
            found: None,
            unreadable: None,
            asked: ClaimRequest::new(owner, Duration::ZERO, Duration::ZERO),
            claim,
            brought: Record::with_journal(claim, &Journal::default()),
            remains: Remains::Attempt,
            journal: Journal::default(),
            read: None,
            known: 0,
            reply: None,
            write: None,
        }
    }

    fn of_claim(request: &ClaimRequest) -> Self {
        let mut step = Self::new(Op::Claim, request.owner);
        step.asked = request.clone();
        step
    }

    fn bringing(op: Op, record: &Bytes) -> Result<Self, Unreadable> {
        let brought = Record::decode(record.clone())?;
        let mut step = Self::new(op, brought.header.owner);
        step.brought = brought;
        Ok(step)
    }

    pub(crate) fn caller(&self) -> Owner {
        match self.op {
            Op::Claim => self.asked.owner,
            Op::Complete | Op::CompleteClaim | Op::Resolve => self.brought.header.owner,
            _ => self.claim.owner,
        }
    }

    pub(crate) fn print(&self) -> Fingerprint {
        match self.op {
            Op::Claim => self.asked.fingerprint,
            _ => self.brought.header.fingerprint,
        }
    }

    pub(crate) fn types(&self) -> AnswerTypes {
        match self.op {
            Op::Claim => self.asked.types,
            _ => self.brought.header.types,
        }
    }

    /// The record is seen otherwise.
    fn see(&mut self, seen: Seen) {
        let (caller, claim) = (self.caller(), self.claim.state);
        let Some((record, left)) = &mut self.found else {
            if matches!(seen, Seen::Readable) {
                self.unreadable = None;
            }
            return;
        };
        let header = &mut record.header;
        match seen {
            Seen::OfCaller => header.owner = caller,
            Seen::OfNobody => header.owner = Owner::from_bytes([0xff; 16]),
            Seen::As(state) => header.state = state,
            Seen::AsClaim => header.state = claim,
            Seen::Attempts(less) => {
                header.attempts = header.attempts.saturating_sub(less);
                header.fence = Fence::default();
            }
            Seen::Early => *left = left.saturating_sub(Duration::from_millis(1)),
            Seen::Late => *left += Duration::from_millis(1),
            Seen::Lapsed => *left = Duration::ZERO,
            Seen::NoPrint => header.fingerprint = Fingerprint::NONE,
            Seen::Steps if header.journal != JournalKind::None => {
                header.journal = JournalKind::Steps;
            }
            Seen::Gone => self.found = None,
            Seen::Readable | Seen::Steps => {}
        }
    }

    /// The flaw of these operations, before the decision.
    fn misread(&mut self, at: At) {
        let is_of = |ops: &[Op], op| ops.is_empty() || ops.contains(&op);
        match at {
            At::See(ops, when, seen) if is_of(ops, self.op) && when(self) => self.see(seen),
            At::Ask(ops, when, change) if is_of(ops, self.op) && when(self) => change(self),
            At::Say(ops, when, reply) if is_of(ops, self.op) && when(self) => {
                self.reply = Some(reply.clone());
            }
            _ => {}
        }
    }

    /// The flaw of these operations, after the decision. A grant has the bytes to write.
    fn miswrite(&mut self, at: At) {
        let At::Put(ops, when, change) = at else {
            return;
        };
        let is_of = ops.is_empty() || ops.contains(&self.op);
        if !is_of || self.write.is_none() || !when(self) {
            return;
        }
        let Some(mut write) = self.write.take() else {
            return;
        };
        change(&mut write, self);
        match &mut self.reply {
            Some(Reply::Claim(ClaimReply::Granted { fence, attempt, .. })) => {
                (*fence, *attempt) = (write.header.fence, write.header.attempts);
            }
            Some(Reply::Claim(ClaimReply::Reconcile {
                fence, attempts, ..
            })) => (*fence, *attempts) = (write.header.fence, write.header.attempts),
            _ => {}
        }
        self.write = Some(write);
    }

    /// The reply to a record that cannot be read.
    fn refuse(&mut self, why: Unreadable) {
        self.reply = Some(match self.op {
            Op::Claim => Reply::Claim(ClaimReply::Unreadable(why)),
            Op::Complete | Op::CompleteClaim => Reply::Complete(CompleteReply::Unreadable(why)),
            Op::Release | Op::ReleaseWithJournal => Reply::Release(ReleaseReply::Unreadable(why)),
            Op::Renew => Reply::Renew(RenewReply::Unreadable(why)),
            Op::Append => Reply::Append(AppendReply::Unreadable(why)),
            Op::Resolve => Reply::Resolve(ResolveReply::Unreadable(why)),
            Op::Read | Op::Poll => Reply::Read(ReadReply::Unreadable(why)),
            Op::AtHand => Reply::AtHand(None),
        });
    }

    fn decide(&mut self, now_us: u64) {
        let found = self.found.as_ref();
        let current = found.map(|(record, left)| Current::new(record, *left));
        let kept = current
            .map(|current| current.record.journal())
            .unwrap_or_default();
        let mut life = None;
        let (reply, write) = match self.op {
            Op::Claim => {
                let (reply, write) = rules::claim(current, &self.asked, now_us);
                (Reply::Claim(reply), write)
            }
            Op::Complete | Op::CompleteClaim => {
                let (reply, write) = rules::complete(current, &self.brought);
                (Reply::Complete(reply), write)
            }
            Op::Release | Op::ReleaseWithJournal => {
                let keeps = if self.op == Op::Release {
                    &kept
                } else {
                    &self.journal
                };
                let (owner, read) = (self.claim.owner, self.read.as_ref());
                let (reply, write) =
                    rules::release_with_journal(current, owner, self.remains, keeps, read);
                let released = |(record, left): &(Record, Duration)| {
                    rules::released_life(&record.header, self.remains).unwrap_or(*left)
                };
                life = found.map(released);
                (Reply::Release(reply), write)
            }
            Op::Renew => {
                let (reply, write) = rules::renew(current, &self.claim);
                let write = write.map(|header| Record::with_journal(header, &kept));
                (Reply::Renew(reply), write)
            }
            Op::Append => {
                let (reply, write) = rules::append(current, &self.claim, &self.journal);
                let write = write.map(|(header, kept)| Record::with_journal(header, &kept));
                (Reply::Append(reply), write)
            }
            Op::Resolve => {
                let read = self.read.as_ref();
                let (reply, write) = rules::resolve(current, &self.claim, read, &self.brought);
                (Reply::Resolve(reply), write)
            }
            Op::Read | Op::Poll => {
                let found = found.cloned();
                let reply = found.map(|(record, left)| ReadReply::Found { record, left });
                (Reply::Read(reply.unwrap_or(ReadReply::Absent)), None)
            }
            Op::AtHand => {
                let is_final = |header: &Header| matches!(header.state, State::Done { outcome, .. } if outcome != OutcomeKind::Unknown);
                let is_asked = |header: &Header| header.fingerprint.matches(self.asked.fingerprint);
                let known = found.filter(|(it, _)| is_final(&it.header) && is_asked(&it.header));
                (Reply::AtHand(known.cloned()), None)
            }
        };
        self.reply = Some(reply);
        self.write = write.map(|record| Write {
            header: record.header,
            tail: record.as_bytes()[HEADER..].to_vec(),
            life: life.unwrap_or(record.header.retain),
        });
    }
}

type Listening = (Arc<str>, Weak<dyn Listener>);

/// Clones share the records.
#[derive(Clone)]
pub(crate) struct Flawed(Arc<Inner>);

struct Inner {
    at: At,
    clock: ManualClock,
    records: MemoryStore,
    turn: Mutex<()>,
    watchers: Watchers,
    watched: Mutex<Vec<RecordKey>>,
    listeners: Mutex<Vec<Listening>>,
    owners: Mutex<Vec<Owner>>,
}

impl fmt::Debug for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flawed").finish_non_exhaustive()
    }
}

impl Flawed {
    pub(crate) fn new(at: At, max_entries: usize) -> Self {
        let clock = ManualClock::new();
        let records = MemoryStore::builder().clock(clock.clone());
        Self(Arc::new(Inner {
            at,
            clock,
            records: records.max_entries(max_entries).build(),
            turn: Mutex::default(),
            watchers: Watchers::default(),
            watched: Mutex::default(),
            listeners: Mutex::default(),
            owners: Mutex::default(),
        }))
    }

    /// The record with its life, as the flaw sees its key.
    async fn look(&self, key: &RecordKey, step: &mut Step) {
        (step.before, step.found, step.unreadable) = (None, None, None);
        match self.0.records.read(key).await {
            Ok(ReadReply::Found { record, left }) => {
                step.before = Some((record.header, left));
                step.found = Some((record, left));
            }
            Ok(ReadReply::Unreadable(why)) => step.unreadable = Some(why),
            _ => {}
        }
    }

    fn key(&self, key: &RecordKey) -> RecordKey {
        match self.0.at {
            At::Key(seen) => seen(key),
            _ => key.clone(),
        }
    }

    /// One operation: looks, decides, writes and notifies.
    async fn operate<T>(
        &self,
        key: &RecordKey,
        mut step: Step,
        reply: fn(Reply) -> Option<T>,
    ) -> Result<T, StoreError> {
        let key = &self.key(key);
        let (inner, op) = (&*self.0, step.op);
        let of_owner = matches!(inner.at, At::ApartOfOwner(ops) if ops.contains(&op));
        let is_apart = of_owner || matches!(inner.at, At::Apart(ops) if ops.contains(&op));
        if is_apart {
            self.look(key, &mut step).await;
            tokio::task::yield_now().await;
        }
        let seen = step.before.map(|(header, _)| header.owner);
        // Nothing below waits: the memory store replies at once.
        let _turn = lock(&inner.turn);
        let stored = (inner.records.peek(key)).and_then(|bytes| Header::decode(&bytes).ok());
        let is_same = stored.map(|header| header.owner) == seen;
        if !is_apart || of_owner && !is_same {
            now(self.look(key, &mut step));
        }
        step.misread(inner.at);
        if step.reply.is_none() {
            match step.unreadable {
                Some(why) => step.refuse(why),
                None => step.decide(inner.clock.calendar_us()),
            }
            step.miswrite(inner.at);
        }
        if let Some(write) = step.write.take() {
            let is_claim = op == Op::Claim;
            let needs_room = match inner.at {
                At::Room(ops) => ops.contains(&op),
                _ => is_claim && step.before.is_none(),
            };
            if needs_room {
                // A claim of a key of its own finds no room, or leaves it for the record.
                let new = Owner::random();
                let probe = ClaimRequest::new(new, Duration::ZERO, Duration::from_millis(1));
                let spare = RecordKey::new("spare".into(), key.operation().clone(), *key.digest());
                now((inner.records).claim(&spare, &probe, &Admission::new(Duration::ZERO)))?;
                inner.records.plant(&spare, Bytes::new(), Duration::ZERO);
            }
            let bytes = [&write.header.encode()[..], &write.tail].concat();
            inner.records.plant(key, bytes.into(), write.life);
            self.notify(key, &step);
        }
        Ok(reply(step.reply.expect("it was decided")).expect("each operation has its reply"))
    }

    fn notify(&self, key: &RecordKey, step: &Step) {
        let is_told = |by: fn(&Step) -> bool| by(step);
        let (watch, listener) = match self.0.at {
            At::Watches(by) => (is_told(by), true),
            At::Listeners(by) => (true, is_told(by)),
            _ => (true, true),
        };
        let ends = matches!(
            step.op,
            Op::Complete | Op::CompleteClaim | Op::Release | Op::ReleaseWithJournal | Op::Resolve
        );
        if ends && watch {
            self.0.watchers.wake(key);
        }
        if step.op == Op::Resolve && listener {
            for (prefix, listener) in lock(&self.0.listeners).iter() {
                if let Some(listener) = listener.upgrade().filter(|_| **prefix == *key.prefix()) {
                    listener.resolved(key.digest());
                    if matches!(self.0.at, At::OneListener) {
                        return;
                    }
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reply of a memory store, which does not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(reply) => reply,
        std::task::Poll::Pending => unreachable!("the memory store replies at once"),
    }
}

/// Operations on a record: each makes a step, or refuses bytes that are no record.
macro_rules! operations {
    ($($name:ident($($arg:ident: $of:ty),*) -> $reply:ident as $kind:ident: $step:expr;)*) => {$(
        fn $name<'a>(&'a self, key: &'a RecordKey, $($arg: $of),*) -> StoreFuture<'a, $reply> {
            let step: Result<Step, Unreadable> = $step;
            let reply = |reply| match reply {
                Reply::$kind(reply) => Some(reply),
                _ => None,
            };
            match step {
                Ok(step) => StoreFuture::pending(self.operate(key, step, reply)),
                Err(why) => StoreFuture::ready(Ok($reply::Unreadable(why))),
            }
        }
    )*};
}

impl Store for Flawed {
    fn new_owner(&self, key: &RecordKey) -> Owner {
        let mut owners = lock(&self.0.owners);
        let again = owners.last().copied().filter(|_| owners.len() % 2 == 1);
        let again = again.filter(|_| matches!(self.0.at, At::OwnersTwice));
        let owner = again.unwrap_or_else(|| self.0.records.new_owner(key));
        owners.push(owner);
        owner
    }

    fn at_hand(&self, key: &RecordKey, asked: Fingerprint) -> Option<(Record, Duration)> {
        let mut step = Step::new(Op::AtHand, NO_OWNER);
        step.asked.fingerprint = asked;
        let reply = |reply| match reply {
            Reply::AtHand(reply) => Some(reply),
            _ => None,
        };
        now(self.operate(key, step, reply)).ok().flatten()
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        asked: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        if !matches!(self.0.at, At::Unsent) {
            admission.sent();
        }
        let reply = |reply| match reply {
            Reply::Claim(reply) => Some(reply),
            _ => None,
        };
        StoreFuture::pending(self.operate(key, Step::of_claim(asked), reply))
    }

    operations! {
        complete(claim: Option<&'a Header>, record: &'a Bytes) -> CompleteReply as Complete: match claim {
            Some(claim) => Step::bringing(Op::CompleteClaim, record)
                .map(|step| Step { claim: *claim, ..step }),
            None => Step::bringing(Op::Complete, record),
        };
        release(
            owner: &'a Owner, remains: Remains, journals: Option<(&'a Journal, Option<&'a Journal>)>
        ) -> ReleaseReply as Release: Ok(match journals {
            Some((journal, seen)) => {
                let (journal, read) = (journal.clone(), seen.cloned());
                Step { remains, journal, read, ..Step::new(Op::ReleaseWithJournal, *owner) }
            }
            None => Step { remains, ..Step::new(Op::Release, *owner) },
        });
        renew(claim: &'a Header) -> RenewReply as Renew:
            Ok(Step { claim: *claim, ..Step::new(Op::Renew, claim.owner) });
        append(claim: &'a Header, journal: &'a Journal, known: usize) -> AppendReply as Append: {
            let (claim, journal) = (*claim, journal.clone());
            Ok(Step { claim, journal, known, ..Step::new(Op::Append, claim.owner) })
        };
        resolve(
            seen: &'a Header, journal: Option<&'a Journal>, record: &'a Bytes
        ) -> ResolveReply as Resolve: Step::bringing(Op::Resolve, record).map(|step| {
            Step { claim: *seen, read: journal.cloned(), ..step }
        });
        read() -> ReadReply as Read: Ok(Step::new(Op::Read, NO_OWNER));
        poll() -> ReadReply as Read: Ok(Step::new(Op::Poll, NO_OWNER));
    }

    fn keeps_journals(&self) -> bool {
        !matches!(self.0.at, At::DeniesJournals)
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        let mut watched = lock(&self.0.watched);
        let is_second = watched.contains(key);
        watched.push(key.clone());
        let is_deaf = is_second && matches!(self.0.at, At::FirstWatch);
        let deaf = is_deaf.then(|| Watchers::default().watch(key));
        let watch = deaf.unwrap_or_else(|| self.0.watchers.watch(key));
        StoreFuture::ready(Ok(Some(watch)))
    }

    fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        let mut listeners = lock(&self.0.listeners);
        if let Some(there) = listener.upgrade() {
            listeners.retain(|(_, other)| other.strong_count() > 0);
            listeners.push((Arc::clone(prefix), listener));
            if !matches!(self.0.at, At::NeverHears) {
                there.hearing(Hearing::All);
            }
        }
        true
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        StoreFuture::pending(async move {
            let At::List(flaw) = self.0.at else {
                return self.0.records.list(request).await;
            };
            let mut seen = request.clone();
            flaw(&mut seen, None);
            let mut reply = self.0.records.list(&seen).await?;
            flaw(&mut seen, Some(&mut reply));
            Ok(reply)
        })
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
        self.0.records.plant(&self.key(key), bytes.into(), life);
        Box::pin(async { true })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let bytes = self.0.records.peek(&self.key(key));
        Box::pin(async { bytes.map(Into::into) })
    }

    fn patience(&self) -> Duration {
        // It notifies at once or never.
        Duration::from_millis(10)
    }

    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        let scarce = Self::new(self.0.at, 10);
        Box::pin(async { Some(Arc::new(scarce) as Arc<dyn Fixture>) })
    }
}
