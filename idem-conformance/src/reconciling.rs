//! Claims of owners with a reconcile hook.

use std::time::Duration;

use super::probe::{
    A, ASKED, B, C, LEASE, MS, NONE, OTHER, OUTCOMES, Probe, RELEASED, RETAIN, ask_to_find_out,
    at_most, by, counted, done, fingerprinted, header, limit, owner, pending, reconciling,
    request_by, unknown_outcome, unknowns,
};
use idem_runtime::store::{ClaimReply, ClaimRequest, Header, OutcomeKind, Owner, Remains, State};

cases! {
    13 an_unknown_outcome_is_told_to_who_cannot_find_out,
    13 who_can_find_out_is_asked_to_where_the_outcome_is_unknown,
    13 who_can_find_out_is_asked_to_where_a_body_may_have_run,
    13 a_lapsed_reconciliation_is_unknown,
    1 who_can_find_out_is_granted_the_body_where_none_ran,
    4 an_answer_is_given_also_to_who_can_find_out,
    5 a_live_claim_is_not_looked_into,
    5 a_live_reconciliation_is_waited_for,
    5 the_lease_of_a_reconciliation_ends_to_the_millisecond,
    6 a_reconciliation_is_kept_for_what_its_claim_says,
    7 fences_grow_with_reconciliations,
    8 finding_out_is_no_attempt,
    8 finding_out_needs_no_attempts_left,
    8 a_body_that_starts_after_finding_out_is_an_attempt: transport,
    8 a_body_does_not_start_after_finding_out_without_attempts_left,
    9 a_reconciliation_keeps_the_fingerprint,
    13 a_body_starts_after_finding_out_for_nobody_else,
    5 who_found_out_slowly_starts_the_body_if_nobody_took_over,
    3 a_reconciling_claim_sent_again_is_the_same,
    3 a_start_after_finding_out_sent_again_is_the_same_attempt,
    3 a_reconciling_claim_sent_again_after_the_start_is_the_same_attempt,
    3 a_claim_after_its_own_unknown_outcome_is_granted_nothing,
}

/// Records of a started attempt without an outcome.
const UNCERTAIN: [(State, Duration); 2] = [
    (State::Released, RETAIN),
    (
        pending(),
        RETAIN.checked_sub(LEASE).expect("a lease is shorter"),
    ),
];

fn uncertain() -> impl Iterator<Item = (State, Duration)> {
    unknowns().into_iter().chain(UNCERTAIN)
}

async fn an_unknown_outcome_is_told_to_who_cannot_find_out(p: Probe) {
    for (state, life) in unknowns() {
        let bytes = p.plant(&header(state), b"", life).await;
        for max_attempts in [limit(1), limit(9), None] {
            let request = with!(request_by(B), max_attempts: max_attempts);
            let (record, left) = expect!(
                p.claim(&request).await,
                ClaimReply::Done { record, left } => (record, left),
                "{state:?} is unknown"
            );
            assert_eq!(record.as_bytes(), &bytes[..]);
            p.assert_left(left, life);
        }
        p.unchanged(&bytes, "who cannot find out").await;
    }
}

async fn looked_into(p: &Probe, state: State, life: Duration) {
    let before = header(state);
    p.plant(&before, b"", life).await;
    let request = with!(ask_to_find_out(B), lease: LEASE * 2, retain: RETAIN * 2);
    let claim = p.look_into(&request).await;
    assert_eq!(claim.attempts, before.attempts, "of {state:?}");
    assert!(claim.fence > before.fence, "a claim has a fence of its own");
    let (record, left) = p.found().await;
    assert_eq!(record.header, claim);
    assert!(record.body().is_empty());
    p.assert_left(left, RETAIN * 2);
}

async fn who_can_find_out_is_asked_to_where_the_outcome_is_unknown(p: Probe) {
    for (state, life) in unknowns() {
        looked_into(&p, state, life).await;
    }
    let unknown = header(unknown_outcome());
    p.plant(&counted(0, unknown), b"", RETAIN).await;
    assert_eq!(p.look_into(&ask_to_find_out(B)).await.attempts, 0);
}

