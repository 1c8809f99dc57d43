//! Journals: steps, recorded attempts and labels.

use super::probe::{
    A, ASKED, B, C, IN_TIME, LEASE, OTHER, Probe, RELEASED, RETAIN, answer, ask_to_find_out, by,
    done, ended, header, owner, pending, record, request_by, request_with, unlimited,
};
use bytes::Bytes;
use idem_runtime::admin::{Attempt, AttemptEnd};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::OutcomeKind;
use idem_runtime::store::author::{
    AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, JournalKind,
    ReleaseReply, Remains, State, Unreadable,
};
use std::time::{Duration, SystemTime};

cases! {
    2 a_superseded_owner_appends_nothing,
    18 a_late_unknown_outcome_keeps_the_journal_of_its_successors,
    18 a_journal_comes_with_the_next_grant: transport,
    18 a_long_journal_is_kept_whole: transport,
    2 a_claim_that_was_lost_is_written_again_with_its_whole_journal: transport,
    10 an_answer_behind_a_journal_is_not_replaced,
    18 of_many_attempts_the_first_and_the_last_are_kept,
    18 a_release_with_attempts_alone_keeps_no_request: transport,
    18 a_label_among_the_attempts_is_kept: transport,
}

/// Bytes that corrupt a text protocol or a NUL-terminated comparison.
const ONE: &[u8] = b"\0\r\n$1\r\n\xff\xfe one";
const TWO: &[u8] = b"\0\r\n$1\r\n\xff\xfe one\0two\r\n";

const APPENDED: AppendReply = AppendReply::Appended;

/// The case passes on a store that keeps no journals.
macro_rules! journals {
    ($p:expr) => {
        if !$p.keeps_journals().await {
            return;
        }
    };
}

/// The stored journal.
async fn stored(p: &Probe) -> Bytes {
    p.found().await.0.journal().as_bytes().clone()
}

fn of(claim: Header) -> Header {
    with!(claim, journal: JournalKind::Steps)
}

async fn a_journal_comes_with_the_next_grant(p: Probe) {
    journals!(p);
    let (claim, none) = p.take_with_journal(&request_by(A)).await;
    assert_eq!(none, b""[..]);
    assert_eq!(p.append(&claim, ONE, 0).await, APPENDED);
    assert_eq!(p.header().await, of(claim));
    assert_eq!(stored(&p).await, ONE);
    let found = p.found().await.0;
    assert!(found.body().is_empty(), "a journal is no answer");
    p.advance(LEASE).await;
    let (next, journal) = p.client().take_with_journal(&request_by(B)).await;
    assert_eq!(journal, ONE);
    assert_eq!(next.attempts, 2);
    assert_eq!(p.header().await, of(next));
}

async fn a_long_journal_is_kept_whole(p: Probe) {
    journals!(p);
    let claim = p.take(&request_by(A)).await;
    let mut journal: Vec<u8> = Vec::new();
    for part in 0..8_u8 {
        let known = journal.len();
        journal.extend((0..32_000_u32).map(|n| (n % 251) as u8 ^ part));
        assert_eq!(p.append(&claim, &journal, known).await, APPENDED);
    }
    assert_eq!(stored(&p).await, journal);
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    let (next, kept) = p.take_with_journal(&request_by(B)).await;
    assert_eq!(kept, journal);
    assert_eq!(p.complete(&answer(&next, b"done")).await, IN_TIME);
    assert_eq!(p.found().await.0.body(), b"done");
}

async fn a_claim_that_was_lost_is_written_again_with_its_whole_journal(p: Probe) {
    journals!(p);
    for (n, known) in [0, ONE.len(), TWO.len()].into_iter().enumerate() {
        let p = p.at(n);
        let claim = header(pending());
        assert_eq!(p.append(&claim, TWO, known).await, AppendReply::Reasserted);
        let (found, left) = p.found().await;
        assert_eq!(found.header, of(claim));
        assert_eq!(found.journal().as_bytes(), TWO);
        p.assert_left(left, RETAIN);
        // A record that lacks confirmed bytes: that of a server that was promoted too early.
        let p = p.at(n + 10);
        p.plant(&of(claim), &ONE[..5], RETAIN).await;
        assert_eq!(p.append(&claim, TWO, known).await, APPENDED);
        assert_eq!(stored(&p).await, TWO);
    }
}

