//! Resolutions: an operator replaces the record that was read.

use std::time::Duration;

use bytes::Bytes;

use super::probe::{
    A, ASKED, B, LEASE, NO_RECORDS, NONE, OTHER, OUTCOMES, Probe, RELEASED, REMAINS, RETAIN,
    SUPERSEDED, TTL, ask_to_find_out, by, counted, done, fenced, fingerprinted, header, owner,
    pending, reconciling, record, request_by, undecided, unknown_outcome,
};
use idem_runtime::store::{
    AnswerTypes, Fence, Header, OutcomeKind, Owner, ReadReply, Remains, RenewReply, ResolveReply,
    State,
};

cases! {
    4 a_resolution_takes_the_place_of_what_was_seen: transport,
    4 a_resolution_of_another_record_changes_nothing,
    4 a_resolution_of_what_has_changed_since_changes_nothing,
    2 a_resolution_without_a_record_changes_nothing,
    5 what_is_held_is_not_resolved_before_its_lease_is_over,
    3 a_resolution_sent_again_changes_nothing,
    8 an_answer_by_resolution_keeps_the_attempts,
    7 a_resolution_keeps_the_higher_fence,
    9 a_resolution_keeps_the_fingerprint,
    6 a_resolution_is_kept_for_what_its_record_says,
    13 an_outcome_is_known_after_its_resolution,
    2 an_owner_whose_claim_was_resolved_has_lost_it,
    10 a_resolution_that_is_no_record_is_refused,
    4 a_large_answer_is_resolved_by_its_header: transport,
}

/// The owner of a resolution.
const R: Owner = Owner::from_bytes(*b"who knows better");

/// Every record without a live owner, and its remaining life.
pub(super) fn free() -> impl Iterator<Item = (State, Duration)> {
    let claims = [
        (pending(), RETAIN - LEASE),
        (reconciling(), RETAIN - LEASE),
        (State::Released, RETAIN / 2),
        (undecided(), RETAIN / 2),
    ];
    let done = OUTCOMES.map(|outcome| (done(outcome), RETAIN / 2));
    claims.into_iter().chain(done)
}

/// The header of an answer by resolution, or of a reset.
pub(super) fn new(state: State) -> Header {
    with!(Header::new(state, R, Fence::default(), TTL), attempts: 0)
}

/// Every end that a resolution can write.
fn ends() -> impl Iterator<Item = (Header, &'static [u8])> {
    let answers = OUTCOMES.map(|outcome| (new(done(outcome)), &b"resolved"[..]));
    let reset = (new(State::Released), &b""[..]);
    answers.into_iter().chain([reset])
}

/// The record of a reset.
pub(super) fn reset() -> Bytes {
    record(&new(State::Released), b"")
}

/// Resolves the record that was read, which must be the stored one.
pub(super) async fn resolved(p: &Probe, seen: &Header, record: &Bytes) {
    let reply = p.resolve(seen, record).await;
    assert_eq!(reply, ResolveReply::Resolved, "{seen:?} was there");
}

async fn a_resolution_takes_the_place_of_what_was_seen(p: Probe) {
    for (state, life) in free() {
        for (new, body) in ends() {
            p.plant(&header(state), b"", life).await;
            let seen = p.header().await;
            resolved(&p, &seen, &record(&new, body)).await;
            let (stored, left) = p.found().await;
            assert_eq!((stored.header.state, stored.header.owner), (new.state, R));
            assert_eq!(stored.body(), body);
            p.assert_left(left, TTL);
        }
    }
}

