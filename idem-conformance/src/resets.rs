//! Resolutions that reset a key: it starts anew, and keeps the data that must survive.

use super::probe::{
    A, B, C, LATE, LEASE, Probe, RETAIN, answer, ask_to_find_out, at_most, by, counted, fenced,
    finished, header, record, request_by, undecided,
};
use super::resolving::{free, new, reset, resolved};
use idem_runtime::store::{Fence, ResolveReply, State};

cases! {
    3 a_resolution_sent_again_does_not_end_what_came_after,
    8 a_reset_begins_the_attempts_anew,
    7 a_claim_after_a_reset_has_a_higher_fence,
    13 a_reset_key_is_granted_to_anybody,
    2 an_answer_after_a_reset_is_stored,
}

async fn a_resolution_sent_again_does_not_end_what_came_after(p: Probe) {
    p.plant(&header(undecided()), b"", RETAIN).await;
    let bytes = reset();
    resolved(&p, &header(undecided()), &bytes).await;
    let claim = p.take(&request_by(B)).await;
    assert_eq!(
        p.resolve(&header(undecided()), &bytes).await,
        ResolveReply::Changed
    );
    p.advance(LEASE).await;
    assert_eq!(
        p.resolve(&header(undecided()), &bytes).await,
        ResolveReply::Changed
    );
    assert_eq!(p.header().await, claim);
}

async fn a_reset_begins_the_attempts_anew(p: Probe) {
    for (state, life) in free() {
        p.plant(&header(state), b"", life).await;
        let told_otherwise = counted(9, new(State::Released));
        let reset = record(&told_otherwise, b"");
        resolved(&p, &header(state), &reset).await;
        assert_eq!(p.header().await.attempts, 0);
        let request = at_most(1, B);
        assert_eq!(p.take(&request).await.attempts, 1);
    }
}

async fn a_claim_after_a_reset_has_a_higher_fence(p: Probe) {
    // Ahead of the clock, so that only the record can supply the fence.
    let ahead = fenced(Fence::new(6_789_012_345_678_901), header(undecided()));
    p.plant(&ahead, b"", RETAIN).await;
    let reset = reset();
    resolved(&p, &ahead, &reset).await;
    assert_eq!(
        p.take(&request_by(B)).await.fence.get(),
        ahead.fence.get() + 1
    );
}

async fn a_reset_key_is_granted_to_anybody(p: Probe) {
    for (state, life) in free() {
        for request in [request_by(A), request_by(B), ask_to_find_out(B)] {
            p.plant(&header(state), b"", life).await;
            let reset = reset();
            resolved(&p, &header(state), &reset).await;
            assert_eq!(p.take(&request).await.attempts, 1);
        }
    }
}

async fn an_answer_after_a_reset_is_stored(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let reset = reset();
    resolved(&p, &claim, &reset).await;
    let bytes = answer(&claim, b"it happened after all");
    assert_eq!(p.complete(&bytes).await, LATE);
    assert_eq!(p.found().await.0.body(), b"it happened after all");
    let again = record(&by(C, finished(&claim)), b"");
    adopted!(p.complete(&again).await);
}
