//! Answers at hand equal the reply that a claim would receive.

use super::probe::{
    A, ASKED, B, LEASE, NONE, OTHER, OUTCOMES, Probe, RELEASED, RETAIN, TTL, dated, done, header,
    pending, reconciling, record, request_by, request_with, undecided,
};
use super::resolving::{new, reset, resolved};
use idem_runtime::store::{ClaimReply, OutcomeKind, Remains, State};

cases! {
    4 what_is_at_hand_is_what_a_claim_is_given,
    6 nothing_is_at_hand_when_its_life_is_over,
    9 nothing_is_at_hand_for_another_request,
    10 nothing_is_at_hand_of_what_cannot_be_read,
    11 nothing_is_at_hand_of_another_key,
    4 what_was_taken_back_is_not_at_hand,
    13 only_what_is_final_is_at_hand,
}

async fn what_is_at_hand_is_what_a_claim_is_given(p: Probe) {
    p.finish(b"paid").await;
    for age in [0, 1, 60] {
        p.advance(TTL / 240 * age).await;
        for fingerprint in [ASKED, NONE] {
            let Some((known, left)) = p.at_hand(fingerprint) else {
                return;
            };
            let request = with!(dated(&request_by(B)), fingerprint: fingerprint);
            let (record, claimed) = replayed!(p.claim(&request).await);
            assert_eq!(known, record);
            p.assert_left(claimed, left);
        }
    }
}

async fn nothing_is_at_hand_when_its_life_is_over(p: Probe) {
    p.finish(b"paid").await;
    p.advance_just_before(TTL).await;
    if let Some((_, left)) = p.at_hand(ASKED) {
        assert!(left <= TTL, "it will be kept for {left:?}, in all {TTL:?}");
    }
    p.advance_the_rest().await;
    assert_eq!(p.at_hand(ASKED), None);
}

async fn nothing_is_at_hand_for_another_request(p: Probe) {
    p.finish(b"paid").await;
    assert_eq!(p.at_hand(OTHER), None);
    expect!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Mismatch => ());
}

async fn nothing_is_at_hand_of_what_cannot_be_read(p: Probe) {
    p.plant_bytes(b"another program's", RETAIN).await;
    assert_eq!(p.at_hand(NONE), None);
    p.plant_bytes(&header(done(OutcomeKind::Value)).encode()[..55], RETAIN)
        .await;
    assert_eq!(p.at_hand(NONE), None);
}

async fn nothing_is_at_hand_of_another_key(p: Probe) {
    p.finish(b"paid").await;
    let there = p.at_hand(ASKED);
    for n in 0..5 {
        assert_eq!(p.at(n).at_hand(NONE), None);
    }
    let known = p.client().at_hand(ASKED);
    assert!(known.is_none() || there.is_none() || known.map(|it| it.0) == there.map(|it| it.0));
}

async fn what_was_taken_back_is_not_at_hand(p: Probe) {
    let seen = header(done(OutcomeKind::Value));
    p.plant(&seen, b"paid", RETAIN).await;
    // In the local copy, if the store keeps one.
    expect!(p.claim(&request_by(B)).await, ClaimReply::Done { .. } => ());
    resolved(&p, &seen, &reset()).await;
    assert_eq!(p.at_hand(ASKED), None, "it was reset");
    p.take(&request_by(B)).await;
    assert_eq!(p.at_hand(ASKED), None, "another attempt runs");

    let p = p.at(1);
    p.plant(&seen, b"paid", RETAIN).await;
    expect!(p.claim(&request_by(B)).await, ClaimReply::Done { .. } => ());
    let better = new(done(OutcomeKind::Value));
    resolved(&p, &seen, &record(&better, b"paid twice")).await;
    if let Some((known, _)) = p.at_hand(ASKED) {
        assert_eq!(known.body(), b"paid twice");
    }
}

async fn only_what_is_final_is_at_hand(p: Probe) {
    assert_eq!(p.at_hand(NONE), None, "there is nothing");
    let not_final = [
        (pending(), RETAIN),
        (pending(), RETAIN - LEASE),
        (reconciling(), RETAIN),
        (reconciling(), RETAIN - LEASE),
        (State::Released, RETAIN),
        (undecided(), RETAIN),
        (done(OutcomeKind::Unknown), RETAIN),
    ];
    for (state, life) in not_final {
        p.plant(&header(state), b"", life).await;
        assert_eq!(p.at_hand(ASKED), None, "{state:?} with {life:?} left");
    }
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        p.plant(&header(done(outcome)), b"", RETAIN).await;
        if let Some((known, _)) = p.at_hand(ASKED) {
            assert_eq!(known.header.state, done(outcome));
            assert_ne!(outcome, OutcomeKind::Unknown);
        }
    }
    let p = p.at(9);
    p.take(&request_by(A)).await;
    assert_eq!(p.at_hand(ASKED), None, "it runs");
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    assert_eq!(p.at_hand(ASKED), None, "it was given back");
}
