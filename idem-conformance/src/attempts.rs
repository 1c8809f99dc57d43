//! Counting and limits of attempts.

use super::probe::{
    A, B, C, IN_TIME, LEASE, OTHER, Probe, RELEASED, RETAIN, answer, at_most, counted, header,
    owner, pending, request_by, unlimited,
};
use idem_runtime::store::{ClaimReply, ClaimRequest, Remains, RenewReply, State};

cases! {
    8 attempts_count_takeovers,
    8 attempts_count_releases_that_count,
    8 attempts_do_not_count_releases_in_good_order,
    8 a_release_that_does_not_count_takes_back_its_own_attempt_only,
    8 a_key_without_attempts_is_granted_to_nobody,
    8 exhaustion_changes_nothing,
    8 a_live_claim_is_running_even_without_attempts_left,
    8 the_limit_is_that_of_who_asks,
    8 a_single_attempt_is_granted_once,
    8 without_a_limit_attempts_go_on,
    8 attempts_stop_counting_at_the_end_of_their_field,
    8 attempts_are_not_taken_below_zero,
    8 an_exhausted_key_is_free_again_after_its_life,
    8 an_exhausted_owner_still_completes,
    8 a_renewal_is_no_attempt,
    9 another_request_is_told_so_before_it_is_told_of_attempts,
}

/// A record without attempts left under a limit of three: released, and lapsed.
const SPENT: [(State, std::time::Duration); 2] = [
    (State::Released, RETAIN),
    (
        pending(),
        RETAIN.checked_sub(LEASE).expect("a lease is shorter"),
    ),
];

async fn exhausted(p: &Probe, request: &ClaimRequest) -> u16 {
    expect!(p.claim(request).await, ClaimReply::Exhausted { attempts } => attempts)
}

async fn attempts_count_takeovers(p: Probe) {
    for n in 1..=5_u16 {
        assert_eq!(p.take(&request_by(owner(n.into()))).await.attempts, n);
        p.advance(LEASE).await;
    }
    assert_eq!(exhausted(&p, &request_by(A)).await, 5);
}

async fn attempts_count_releases_that_count(p: Probe) {
    for n in 1..=5_u16 {
        let owner = owner(n.into());
        assert_eq!(p.take(&request_by(owner)).await.attempts, n);
        assert_eq!(p.release(owner, Remains::Attempt).await, RELEASED);
    }
    assert_eq!(exhausted(&p, &request_by(A)).await, 5);
}

async fn attempts_do_not_count_releases_in_good_order(p: Probe) {
    for n in 0..20 {
        assert_eq!(p.take(&at_most(1, owner(n))).await.attempts, 1);
        assert_eq!(p.release(owner(n), Remains::Request).await, RELEASED);
        assert_eq!(p.header().await.attempts, 0);
    }
}

async fn a_release_that_does_not_count_takes_back_its_own_attempt_only(p: Probe) {
    p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    assert_eq!(p.take(&request_by(B)).await.attempts, 2);
    assert_eq!(p.release(B, Remains::Request).await, RELEASED);
    assert_eq!(
        p.take(&request_by(C)).await.attempts,
        2,
        "A's attempt counts"
    );
    assert_eq!(p.release(C, Remains::Attempt).await, RELEASED);
    assert_eq!(p.take(&request_by(B)).await.attempts, 3);
}

async fn a_key_without_attempts_is_granted_to_nobody(p: Probe) {
    for (state, life) in SPENT {
        for max in [3, 2, 1] {
            p.plant(&header(state), b"", life).await;
            assert_eq!(exhausted(&p, &at_most(max, B)).await, 3);
        }
        p.plant(&header(state), b"", life).await;
        assert_eq!(p.take(&at_most(4, B)).await.attempts, 4);
    }
}

async fn exhaustion_changes_nothing(p: Probe) {
    for (state, life) in SPENT {
        let bytes = p.plant(&header(state), b"", life).await;
        for owner in [B, C] {
            assert_eq!(exhausted(&p, &at_most(3, owner)).await, 3);
        }
        p.unchanged(&bytes, "a claim without attempts left").await;
        p.assert_left(p.found().await.1, life);
    }
}

