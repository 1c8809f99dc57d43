//! Common tools of the cases: one key of a store, and records to plant.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::fixture::{Fixture, Plant};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{
    Admission, AnswerTypes, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal,
    Owner, ReadReply, Record, ReleaseReply, Remains, RenewReply, ResolveReply, State, UNDECIDED,
    Unreadable, Watch,
};
use idem_runtime::store::{Fence, OutcomeKind, RecordKey, Store, StoreError};

pub(super) const A: Owner = Owner::from_bytes(*b"owner A of tests");
pub(super) const B: Owner = Owner::from_bytes(*b"owner B of tests");
/// Bytes that corrupt a text protocol or a NUL-terminated comparison.
pub(super) const C: Owner = Owner::from_bytes(*b"\0\r\n\xff\xfe$1\r\n\0 \"'{}*");

pub(super) const ASKED: Fingerprint = Fingerprint::from_bytes(*b"what was asked\r\n");
pub(super) const OTHER: Fingerprint = Fingerprint::from_bytes(*b"what was asked\r\0");
/// The types of the answers: bytes that a text protocol would corrupt.
pub(super) const TYPES: AnswerTypes = AnswerTypes::from_bytes([0x0d, 0x0a, 0x00, 0x24]);

pub(super) const MS: Duration = Duration::from_millis(1);
/// The possible remains of an attempt.
pub(super) const REMAINS: [Remains; 3] = [Remains::Attempt, Remains::Request, Remains::Nothing];
pub(super) const LEASE: Duration = Duration::from_secs(60);
pub(super) const RETAIN: Duration = Duration::from_secs(24 * 60 * 60);
/// The life of an answer: unlike `RETAIN`, so that neither is mistaken for the other.
pub(super) const TTL: Duration = Duration::from_secs(2 * 60 * 60);
pub(super) const SCHEMA: u32 = 0x0d0a_00ff;

pub(super) const OUTCOMES: [OutcomeKind; 4] = [
    OutcomeKind::Value,
    OutcomeKind::Error,
    OutcomeKind::Unknown,
    OutcomeKind::Tombstone,
];

/// The reply to the completion of a claim without a successor.
pub(super) const IN_TIME: CompleteReply = CompleteReply::Stored { late: false };
pub(super) const RELEASED: ReleaseReply = ReleaseReply::Released;
pub(super) const SUPERSEDED: ReleaseReply = ReleaseReply::Superseded;

/// Bytes that are no record, and the reason.
pub(super) const NO_RECORDS: [(&[u8], Unreadable); 4] = [
    (b"", Unreadable::Short { bytes: 0 }),
    (b"2D", Unreadable::Short { bytes: 2 }),
    (b"1D", Unreadable::Layout { byte: b'1' }),
    (b"5D", Unreadable::Layout { byte: b'5' }),
];

/// An owner with a number, for cases that need many.
pub(super) fn owner(number: usize) -> Owner {
    let mut bytes = [b'o'; 16];
    bytes[8..].copy_from_slice(&(number as u64).to_be_bytes());
    Owner::from_bytes(bytes)
}

/// The claim request of `owner` unless the case needs another.
pub(super) fn request_by(owner: Owner) -> ClaimRequest {
    with!(
        ClaimRequest::new(owner, LEASE, RETAIN),
        fingerprint: ASKED,
        types: TYPES,
        max_attempts: NonZeroU16::new(5),
        dated: false,
    )
}

/// The same, with this limit of attempts.
pub(super) fn at_most(attempts: u16, owner: Owner) -> ClaimRequest {
    with!(request_by(owner), max_attempts: NonZeroU16::new(attempts))
}

/// The same, without a limit of attempts.
pub(super) fn unlimited(owner: Owner) -> ClaimRequest {
    at_most(0, owner)
}

/// The same, with this fingerprint.
pub(super) fn request_with(owner: Owner, fingerprint: Fingerprint) -> ClaimRequest {
    with!(request_by(owner), fingerprint: fingerprint)
}

