//! Completions, and reconciliations in their absence.

use super::probe::{
    A, B, C, IN_TIME, LEASE, NO_RECORDS, Probe, RETAIN, TTL, answer, ask_to_find_out, header,
    request_by, unknown_outcome,
};
use idem_runtime::store::author::{ClaimReply, CompleteReply};

cases! {
    2 the_owner_of_a_live_claim_completes: transport,
    10 a_completion_that_is_no_record_is_refused: transport,
    13 a_lapsed_reconciliation_is_unknown,
}

async fn the_owner_of_a_live_claim_completes(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    let bytes = answer(&claim, b"paid");
    assert_eq!(p.complete(&bytes).await, IN_TIME);
    let (record, left) = p.found().await;
    assert_eq!(record.as_bytes(), &bytes[..]);
    p.assert_left(left, TTL);
    let replayed = replayed!(p.claim(&request_by(B)).await).0;
    assert_eq!(replayed, record, "the next caller is given the answer");
}

async fn a_completion_that_is_no_record_is_refused(p: Probe) {
    p.take(&request_by(A)).await;
    let before = p.peek().await.expect("the claim is there");
    for (bytes, error) in NO_RECORDS {
        let bytes = bytes::Bytes::from_static(bytes);
        assert_eq!(p.complete(&bytes).await, CompleteReply::Unreadable(error));
    }
    p.unchanged(&before, "what is no record").await;
}

async fn a_lapsed_reconciliation_is_unknown(p: Probe) {
    p.plant(&header(unknown_outcome()), b"", RETAIN).await;
    let vanished = p.look_into(&ask_to_find_out(C)).await;
    p.advance(LEASE).await;
    let record = replayed!(p.claim(&request_by(A)).await).0;
    assert_eq!(record.header, vanished);
    let next = p.look_into(&ask_to_find_out(B)).await;
    assert!(next.fence > vanished.fence);
    expect!(p.claim(&request_by(C)).await, ClaimReply::Running { .. } => ());
    p.advance(LEASE).await;
    let record = replayed!(p.claim(&request_by(A)).await).0;
    assert_eq!(record.header, next);
}