async fn a_live_claim_is_running_even_without_attempts_left(p: Probe) {
    p.take(&at_most(1, A)).await;
    expect!(p.claim(&at_most(1, B)).await, ClaimReply::Running { .. } => ());
    p.advance_just_before(LEASE).await;
    expect!(p.claim(&at_most(1, B)).await, ClaimReply::Running { .. } => ());
    p.advance_the_rest().await;
    assert_eq!(exhausted(&p, &at_most(1, B)).await, 1);
}

async fn the_limit_is_that_of_who_asks(p: Probe) {
    p.plant(&header(State::Released), b"", RETAIN).await;
    exhausted(&p, &at_most(2, B)).await;
    exhausted(&p, &at_most(3, B)).await;
    let claim = p.take(&at_most(u16::MAX, B)).await;
    assert_eq!(claim.attempts, 4);
}

async fn a_single_attempt_is_granted_once(p: Probe) {
    let claim = p.take(&at_most(1, A)).await;
    assert_eq!(claim.attempts, 1);
    p.advance(LEASE).await;
    assert_eq!(exhausted(&p, &at_most(1, B)).await, 1);
    assert_eq!(p.complete(&answer(&claim, b"slow")).await, IN_TIME);
    expect!(p.claim(&at_most(1, B)).await, ClaimReply::Done { .. } => ());
}

async fn without_a_limit_attempts_go_on(p: Probe) {
    for n in 1..=50_u16 {
        let request = unlimited(owner(n.into()));
        assert_eq!(p.take(&request).await.attempts, n);
        assert_eq!(p.release(owner(n.into()), Remains::Attempt).await, RELEASED);
    }
}

async fn attempts_stop_counting_at_the_end_of_their_field(p: Probe) {
    for (before, after) in [
        (254, 255),
        (255, 256),
        (0x0d09, 0x0d0a),
        (u16::MAX - 1, u16::MAX),
        (u16::MAX, u16::MAX),
    ] {
        let many = counted(before, header(State::Released));
        p.plant(&many, b"", RETAIN).await;
        let request = unlimited(B);
        assert_eq!(p.take(&request).await.attempts, after);
        assert_eq!(p.header().await.attempts, after);
    }
    let full = counted(u16::MAX, header(State::Released));
    p.plant(&full, b"", RETAIN).await;
    assert_eq!(exhausted(&p, &at_most(u16::MAX, B)).await, u16::MAX);
}

async fn attempts_are_not_taken_below_zero(p: Probe) {
    for (before, after) in [(0, 0), (1, 0), (256, 255), (u16::MAX, u16::MAX - 1)] {
        let claim = counted(before, header(pending()));
        p.plant(&claim, b"", RETAIN).await;
        assert_eq!(p.release(A, Remains::Request).await, RELEASED);
        assert_eq!(p.header().await.attempts, after);
    }
}

async fn an_exhausted_key_is_free_again_after_its_life(p: Probe) {
    p.take(&at_most(1, A)).await;
    p.advance_just_before(RETAIN).await;
    assert_eq!(exhausted(&p, &at_most(1, B)).await, 1);
    p.advance_the_rest().await;
    assert_eq!(p.take(&at_most(1, B)).await.attempts, 1);
}

async fn an_exhausted_owner_still_completes(p: Probe) {
    let claim = p.take(&at_most(1, A)).await;
    p.advance(LEASE * 2).await;
    exhausted(&p, &at_most(1, B)).await;
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    expect!(p.claim(&at_most(1, B)).await, ClaimReply::Running { .. } => ());
    let bytes = answer(&claim, b"healed");
    assert_eq!(p.complete(&bytes).await, IN_TIME);
    let found = replayed!(p.claim(&at_most(1, B)).await).0;
    assert_eq!(found.as_bytes(), &bytes[..]);
}

async fn a_renewal_is_no_attempt(p: Probe) {
    let claim = p.take(&at_most(1, A)).await;
    for _ in 0..10 {
        p.advance(LEASE / 2).await;
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    }
    assert_eq!(p.header().await.attempts, 1);
}

async fn another_request_is_told_so_before_it_is_told_of_attempts(p: Probe) {
    for (state, life) in SPENT {
        p.plant(&header(state), b"", life).await;
        let other = with!(at_most(1, B), fingerprint: OTHER);
        assert_eq!(p.claim(&other).await, ClaimReply::Mismatch);
    }
}