async fn a_resolution_of_another_record_changes_nothing(p: Probe) {
    for (state, life) in free() {
        let there = header(state);
        let bytes = p.plant(&there, b"", life).await;
        let other_state = match state {
            State::Released => done(OutcomeKind::Unknown),
            _ => State::Released,
        };
        let others = [
            with!(there, state: other_state),
            by(B, there),
            fenced(Fence::new(there.fence.get() + 1), there),
            counted(there.attempts - 1, there),
            with!(there, retain: RETAIN * 2),
            fingerprinted(OTHER, there),
            fingerprinted(NONE, there),
            with!(there, types: AnswerTypes::UNKNOWN),
        ];
        for seen in others {
            for (new, body) in ends() {
                let reply = p.resolve(&seen, &record(&new, body)).await;
                assert_eq!(reply, ResolveReply::Changed, "{seen:?} was not there");
            }
        }
        p.unchanged(&bytes, "a resolution of another record").await;
        p.assert_left(p.found().await.1, life);
    }
    let unknown = |schema| State::Done {
        outcome: OutcomeKind::Unknown,
        schema,
    };
    p.plant(&header(unknown(1)), b"", RETAIN).await;
    let reset = reset();
    let reply = p.resolve(&header(unknown(2)), &reset).await;
    assert_eq!(reply, ResolveReply::Changed, "another cause");
}

async fn a_resolution_of_what_has_changed_since_changes_nothing(p: Probe) {
    let resolution = record(&new(done(OutcomeKind::Value)), b"outdated");
    let p1 = p.at(1);
    p1.plant(&header(unknown_outcome()), b"", RETAIN).await;
    let seen = p1.header().await;
    let claim = p1.look_into(&ask_to_find_out(B)).await;
    assert_eq!(p1.resolve(&seen, &resolution).await, ResolveReply::Changed);
    assert_eq!(p1.release(B, Remains::Attempt).await, RELEASED);
    assert_eq!(p1.resolve(&seen, &resolution).await, ResolveReply::Changed);
    let claim = with!(claim, state: undecided());
    assert_eq!(p1.header().await, claim);
    resolved(&p1, &claim, &resolution).await;

    let p2 = p.at(2);
    p2.take(&request_by(A)).await;
    p2.advance(LEASE).await;
    let seen = p2.header().await;
    p2.take(&request_by(B)).await;
    p2.advance(LEASE).await;
    assert_eq!(p2.resolve(&seen, &resolution).await, ResolveReply::Changed);
    assert_eq!(p2.header().await.owner, B);
}

async fn a_resolution_without_a_record_changes_nothing(p: Probe) {
    for (new, body) in ends() {
        let reply = p.resolve(&header(undecided()), &record(&new, body)).await;
        assert_eq!(reply, ResolveReply::Absent);
        assert_eq!(p.read().await, ReadReply::Absent);
    }
}

async fn what_is_held_is_not_resolved_before_its_lease_is_over(p: Probe) {
    for (n, state) in [pending(), reconciling()].into_iter().enumerate() {
        let p = p.at(n);
        let held = header(state);
        let bytes = p.plant(&held, b"", RETAIN).await;
        let resolve = async || p.resolve(&held, &reset()).await;
        let left = expect!(resolve().await, ResolveReply::Running { lease_left } => lease_left);
        p.assert_left(left, LEASE);
        p.advance_just_before(LEASE).await;
        expect!(resolve().await, ResolveReply::Running { .. } => ());
        p.unchanged(&bytes, "a resolution of what is held").await;
        p.advance_the_rest().await;
        assert_eq!(resolve().await, ResolveReply::Resolved);
    }
}

async fn a_resolution_sent_again_changes_nothing(p: Probe) {
    for (state, life) in free() {
        for (new, body) in ends() {
            p.plant(&header(state), b"", life).await;
            let bytes = record(&new, body);
            resolved(&p, &header(state), &bytes).await;
            let stored = p.peek().await.expect("it is there");
            p.advance(LEASE).await;
            resolved(&p, &header(state), &bytes).await;
            p.unchanged(&stored, "a resolution, sent again").await;
            p.assert_left(p.found().await.1, TTL - LEASE);
        }
    }
}

async fn an_answer_by_resolution_keeps_the_attempts(p: Probe) {
    for (state, life) in free() {
        for (n, outcome) in OUTCOMES.into_iter().enumerate() {
            p.plant(&header(state), b"", life).await;
            let told_otherwise = with!(new(done(outcome)), attempts: 9, owner: owner(n));
            let bytes = record(&told_otherwise, b"x");
            resolved(&p, &header(state), &bytes).await;
            assert_eq!(p.header().await.attempts, header(state).attempts);
        }
    }
}

