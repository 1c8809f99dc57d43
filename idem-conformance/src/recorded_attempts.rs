//! Attempts that a record remembers: added by the claim that takes over, and kept behind an answer.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::probe::{
    A, B, C, IN_TIME, LEASE, OTHER, OUTCOMES, Probe, RELEASED, RETAIN, TTL, ask_to_find_out, ended,
    owner, record, request_by, request_with, unlimited,
};
use idem_runtime::admin::{Attempt, AttemptEnd};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{
    AppendReply, ClaimReply, ClaimRequest, Header, Journal, JournalKind, OutcomeKind, ReadReply,
    Remains, ResolveReply, State,
};

cases! {
    18 a_claim_that_takes_over_records_the_lapsed_attempt: transport,
    18 each_take_over_is_recorded_once,
    18 a_reconciliation_records_the_lapsed_attempt,
    18 of_many_attempts_the_first_and_the_last_are_kept,
    18 steps_are_appended_behind_recorded_attempts,
    18 an_answer_keeps_the_attempts_that_it_brings: transport,
    18 a_large_answer_keeps_the_attempts_that_it_brings: transport,
    18 a_release_with_attempts_alone_keeps_no_request: transport,
    18 a_released_record_with_attempts_is_claimed_as_any_other,
    18 a_reset_that_brings_attempts_alone_drops_the_steps,
    18 an_unknown_outcome_keeps_the_attempts_that_it_brings,
    18 a_label_among_the_attempts_is_kept: transport,
}