/// The same for an owner that needs the answer's remaining life.
pub(super) fn dated(request: &ClaimRequest) -> ClaimRequest {
    with!(request.clone(), dated: true)
}

/// The same, by an owner that has a reconcile hook.
pub(super) fn ask_to_find_out(owner: Owner) -> ClaimRequest {
    with!(request_by(owner), reconciles: true)
}

pub(super) const fn pending() -> State {
    State::Pending { lease: LEASE }
}

pub(super) const fn reconciling() -> State {
    State::Reconciling { lease: LEASE }
}

pub(super) const fn unknown_outcome() -> State {
    done(OutcomeKind::Unknown)
}

/// Unknown since a reconcile hook did not decide.
pub(super) const fn undecided() -> State {
    State::Done {
        outcome: OutcomeKind::Unknown,
        schema: UNDECIDED,
    }
}

pub(super) const fn done(outcome: OutcomeKind) -> State {
    State::Done {
        outcome,
        schema: SCHEMA,
    }
}

/// The record of A that cases plant: third attempt, old fence.
pub(super) fn header(state: State) -> Header {
    with!(
        Header::new(state, A, Fence::new(1_000_000), RETAIN),
        attempts: 3,
        fingerprint: ASKED,
        types: TYPES,
    )
}

/// The header of a claim as it was granted.
fn claimed(request: &ClaimRequest, state: State, fence: Fence, attempts: u16) -> Header {
    with!(
        Header::new(state, request.owner, fence, request.retain),
        attempts: attempts,
        fingerprint: request.fingerprint,
        types: request.types,
    )
}

/// The bytes of a record.
pub(super) fn record(header: &Header, body: &[u8]) -> Bytes {
    [&header.encode()[..], body].concat().into()
}

/// The header with which the owner of `claim` completes.
pub(super) fn finished(claim: &Header) -> Header {
    with!(*claim, state: done(OutcomeKind::Value), retain: TTL)
}

/// The header with which the owner of `claim` completes with this outcome.
pub(super) fn ended(claim: &Header, outcome: OutcomeKind) -> Header {
    with!(finished(claim), state: done(outcome))
}

/// The same header, of another owner.
pub(super) const fn by(owner: Owner, header: Header) -> Header {
    with!(header, owner: owner)
}

/// The record with which the owner of `claim` completes.
pub(super) fn answer(claim: &Header, body: &[u8]) -> Bytes {
    record(&finished(claim), body)
}

/// One key of the store under test.
#[derive(Clone)]
pub(super) struct Probe {
    pub(super) fixture: Arc<dyn Fixture>,
    store: Arc<dyn Store>,
    pub(super) key: RecordKey,
}

#[track_caller]
fn ok<T>(operation: &str, reply: Result<T, StoreError>) -> T {
    reply.unwrap_or_else(|error| {
        panic!(
            "{operation} failed: {error} ({:?}), {error:?}",
            error.kind()
        )
    })
}

impl Probe {
    pub(super) fn new(fixture: Arc<dyn Fixture>) -> Self {
        let store = fixture.store();
        let prefix = fixture.prefix();
        let digest = KeyDigest::from_bytes([0xd1; 32]);
        let key = RecordKey::new(prefix, Operation::new("conformance.case"), digest);
        Self {
            fixture,
            store,
            key,
        }
    }

    /// The same store, with another key.
    pub(super) fn on(&self, key: RecordKey) -> Self {
        let store = self.fixture.store();
        let fixture = Arc::clone(&self.fixture);
        Self {
            fixture,
            store,
            key,
        }
    }

    /// The same key, by another client of the store.
    pub(super) fn client(&self) -> Self {
        self.on(self.key.clone())
    }

    /// The same store, with the key of this number.
    pub(super) fn at(&self, number: usize) -> Self {
        let mut digest = [0x2a; 32];
        digest[24..].copy_from_slice(&(number as u64).to_be_bytes());
        let operation = self.key.operation().clone();
        let digest = KeyDigest::from_bytes(digest);
        self.on(RecordKey::new(self.fixture.prefix(), operation, digest))
    }