async fn who_can_find_out_is_asked_to_where_a_body_may_have_run(p: Probe) {
    for (state, life) in UNCERTAIN {
        looked_into(&p, state, life).await;
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

async fn who_can_find_out_is_granted_the_body_where_none_ran(p: Probe) {
    assert_eq!(p.take(&ask_to_find_out(A)).await.attempts, 1);
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    let claim = p.take(&ask_to_find_out(B)).await;
    assert_eq!(claim.attempts, 1, "the first attempt ended in good order");
    assert_eq!(p.header().await, claim);
}

async fn an_answer_is_given_also_to_who_can_find_out(p: Probe) {
    for outcome in OUTCOMES.into_iter().filter(|o| *o != OutcomeKind::Unknown) {
        let bytes = p.plant(&header(done(outcome)), b"the answer", RETAIN).await;
        for owner in [A, B] {
            let record = replayed!(p.claim(&ask_to_find_out(owner)).await).0;
            assert_eq!(record.as_bytes(), &bytes[..]);
        }
        p.unchanged(&bytes, "who can find out").await;
    }
}

async fn not_granted(p: &Probe, state: State) {
    for age in [MS, LEASE / 2] {
        let bytes = p.plant(&header(state), b"", RETAIN - age).await;
        for request in [request_by(B), ask_to_find_out(B), ask_to_find_out(C)] {
            let left = running!(p.claim(&request).await);
            p.assert_left(left, LEASE - age);
        }
        p.unchanged(&bytes, "another's claim").await;
    }
}

async fn a_live_claim_is_not_looked_into(p: Probe) {
    not_granted(&p, pending()).await;
}

async fn a_live_reconciliation_is_waited_for(p: Probe) {
    not_granted(&p, reconciling()).await;
}

async fn the_lease_of_a_reconciliation_ends_to_the_millisecond(p: Probe) {
    p.plant(&header(State::Released), b"", RETAIN).await;
    p.look_into(&ask_to_find_out(B)).await;
    p.advance_just_before(LEASE).await;
    for request in [request_by(C), ask_to_find_out(C)] {
        expect!(p.claim(&request).await, ClaimReply::Running { .. } => ());
    }
    p.advance_the_rest().await;
    expect!(p.claim(&request_by(C)).await, ClaimReply::Done { .. } => ());
    p.look_into(&ask_to_find_out(C)).await;
}

async fn a_reconciliation_is_kept_for_what_its_claim_says(p: Probe) {
    p.plant(&header(unknown_outcome()), b"", LEASE).await;
    p.look_into(&ask_to_find_out(B)).await;
    p.advance_just_before(RETAIN).await;
    p.found().await;
    p.advance_the_rest().await;
    assert_eq!(p.take(&request_by(C)).await.attempts, 1, "and is over then");
}

async fn fences_grow_with_reconciliations(p: Probe) {
    let mut last = p.take(&request_by(owner(0))).await.fence;
    for n in 1..20 {
        p.advance(LEASE).await;
        let fence = p.look_into(&ask_to_find_out(owner(n))).await.fence;
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
    }
    let started = p.take(&request_by(owner(19))).await;
    assert!(started.fence > last, "the body has a fence of its own");
}

async fn finding_out_is_no_attempt(p: Probe) {
    assert_eq!(p.take(&request_by(A)).await.attempts, 1);
    for n in 0..20 {
        p.advance(LEASE).await;
        assert_eq!(p.look_into(&ask_to_find_out(owner(n))).await.attempts, 1);
        if n % 2 == 0 {
            assert_eq!(p.release(owner(n), Remains::Attempt).await, RELEASED);
        }
    }
    assert_eq!(p.header().await.attempts, 1);
}

async fn finding_out_needs_no_attempts_left(p: Probe) {
    for (state, life) in uncertain() {
        for max in [1, 3] {
            p.plant(&header(state), b"", life).await;
            let request = with!(ask_to_find_out(B), max_attempts: limit(max));
            assert_eq!(p.look_into(&request).await.attempts, 3);
        }
    }
}

async fn a_body_that_starts_after_finding_out_is_an_attempt(p: Probe) {
    for (state, life) in uncertain() {
        p.plant(&header(state), b"", life).await;
        let found_out = p.look_into(&ask_to_find_out(B)).await;
        let request = at_most(4, B);
        let claim = p.take(&request).await;
        assert_eq!(claim.attempts, 4);
        assert!(claim.fence > found_out.fence);
        let (record, left) = p.found().await;
        assert_eq!(record.header, claim);
        p.assert_left(left, RETAIN);
    }
}

async fn a_body_does_not_start_after_finding_out_without_attempts_left(p: Probe) {
    for (state, life) in uncertain() {
        p.plant(&header(state), b"", life).await;
        let found_out = p.look_into(&ask_to_find_out(B)).await;
        for max in [1, 2, 3] {
            let request = at_most(max, B);
            expect!(p.claim(&request).await, ClaimReply::Exhausted { attempts: 3 } => ());
        }
        assert_eq!(p.header().await, found_out, "it is still held");
        assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
        expect!(p.claim(&request_by(C)).await, ClaimReply::Done { .. } => ());
    }
}

async fn a_reconciliation_keeps_the_fingerprint(p: Probe) {
    for (state, life) in uncertain() {
        for (kept, asked, stays) in [(ASKED, NONE, ASKED), (NONE, ASKED, ASKED)] {
            let before = fingerprinted(kept, header(state));
            p.plant(&before, b"", life).await;
            let request = with!(ask_to_find_out(B), fingerprint: asked);
            p.look_into(&request).await;
            assert_eq!(p.header().await.fingerprint, stays);
            let other = |owner| with!(ask_to_find_out(owner), fingerprint: OTHER);
            for owner in [B, C] {
                assert_eq!(p.claim(&other(owner)).await, ClaimReply::Mismatch);
            }
        }
    }
}

async fn a_body_starts_after_finding_out_for_nobody_else(p: Probe) {
    for (state, life) in uncertain() {
        p.plant(&header(state), b"", life).await;
        let claim = p.look_into(&ask_to_find_out(B)).await;
        expect!(p.claim(&request_by(C)).await, ClaimReply::Running { .. } => ());
        p.advance(LEASE).await;
        expect!(p.claim(&request_by(C)).await, ClaimReply::Done { .. } => ());
        assert_eq!(p.header().await, claim);
    }
}

async fn who_found_out_slowly_starts_the_body_if_nobody_took_over(p: Probe) {
    for (n, taken_over) in [false, true].into_iter().enumerate() {
        let p = p.at(n);
        p.plant(&header(unknown_outcome()), b"", RETAIN).await;
        p.look_into(&ask_to_find_out(B)).await;
        p.advance(LEASE * 2).await;
        if taken_over {
            p.look_into(&ask_to_find_out(C)).await;
            expect!(p.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
        } else {
            assert_eq!(p.take(&request_by(B)).await.attempts, 4);
        }
    }
}

/// Sends the same claim again: same reply, same bytes, and the lease starts again.
async fn same_again(p: &Probe, claim: &Header, request: &ClaimRequest) {
    let bytes = p.peek().await.expect("the claim is there");
    for age in [Duration::ZERO, LEASE / 2, LEASE * 2] {
        p.advance(age).await;
        let again = match claim.state {
            State::Reconciling { .. } => p.look_into(request).await,
            _ => p.take(request).await,
        };
        assert_eq!(again, *claim, "same fence, same attempts");
        p.unchanged(&bytes, "its claim, sent again").await;
        p.assert_left(p.found().await.1, RETAIN);
    }
}

async fn a_reconciling_claim_sent_again_is_the_same(p: Probe) {
    for (state, life) in uncertain() {
        p.plant(&header(state), b"", life).await;
        let claim = p.look_into(&ask_to_find_out(B)).await;
        same_again(&p, &claim, &ask_to_find_out(B)).await;
    }
}

async fn a_start_after_finding_out_sent_again_is_the_same_attempt(p: Probe) {
    for (state, life) in uncertain() {
        p.plant(&header(state), b"", life).await;
        p.look_into(&ask_to_find_out(B)).await;
        let last = at_most(4, B);
        let claim = p.take(&last).await;
        same_again(&p, &claim, &last).await;
    }
}

async fn a_reconciling_claim_sent_again_after_the_start_is_the_same_attempt(p: Probe) {
    for (state, life) in uncertain() {
        p.plant(&header(state), b"", life).await;
        p.look_into(&ask_to_find_out(B)).await;
        let claim = p.take(&request_by(B)).await;
        same_again(&p, &claim, &ask_to_find_out(B)).await;
    }
}

async fn a_claim_after_its_own_unknown_outcome_is_granted_nothing(p: Probe) {
    let unknown: fn(Owner) -> Header = |owner| by(owner, header(unknown_outcome()));
    p.plant(&unknown(B), b"", RETAIN).await;
    let left_unknown = p.peek().await.expect("it was planted");
    let p2 = p.at(1);
    p2.plant(&header(State::Released), b"", RETAIN).await;
    p2.look_into(&ask_to_find_out(B)).await;
    assert_eq!(p2.release(B, Remains::Attempt).await, RELEASED);
    let given_back = p2.peek().await.expect("it is unknown now");
    for (p, bytes) in [(p, left_unknown), (p2, given_back)] {
        for request in [request_by(B), ask_to_find_out(B)] {
            let record = expect!(
                p.claim(&request).await,
                ClaimReply::Done { record, .. } => record,
                "its sender is gone"
            );
            assert_eq!(record.as_bytes(), &bytes[..]);
        }
        p.unchanged(&bytes, "a claim of who left it unknown").await;
        p.look_into(&ask_to_find_out(C)).await;
    }
}
