//! Who found out that nothing landed asks for the body: in time, too late, and again.

use std::time::Duration;

use super::probe::{
    B, C, LEASE, MS, OUTCOMES, Probe, RETAIN, ask, ask_to_find_out, done, header, pending,
    reconciling, record,
};
use crate::store::{ClaimReply, ClaimRequest, OutcomeKind, Owner, State};

cases! {
    8 who_found_out_starts_and_is_counted,
    3 a_start_sent_again_is_the_same,
    13 a_verdict_that_comes_too_late_starts_nothing,
    13 a_verdict_about_a_record_that_is_gone_starts_nothing,
    4 a_verdict_that_comes_after_the_answer_gets_it,
}

/// Asks for the body, since nothing landed.
fn start(owner: Owner) -> ClaimRequest {
    ClaimRequest {
        starts: true,
        dated: true,
        ..ask(owner)
    }
}

async fn who_found_out_starts_and_is_counted(p: Probe) {
    for (n, age) in [Duration::ZERO, LEASE - MS, LEASE * 2]
        .into_iter()
        .enumerate()
    {
        let p = p.at(n);
        p.plant(&header(pending()), b"", RETAIN - LEASE).await;
        let found = p.look_into(&ask_to_find_out(B)).await;
        // Also when its lease has lapsed: nobody else has been here.
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
    let stands = [
        (State::Released, RETAIN),
        (pending(), RETAIN),
        (pending(), lapsed),
        (reconciling(), RETAIN),
        (reconciling(), lapsed),
    ];
    for (n, (state, life)) in stands.into_iter().enumerate() {
        let p = p.at(n);
        let bytes = p.plant(&header(state), b"", life).await;
        let reply = p.claim(&start(C)).await;
        expect!(reply, ClaimReply::Running { .. } => (), "over {state:?}");
        p.assert_untouched(&bytes, "a verdict that came too late")
            .await;
    }
    let p = p.at(stands.len());
    let unknown = record(&header(done(OutcomeKind::Unknown)), b"");
    p.plant(&header(done(OutcomeKind::Unknown)), b"", RETAIN)
        .await;
    expect!(p.claim(&start(C)).await, ClaimReply::Done { .. } => ());
    p.assert_untouched(&unknown, "a verdict that came too late")
        .await;
}

async fn a_verdict_about_a_record_that_is_gone_starts_nothing(p: Probe) {
    expect!(p.claim(&start(B)).await, ClaimReply::Running { lease_left } => {
        assert_eq!(lease_left, Duration::ZERO);
    });
    assert_eq!(p.peek().await, None);
}

async fn a_verdict_that_comes_after_the_answer_gets_it(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        let bytes = record(&header(done(outcome)), b"");
        p.plant(&header(done(outcome)), b"", RETAIN).await;
        expect!(p.claim(&start(B)).await, ClaimReply::Done { .. } => ());
        p.assert_untouched(&bytes, "a verdict").await;
    }
}