    /// Claims as an engine does: it releases a claim without a reply only if it was sent, as [`Admission`] states.
    pub(super) async fn try_claim(&self, request: &ClaimRequest) -> Result<ClaimReply, StoreError> {
        let admission = Admission::new(self.fixture.patience());
        let reply = self.store.claim(&self.key, request, &admission).await;
        let is_granted = matches!(reply, Ok(ClaimReply::Granted { .. }));
        assert!(
            admission.waited().is_some() || !is_granted,
            "a granted claim was sent"
        );
        reply
    }

    pub(super) async fn claim(&self, request: &ClaimRequest) -> ClaimReply {
        ok("claim", self.try_claim(request).await)
    }

    pub(super) fn new_owner(&self) -> Owner {
        self.store.new_owner(&self.key)
    }

    pub(super) async fn complete_without_claim(&self, record: &Bytes) -> CompleteReply {
        let reply = self.store.complete(&self.key, None, record).await;
        ok("complete", reply)
    }

    /// Completes with the header of the ending claim, as [`request_by`] requests it. If that header is wrong, or the claim is
    /// gone, the reply is the same as without it.
    pub(super) async fn complete(&self, record: &Bytes) -> CompleteReply {
        let done = Header::decode(record).ok();
        let claim = done.map(|done| with!(done, state: pending(), retain: RETAIN));
        let reply = self.store.complete(&self.key, claim.as_ref(), record).await;
        ok("complete", reply)
    }

    pub(super) async fn release(&self, owner: Owner, remains: Remains) -> ReleaseReply {
        let reply = self.store.release(&self.key, &owner, remains, None).await;
        ok("release", reply)
    }

    pub(super) async fn release_with_journal(
        &self,
        owner: Owner,
        remains: Remains,
        journal: &[u8],
    ) -> ReleaseReply {
        let journal = Journal::new(Bytes::copy_from_slice(journal));
        let store = &self.store;
        let reply = store.release(&self.key, &owner, remains, Some((&journal, None)));
        ok("release", reply.await)
    }

    pub(super) async fn renew(&self, claim: &Header) -> RenewReply {
        ok("renew", self.store.renew(&self.key, claim).await)
    }

    /// Appends to the journal of a claim: `known` bytes of it are in the store.
    pub(super) async fn append(&self, claim: &Header, journal: &[u8], known: usize) -> AppendReply {
        let journal = Journal::new(Bytes::copy_from_slice(journal));
        let reply = self.store.append(&self.key, claim, &journal, known).await;
        ok("append", reply)
    }

    /// Whether the store keeps journals, which it need not.
    pub(super) async fn keeps_journals(&self) -> bool {
        let other = self.at(usize::MAX);
        let claim = other.take(&request_by(C)).await;
        let keeps = other.append(&claim, b"j", 0).await != AppendReply::Unsupported;
        assert_eq!(
            self.store.keeps_journals(),
            keeps,
            "`keeps_journals` tells what `append` does"
        );
        keeps
    }

    /// Claims the key, which must be granted. Returns the header of the claim, and the journal that came with it.
    pub(super) async fn take_with_journal(&self, request: &ClaimRequest) -> (Header, Bytes) {
        let lease = request.lease;
        match self.claim(request).await {
            ClaimReply::Granted {
                fence,
                attempt,
                journal,
                ..
            } => {
                let claim = claimed(request, State::Pending { lease }, fence, attempt);
                (claim, journal.as_bytes().clone())
            }
            ClaimReply::Reconcile {
                fence,
                attempts,
                journal,
            } => {
                let claim = claimed(request, State::Reconciling { lease }, fence, attempts);
                (claim, journal.as_bytes().clone())
            }
            other => panic!(
                "nothing prevents the claim of {:?}: {other:?}",
                request.owner
            ),
        }
    }

    pub(super) async fn resolve(&self, seen: &Header, record: &Bytes) -> ResolveReply {
        let reply = self.store.resolve(&self.key, seen, None, record).await;
        ok("resolve", reply)
    }

