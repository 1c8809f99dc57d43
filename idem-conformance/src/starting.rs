//! An owner whose hook found no effect claims the body: in time, too late, and again.

use std::time::Duration;

use super::probe::{
    A, B, C, IN_TIME, LEASE, MS, OTHER, OUTCOMES, Probe, RETAIN, answer, ask_to_find_out, dated,
    done, header, pending, reconciling, record, request_by, unknown_outcome, unknowns,
};
use idem_runtime::store::{ClaimReply, ClaimRequest, Needs, Owner, RenewReply, State};

cases! {
    8 who_found_out_starts_and_is_counted,
    3 a_start_sent_again_is_the_same,
    13 a_verdict_that_comes_too_late_starts_nothing,
    13 a_verdict_about_a_record_that_is_gone_starts_nothing,
    4 a_verdict_that_comes_after_the_answer_gets_it,
    17 a_claim_that_needs_a_record_begins_none: transport,
    17 a_claim_that_needs_a_record_goes_on_with_one,
    17 a_claim_that_needs_a_record_is_refused_as_any_other,
}

/// Claims the body after the hook found no effect.
fn start(owner: Owner) -> ClaimRequest {
    with!(request_by(owner), needs: Needs::Verdict, dated: true)
}

async fn who_found_out_starts_and_is_counted(p: Probe) {
    for (n, age) in [Duration::ZERO, LEASE - MS, LEASE * 2]
        .into_iter()
        .enumerate()
    {
        let p = p.at(n);
        p.plant(&header(pending()), b"", RETAIN - LEASE).await;
        let found = p.look_into(&ask_to_find_out(B)).await;
        // Also when its lease has lapsed, because no other owner has claimed.
        p.advance(age).await;
        let started = p.take(&start(B)).await;
        assert_eq!(started.attempts, found.attempts + 1);
        assert!(started.fence > found.fence);
        assert!(matches!(started.state, State::Pending { .. }));
    }
}

async fn a_start_sent_again_is_the_same(p: Probe) {
    p.plant(&header(pending()), b"", RETAIN - LEASE).await;
    p.look_into(&ask_to_find_out(B)).await;
    let started = p.take(&start(B)).await;
    assert_eq!(p.take(&start(B)).await, started);
}

async fn a_verdict_that_comes_too_late_starts_nothing(p: Probe) {
    let lapsed = RETAIN - LEASE;
    let stored = [
        (State::Released, RETAIN),
        (pending(), RETAIN),
        (pending(), lapsed),
        (reconciling(), RETAIN),
        (reconciling(), lapsed),
    ];
    for (n, (state, life)) in stored.into_iter().enumerate() {
        let p = p.at(n);
        let bytes = p.plant(&header(state), b"", life).await;
        let reply = p.claim(&start(C)).await;
        expect!(reply, ClaimReply::Running { .. } => (), "over {state:?}");
        p.unchanged(&bytes, "a verdict that came too late").await;
    }
    let p = p.at(stored.len());
    let unknown = record(&header(unknown_outcome()), b"");
    p.plant(&header(unknown_outcome()), b"", RETAIN).await;
    expect!(p.claim(&start(C)).await, ClaimReply::Done { .. } => ());
    p.unchanged(&unknown, "a verdict that came too late").await;
}

async fn a_verdict_about_a_record_that_is_gone_starts_nothing(p: Probe) {
    expect!(p.claim(&start(B)).await, ClaimReply::Absent => ());
    assert_eq!(p.peek().await, None);
}

async fn a_verdict_that_comes_after_the_answer_gets_it(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        let bytes = record(&header(done(outcome)), b"");
        p.plant(&header(done(outcome)), b"", RETAIN).await;
        expect!(p.claim(&start(B)).await, ClaimReply::Done { .. } => ());
        p.unchanged(&bytes, "a verdict").await;
    }
}

/// Claims the body, or the reconciling, only if there is a record.
fn go_on(request: &ClaimRequest) -> ClaimRequest {
    with!(request.clone(), needs: Needs::Record)
}

async fn a_claim_that_needs_a_record_begins_none(p: Probe) {
    for (n, request) in [request_by(A), ask_to_find_out(A), dated(&request_by(A))]
        .into_iter()
        .enumerate()
    {
        let p = p.at(n);
        let expects_nothing = async || {
            expect!(p.claim(&go_on(&request)).await, ClaimReply::Absent => ());
            assert_eq!(p.peek().await, None);
        };
        expects_nothing().await;
        // Its own claim was granted, the reply was lost, and its record has expired since.
        p.plant(&header(pending()), b"", RETAIN).await;
        p.advance(RETAIN).await;
        expects_nothing().await;
        // It has left nothing behind that refuses a claim without a required record.
        p.take(&request_by(B)).await;
    }
}

async fn a_claim_that_needs_a_record_goes_on_with_one(p: Probe) {
    let lapsed = RETAIN - LEASE;
    for (n, (state, life)) in [(State::Released, RETAIN), (pending(), lapsed)]
        .into_iter()
        .enumerate()
    {
        let p = p.at(n);
        p.plant(&header(state), b"", life).await;
        let before = p.header().await;
        let request = go_on(&request_by(B));
        let claim = p.take(&request).await;
        assert_eq!(claim.attempts, before.attempts + 1, "{state:?}");
        assert!(claim.fence > before.fence, "{state:?}");
        assert_eq!(p.take(&request).await, claim, "sent again");
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
        let stored = p.complete(&answer(&claim, b"done")).await;
        assert_eq!(stored, IN_TIME);
        expect!(p.claim(&go_on(&request_by(C))).await, ClaimReply::Done { .. } => ());
    }
    for (n, (state, life)) in unknowns().into_iter().enumerate() {
        let p = p.at(2 + n);
        p.plant(&header(state), b"", life).await;
        p.look_into(&go_on(&ask_to_find_out(B))).await;
    }
}

async fn a_claim_that_needs_a_record_is_refused_as_any_other(p: Probe) {
    p.plant(&header(pending()), b"", RETAIN).await;
    let bytes = record(&header(pending()), b"");
    let reply = p.claim(&go_on(&request_by(B))).await;
    expect!(reply, ClaimReply::Running { lease_left } => assert!(!lease_left.is_zero()));
    let other = with!(go_on(&request_by(B)), fingerprint: OTHER);
    expect!(p.claim(&other).await, ClaimReply::Mismatch => ());
    p.unchanged(&bytes, "a claim that needs a record").await;
}