async fn a_resolution_keeps_the_higher_fence(p: Probe) {
    let kept = header(undecided()).fence.get();
    for (given, expected) in [(0, kept), (kept - 1, kept), (kept + 1, kept + 1)] {
        for (end, body) in ends() {
            p.plant(&header(undecided()), b"", RETAIN).await;
            let new = fenced(Fence::new(given), end);
            resolved(&p, &header(undecided()), &record(&new, body)).await;
            assert_eq!(p.header().await.fence.get(), expected);
        }
    }
}

async fn a_resolution_keeps_the_fingerprint(p: Probe) {
    for (kept, given, stays) in [
        (ASKED, NONE, ASKED),
        (ASKED, OTHER, ASKED),
        (NONE, ASKED, ASKED),
        (NONE, NONE, NONE),
    ] {
        for (end, body) in ends() {
            let seen = fingerprinted(kept, header(undecided()));
            p.plant(&seen, b"", RETAIN).await;
            let new = fingerprinted(given, end);
            resolved(&p, &seen, &record(&new, body)).await;
            assert_eq!(p.header().await.fingerprint, stays);
        }
    }
}

async fn a_resolution_is_kept_for_what_its_record_says(p: Probe) {
    for (n, retain) in [TTL, RETAIN * 2, LEASE].into_iter().enumerate() {
        for (m, (end, body)) in ends().enumerate() {
            let p = p.at(n * 10 + m);
            p.plant(&header(undecided()), b"", RETAIN).await;
            let new = with!(end, retain: retain);
            resolved(&p, &header(undecided()), &record(&new, body)).await;
            let (stored, left) = p.found().await;
            assert_eq!(stored.header.retain, retain);
            p.assert_left(left, retain);
        }
    }
}

async fn an_outcome_is_known_after_its_resolution(p: Probe) {
    for outcome in OUTCOMES.into_iter().filter(|o| *o != OutcomeKind::Unknown) {
        p.plant(&header(undecided()), b"", RETAIN).await;
        let bytes = record(&new(done(outcome)), b"resolved");
        resolved(&p, &header(undecided()), &bytes).await;
        for request in [request_by(B), ask_to_find_out(B)] {
            let found = replayed!(p.claim(&request).await).0;
            assert_eq!(
                (found.header.state, found.body()),
                (done(outcome), &b"resolved"[..])
            );
        }
    }
}

async fn an_owner_whose_claim_was_resolved_has_lost_it(p: Probe) {
    for (n, state) in [done(OutcomeKind::Value), State::Released]
        .into_iter()
        .enumerate()
    {
        let p = p.at(n);
        let claim = p.take(&request_by(A)).await;
        p.advance(LEASE).await;
        let bytes = record(&new(state), b"");
        resolved(&p, &claim, &bytes).await;
        let stored = p.peek().await.expect("it is there");
        assert_eq!(p.renew(&claim).await, RenewReply::Lost);
        for remains in REMAINS {
            assert_eq!(p.release(A, remains).await, SUPERSEDED);
        }
        p.unchanged(&stored, "the owner of before").await;
    }
}

async fn a_resolution_that_is_no_record_is_refused(p: Probe) {
    let before = p.plant(&header(undecided()), b"", RETAIN).await;
    for (bytes, error) in NO_RECORDS {
        let bytes = Bytes::from_static(bytes);
        let reply = p.resolve(&header(undecided()), &bytes).await;
        assert_eq!(reply, ResolveReply::Unreadable(error));
    }
    p.unchanged(&before, "what is no record").await;
}

async fn a_large_answer_is_resolved_by_its_header(p: Probe) {
    for bytes in [1, 8_191, 8_192, 100_000] {
        let seen = header(done(OutcomeKind::Value));
        p.plant(&seen, &vec![0x5a; bytes], RETAIN).await;
        let resolution = record(&new(done(OutcomeKind::Error)), &vec![0xa5; bytes]);
        resolved(&p, &seen, &resolution).await;
        assert_eq!(p.found().await.0.body(), &vec![0xa5; bytes]);
        let found = replayed!(p.claim(&request_by(B)).await).0;
        assert_eq!(found.body().len(), bytes);
    }
}
