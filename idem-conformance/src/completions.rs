//! Completions, and reconciliations of what was not completed.

use super::probe::{
    A, B, C, IN_TIME, LEASE, NO_RECORDS, Probe, RETAIN, TTL, answer, ask_to_find_out, header,
    pending, request_by, unknown_outcome,
};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{ClaimReply, CompleteReply, Fence, State};

cases! {
    2 the_owner_of_a_live_claim_completes: transport,
    10 a_completion_that_is_no_record_is_refused: transport,
    2 a_completion_whose_claim_is_not_as_it_says_is_stored,
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

async fn a_completion_whose_claim_is_not_as_it_says_is_stored(p: Probe) {
    let granted = header(pending());
    let said = [
        with!(granted, state: State::Pending { lease: LEASE / 2 }),
        with!(granted, state: State::Reconciling { lease: LEASE }),
        with!(granted, retain: RETAIN / 2),
        with!(granted, fence: Fence::new(granted.fence.get() + 1)),
        with!(granted, attempts: granted.attempts + 1),
        with!(granted, fingerprint: Fingerprint::NONE),
    ];
    for (n, said) in said.iter().enumerate() {
        let p = p.at(n);
        p.plant(&granted, b"", RETAIN).await;
        let bytes = answer(&granted, b"paid");
        assert_eq!(p.complete_claim(said, &bytes).await, IN_TIME, "{said:?}");
        p.unchanged(&bytes, "storing it").await;
    }
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