    /// Watches the key. `None`: the store does not notify, which the contract permits.
    pub(super) async fn watch(&self) -> Option<Watch> {
        ok("watch", self.store.watch(&self.key).await)
    }

    pub(super) async fn read(&self) -> ReadReply {
        ok("read", self.store.read(&self.key).await)
    }

    pub(super) async fn poll(&self) -> ReadReply {
        ok("poll", self.store.poll(&self.key).await)
    }

    /// Claims the key, which must be granted. Returns the header of the claim.
    pub(super) async fn take(&self, request: &ClaimRequest) -> Header {
        let (claim, _) = self.take_with_journal(request).await;
        let is_granted = matches!(claim.state, State::Pending { .. });
        assert!(is_granted, "{:?} needs to find out nothing", claim.owner);
        claim
    }

    /// Claims the key, which must be granted for reconciling an earlier attempt. Returns the header of the claim.
    pub(super) async fn look_into(&self, request: &ClaimRequest) -> Header {
        let (claim, _) = self.take_with_journal(request).await;
        let reconciles = matches!(claim.state, State::Reconciling { .. });
        assert!(reconciles, "{:?} can find out", claim.owner);
        claim
    }

    /// Claims the key for A and completes it with `body`.
    pub(super) async fn finish(&self, body: &[u8]) -> Bytes {
        let claim = self.take(&request_by(A)).await;
        let answer = answer(&claim, body);
        assert_eq!(self.complete(&answer).await, IN_TIME, "the claim is live");
        answer
    }

    /// The stored record and its remaining life.
    pub(super) async fn found(&self) -> (Record, Duration) {
        expect!(
            self.read().await,
            ReadReply::Found { record, left } => (record, left),
            "there is a record"
        )
    }

    /// The stored header.
    pub(super) async fn header(&self) -> Header {
        self.found().await.0.header
    }

    /// Plants a record with `life` remaining.
    pub(super) async fn plant(&self, header: &Header, body: &[u8], life: Duration) -> Bytes {
        let bytes = record(header, body);
        self.plant_bytes(&bytes, life).await;
        bytes
    }

    pub(super) async fn plant_bytes(&self, bytes: &[u8], life: Duration) {
        let bytes = bytes.to_vec();
        let plant = Plant::Bytes { bytes, life };
        assert!(
            self.fixture.plant(&self.key, plant).await,
            "the fixture must be able to plant bytes"
        );
    }

    pub(super) async fn peek(&self) -> Option<Vec<u8>> {
        self.fixture.peek(&self.key).await
    }

    pub(super) async fn advance(&self, by: Duration) {
        self.fixture.advance(by).await;
    }

    /// Moves the time to just before the moment that is `by` away: a millisecond, and the drift of the store's clock.
    pub(super) async fn advance_just_before(&self, by: Duration) {
        let before = by.checked_sub(self.fixture.drift() + MS);
        self.advance(before.expect("moments are further away than the drift"))
            .await;
    }

    /// Moves the time from there to the moment itself.
    pub(super) async fn advance_the_rest(&self) {
        self.advance(self.fixture.drift() + MS).await;
    }

    /// Whether the store's time moves only by [`advance`](Self::advance).
    pub(super) fn stands_still(&self) -> bool {
        self.fixture.drift().is_zero()
    }

    /// Asserts a remaining time, which may have been reduced by drift.
    #[track_caller]
    pub(super) fn assert_left(&self, left: Duration, expected: Duration) {
        let least = expected.saturating_sub(self.fixture.drift());
        assert!(
            (least..=expected).contains(&left),
            "{left:?} are left, expected {expected:?} (at least {least:?})"
        );
    }

    /// Asserts that the bytes under the key are these, untouched.
    pub(super) async fn unchanged(&self, bytes: &[u8], by: &str) {
        let stored = self.peek().await;
        let stored = stored.unwrap_or_else(|| panic!("the record is gone after {by}"));
        assert!(
            stored == bytes,
            "{by} must not change the record; it was {}, it is {}",
            bytes.escape_ascii(),
            stored.escape_ascii()
        );
    }
}