async fn an_answer_behind_a_journal_is_not_replaced(p: Probe) {
    journals!(p);
    let answers = [
        (b'D', OutcomeKind::Value),
        (b'E', OutcomeKind::Error),
        (b'T', OutcomeKind::Tombstone),
    ];
    for (n, (byte, outcome)) in answers.into_iter().enumerate() {
        let p = p.at(n);
        let later = of(header(done(outcome)));
        let bytes = p.plant(&later, b"of a later version", RETAIN).await;
        let error = Unreadable::State { byte };
        for owner in [A, B] {
            let reply = p.claim(&request_by(owner)).await;
            assert_eq!(reply, ClaimReply::Unreadable(error));
            let claim = by(owner, header(pending()));
            let reply = p.append(&claim, ONE, 0).await;
            assert_eq!(reply, AppendReply::Unreadable(error));
            let reply = p.release(owner, Remains::Request).await;
            assert_eq!(reply, ReleaseReply::Unreadable(error));
        }
        p.unchanged(&bytes, "nothing").await;
    }
}

fn recording(mut request: ClaimRequest) -> ClaimRequest {
    request.records_attempts = true;
    request
}

fn attempts(journal: &Bytes) -> Vec<Attempt> {
    Journal::new(journal.clone()).recorded_attempts()
}

/// An attempt of this claim that ended like this.
fn attempt(claim: &Header, end: AttemptEnd) -> Attempt {
    let ended = SystemTime::UNIX_EPOCH + Duration::from_millis(1_790_000_000_123);
    Attempt::new(claim, end, ended, "payments-7f9c")
}

/// The record that finishes a claim, with attempts behind its answer.
fn answered(header: Header, answer: &[u8], attempts: &Journal) -> Bytes {
    let header = with!(header, journal: JournalKind::Attempts);
    let mut bytes = record(&header, answer).to_vec();
    bytes.extend(attempts.as_bytes());
    let length = u32::try_from(attempts.as_bytes().len()).expect("few attempts are kept");
    bytes.extend(length.to_be_bytes());
    bytes.into()
}

fn assert_lapsed(attempt: &Attempt, claim: &Header) {
    let lapsed = Attempt::new(claim, AttemptEnd::Lapsed, attempt.ended, "");
    assert_eq!(*attempt, lapsed);
    assert!(attempt.ended > SystemTime::UNIX_EPOCH, "{attempt:?}");
}

async fn of_many_attempts_the_first_and_the_last_are_kept(p: Probe) {
    journals!(p);
    let mut numbers: Vec<u16> = Vec::new();
    for n in 0..Journal::MAX_ATTEMPTS + 3 {
        let request = recording(unlimited(owner(n)));
        let (claim, journal) = p.take_with_journal(&request).await;
        let recorded = attempts(&journal);
        let known: Vec<_> = recorded.iter().map(|attempt| attempt.number).collect();
        assert_eq!(known, numbers);
        numbers.push(claim.attempts);
        if numbers.len() > Journal::MAX_ATTEMPTS {
            numbers.remove(1);
        }
        p.advance(LEASE).await;
    }
    assert_eq!(numbers.len(), Journal::MAX_ATTEMPTS);
}

/// Entries with a small letter that are no attempts pass uncounted.
async fn a_label_among_the_attempts_is_kept(p: Probe) {
    journals!(p);
    let (claim, _) = p.take_with_journal(&recording(request_by(A))).await;
    let mut kept = Journal::default().with_label("order …4711");
    for n in 0..Journal::MAX_ATTEMPTS {
        let owner = owner(n);
        let attempt = attempt(&with!(claim, owner: owner), AttemptEnd::SystemError);
        kept = kept.with_attempt(&attempt);
    }
    let released = p
        .release_with_journal(A, Remains::Attempt, kept.as_bytes())
        .await;
    assert_eq!(released, RELEASED);
    assert_eq!(p.header().await.journal, JournalKind::Attempts);
    let (claim, journal) = p.take_with_journal(&recording(unlimited(B))).await;
    assert_eq!(&journal, kept.as_bytes());
    p.advance(LEASE).await;
    // One attempt more is one too many.
    let (next, journal) = p.client().take_with_journal(&recording(unlimited(C))).await;
    let recorded = attempts(&journal);
    assert_eq!(recorded.len(), Journal::MAX_ATTEMPTS);
    assert_eq!(recorded[0].owner, owner(0));
    assert_eq!(recorded[1].owner, owner(2));
    assert_lapsed(&recorded[Journal::MAX_ATTEMPTS - 1], &claim);
    let journal = Journal::new(journal);
    assert_eq!(p.found().await.0.journal(), journal);
    assert_eq!(journal.label().as_deref(), Some("order …4711"));
    let answer = answered(ended(&next, OutcomeKind::Value), b"answer", &journal);
    assert_eq!(p.complete(&answer).await, IN_TIME);
    let (stored, _) = p.found().await;
    assert_eq!((stored.body(), stored.journal()), (&b"answer"[..], journal));
}