/// The case passes on a store that keeps no journals.
macro_rules! journals {
    ($p:expr) => {
        if !$p.keeps_journals().await {
            return;
        }
    };
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

/// A journal of these attempts.
fn journal_of(all: &[Attempt]) -> Journal {
    all.iter().fold(Journal::default(), |journal, attempt| {
        journal.with_attempt(attempt)
    })
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
    let Attempt {
        owner,
        fence,
        number,
        end,
        ended,
        instance,
        ..
    } = attempt;
    assert_eq!((*owner, *fence), (claim.owner, claim.fence));
    assert_eq!((*number, *end), (claim.attempts, AttemptEnd::Lapsed));
    assert_eq!(instance, "");
    assert!(*ended > SystemTime::UNIX_EPOCH, "{ended:?}");
}

async fn a_claim_that_takes_over_records_the_lapsed_attempt(p: Probe) {
    journals!(p);
    let (first, none) = p.take_with_journal(&recording(request_by(A))).await;
    assert_eq!(none, b""[..]);
    assert_eq!(p.header().await, first);
    p.advance(LEASE).await;
    let (second, journal) = p
        .client()
        .take_with_journal(&recording(request_by(B)))
        .await;
    assert_eq!(second.attempts, 2);
    let recorded = attempts(&journal);
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert_lapsed(&recorded[0], &first);
    let (stored, _) = p.found().await;
    assert_eq!(stored.journal().as_bytes(), &journal);
    assert_eq!(stored.header.journal, JournalKind::Attempts);
    assert_eq!(stored.body(), b"");
}

async fn each_take_over_is_recorded_once(p: Probe) {
    journals!(p);
    let first = p.take(&recording(request_by(A))).await;
    p.advance(LEASE).await;
    let second = recording(request_by(B));
    let (claim, journal) = p.take_with_journal(&second).await;
    // Sent again, and renewed.
    let (_, again) = p.take_with_journal(&second).await;
    assert_eq!(again, journal);
    p.renew(&claim).await;
    assert_eq!(p.found().await.0.journal().as_bytes(), &journal);
    p.advance(LEASE).await;
    // One that does not record keeps what is there.
    let (third, kept) = p.take_with_journal(&request_by(C)).await;
    assert_eq!(kept, journal);
    p.advance(LEASE).await;
    let (_, journal) = p.take_with_journal(&recording(request_by(A))).await;
    let recorded = attempts(&journal);
    assert_eq!(recorded.len(), 2);
    assert_lapsed(&recorded[0], &first);
    assert_lapsed(&recorded[1], &third);
}

async fn a_reconciliation_records_the_lapsed_attempt(p: Probe) {
    journals!(p);
    let first = p.take(&recording(request_by(A))).await;
    p.advance(LEASE).await;
    let (_, journal) = p.take_with_journal(&recording(ask_to_find_out(B))).await;
    assert_lapsed(&attempts(&journal)[0], &first);
    p.advance(LEASE).await;
    // A reconciliation that lapses is no attempt.
    let (_, journal) = p.take_with_journal(&recording(ask_to_find_out(C))).await;
    assert_eq!(attempts(&journal).len(), 1);
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

async fn steps_are_appended_behind_recorded_attempts(p: Probe) {
    journals!(p);
    let first = p.take(&recording(request_by(A))).await;
    p.advance(LEASE).await;
    let (claim, journal) = p.take_with_journal(&recording(request_by(B))).await;
    let known = journal.len();
    let whole = [&journal[..], b"a step"].concat();
    let appended = p.append(&claim, &whole, known).await;
    assert_eq!(appended, AppendReply::Appended);
    let (stored, _) = p.found().await;
    assert_eq!(stored.header.journal, JournalKind::Steps);
    assert_eq!(stored.journal().as_bytes(), &whole);
    p.advance(LEASE).await;
    let (_, journal) = p.take_with_journal(&recording(request_by(C))).await;
    assert_eq!(journal[..whole.len()], whole);
    assert_eq!(p.header().await.journal, JournalKind::Steps);
    assert_lapsed(&attempts(&journal)[0], &first);
}

async fn an_answer_keeps_the_attempts_that_it_brings(p: Probe) {
    let outcomes = (OUTCOMES.into_iter()).filter(|outcome| *outcome != OutcomeKind::Unknown);
    journals!(p);
    for (n, outcome) in outcomes.enumerate() {
        let p = p.at(n);
        p.take(&recording(request_by(A))).await;
        p.advance(LEASE).await;
        let (claim, journal) = p.take_with_journal(&recording(request_by(B))).await;
        let mut recorded = attempts(&journal);
        recorded.push(attempt(&claim, AttemptEnd::Value));
        let kept = journal_of(&recorded);
        let body: &[u8] = if outcome == OutcomeKind::Tombstone {
            b""
        } else {
            b"answer"
        };
        let answer = answered(ended(&claim, outcome), body, &kept);
        let there = with!(claim, journal: JournalKind::Attempts);
        for _ in 0..2 {
            assert_eq!(p.complete_claim(&there, &answer).await, IN_TIME);
            let (found, left) = p.found().await;
            assert_eq!((found.body(), found.journal()), (body, kept.clone()));
            p.assert_left(left, TTL);
        }
        let ClaimReply::Done { record, .. } = p.client().claim(&recording(request_by(C))).await
        else {
            panic!("it is done")
        };
        assert_eq!((record.body(), record.journal()), (body, kept.clone()));
        let ReadReply::Found { record, .. } = p.poll().await else {
            panic!("it is done")
        };
        assert_eq!(record.body(), body);
    }
}

async fn a_large_answer_keeps_the_attempts_that_it_brings(p: Probe) {
    journals!(p);
    p.take(&recording(request_by(A))).await;
    p.advance(LEASE).await;
    let (claim, journal) = p.take_with_journal(&recording(request_by(B))).await;
    let kept = Journal::new(journal);
    let body: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
    let answer = answered(ended(&claim, OutcomeKind::Value), &body, &kept);
    assert_eq!(p.complete(&answer).await, IN_TIME);
    let (found, _) = p.found().await;
    assert_eq!((found.body(), found.journal()), (&body[..], kept));
    let ClaimReply::Done { record, .. } = p.claim(&request_by(C)).await else {
        panic!("it is done")
    };
    assert_eq!(record.body(), body);
}

async fn a_release_with_attempts_alone_keeps_no_request(p: Probe) {
    journals!(p);
    let mut journal = Journal::default();
    // The second record has a journal already.
    for (by, asked) in [
        (A, super::probe::ASKED),
        (B, OTHER),
        (C, super::probe::ASKED),
    ] {
        let (claim, kept) = p
            .take_with_journal(&recording(request_with(by, asked)))
            .await;
        assert_eq!((claim.attempts, &kept), (1, journal.as_bytes()));
        journal = journal.with_attempt(&attempt(&claim, AttemptEnd::SystemError));
        for _ in 0..2 {
            let released = p
                .release_with_journal(by, Remains::Nothing, journal.as_bytes())
                .await;
            assert_eq!(released, RELEASED);
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

async fn a_released_record_with_attempts_is_claimed_as_any_other(p: Probe) {
    journals!(p);
    for (n, remains) in [Remains::Request, Remains::Attempt].into_iter().enumerate() {
        let p = p.at(n);
        let claim = p.take(&recording(request_by(A))).await;
        let journal = journal_of(&[attempt(&claim, AttemptEnd::Panicked)]);
        let released = p.release_with_journal(A, remains, journal.as_bytes()).await;
        assert_eq!(released, RELEASED);
        p.assert_left(p.found().await.1, RETAIN);
        let mismatch = p.claim(&recording(request_with(B, OTHER))).await;
        assert_eq!(mismatch, ClaimReply::Mismatch);
        // A released claim has not lapsed.
        let (_, kept) = p.take_with_journal(&recording(request_by(B))).await;
        assert_eq!(&kept, journal.as_bytes());
    }
}

async fn a_reset_that_brings_attempts_alone_drops_the_steps(p: Probe) {
    journals!(p);
    let claim = p.take(&recording(request_by(A))).await;
    assert_eq!(
        p.append(&claim, &[b'x'; 200], 0).await,
        AppendReply::Appended
    );
    p.advance(LEASE).await;
    let seen = p.header().await;
    let kept = journal_of(&[attempt(&claim, AttemptEnd::Lapsed)]);
    let reset = with!(claim, owner: B, state: State::Released, journal: JournalKind::Attempts);
    for _ in 0..2 {
        let reply = p.resolve(&seen, &record(&reset, kept.as_bytes())).await;
        assert_eq!(reply, ResolveReply::Resolved);
        let (stored, _) = p.found().await;
        assert_eq!(
            (stored.header.state, stored.header.journal),
            (State::Released, JournalKind::Attempts)
        );
        assert_eq!(stored.journal(), kept);
    }
}

async fn an_unknown_outcome_keeps_the_attempts_that_it_brings(p: Probe) {
    journals!(p);
    let claim = p.take(&recording(request_by(A))).await;
    let journal = journal_of(&[attempt(&claim, AttemptEnd::Unknown)]);
    let unknown = with!(ended(&claim, OutcomeKind::Unknown), journal: JournalKind::Attempts);
    let unknown = record(&unknown, journal.as_bytes());
    assert_eq!(p.complete_claim(&claim, &unknown).await, IN_TIME);
    assert_eq!(p.found().await.0.journal(), journal);
    let ClaimReply::Done { record, .. } = p.claim(&recording(request_by(B))).await else {
        panic!("it is unknown")
    };
    assert_eq!(record.body(), b"");
    let (_, kept) = p.take_with_journal(&recording(ask_to_find_out(C))).await;
    assert_eq!(&kept, journal.as_bytes());
}

/// Entries with a small letter that are no attempts are passed on, and do not count as attempts.
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
