//! Resolutions: an operator replaces the record that was read.

use super::probe::{
    B, LEASE, NO_RECORDS, OTHER, OUTCOMES, Probe, RETAIN, TTL, by, done, header, pending,
    reconciling, record, request_by, undecided,
};
use bytes::Bytes;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{AnswerTypes, Fence, Header, OutcomeKind, Owner, ResolveReply, State};
use std::time::Duration;

cases! {
    4 a_resolution_of_another_record_changes_nothing,
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
            with!(there, fence: Fence::new(there.fence.get() + 1)),
            with!(there, attempts: there.attempts - 1),
            with!(there, retain: RETAIN * 2),
            with!(there, fingerprint: OTHER),
            with!(there, fingerprint: Fingerprint::NONE),
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