async fn a_release_with_attempts_alone_keeps_no_request(p: Probe) {
    journals!(p);
    let mut journal = Journal::default();
    // The second record has a journal already.
    for (by, asked) in [(A, ASKED), (B, OTHER), (C, ASKED)] {
        let request = recording(request_with(by, asked));
        let (claim, kept) = p.take_with_journal(&request).await;
        assert_eq!((claim.attempts, &kept), (1, journal.as_bytes()));
        journal = journal.with_attempt(&attempt(&claim, AttemptEnd::SystemError));
        for _ in 0..2 {
            let released = p.release_with_journal(by, Remains::Nothing, journal.as_bytes());
            assert_eq!(released.await, RELEASED);
            let (stored, left) = p.found().await;
            assert_eq!(stored.header.state, State::Released);
            assert_eq!(stored.header.fingerprint, Fingerprint::NONE);
            assert_eq!(stored.header.journal, JournalKind::Attempts);
            assert_eq!(stored.journal(), journal);
            p.assert_left(left, LEASE.max(Duration::from_secs(10)));
        }
    }
    assert_eq!(attempts(journal.as_bytes()).len(), 3);
}

/// Claims for A, and appends.
async fn claim_with(p: &Probe, journal: &[u8]) -> Header {
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.append(&claim, journal, 0).await, APPENDED);
    claim
}

/// A's lease lapses; B takes over with A's journal, appends, and releases. Returns A's claim.
async fn overtaken_and_released(p: &Probe) -> Header {
    let claim = claim_with(p, ONE).await;
    p.advance(LEASE).await;
    let (next, _) = p.client().take_with_journal(&request_by(B)).await;
    assert_eq!(p.append(&next, TWO, ONE.len()).await, APPENDED);
    assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
    claim
}

async fn a_late_unknown_outcome_keeps_the_journal_of_its_successors(p: Probe) {
    journals!(p);
    // Longer than that of the successor, and unlike it: what A recorded last was not confirmed.
    let unconfirmed = [ONE, b"what was not confirmed to A".as_slice()].concat();
    let claim = overtaken_and_released(&p).await;
    let unknown = of(ended(&claim, OutcomeKind::Unknown));
    let late = CompleteReply::Stored { late: true };
    assert_eq!(p.complete(&record(&unknown, &unconfirmed)).await, late);
    assert_eq!(stored(&p).await, TWO);
    let (_, journal) = p.take_with_journal(&ask_to_find_out(C)).await;
    assert_eq!(journal, TWO);
    // The same of an attempt without steps.
    let p = p.at(1);
    let claim = overtaken_and_released(&p).await;
    let unknown = ended(&claim, OutcomeKind::Unknown);
    assert_eq!(p.complete(&record(&unknown, b"")).await, late);
    assert_eq!(stored(&p).await, TWO);
}

async fn a_superseded_owner_appends_nothing(p: Probe) {
    journals!(p);
    let first = claim_with(&p, ONE).await;
    p.advance(LEASE).await;
    let second = p.take(&request_by(B)).await;
    let bytes = p.peek().await.expect("the claim is there");
    assert_eq!(p.append(&first, TWO, ONE.len()).await, AppendReply::Lost);
    p.unchanged(&bytes, "an append by an overtaken owner").await;
    assert_eq!(p.append(&second, TWO, ONE.len()).await, APPENDED);
}
