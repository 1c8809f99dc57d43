//! Resolutions: an operator replaces the record that was read.

use super::probe::{
    B, NO_RECORDS, Probe, RETAIN, TTL, done, header, record, request_by, undecided,
};
use bytes::Bytes;
use idem_runtime::store::author::{Header, Owner, ResolveReply, State};
use idem_runtime::store::{Fence, OutcomeKind};

cases! {
    10 a_resolution_that_is_no_record_is_refused,
    4 a_large_answer_is_resolved_by_its_header: transport,
}

/// The owner of a resolution.
const R: Owner = Owner::from_bytes(*b"who knows better");

/// The header of an answer by resolution, or of a reset.
fn new(state: State) -> Header {
    with!(Header::new(state, R, Fence::default(), TTL), attempts: 0)
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
