//! Renewals in every state, for either owner.

use std::time::Duration;

use super::probe::{
    A, B, C, IN_TIME, LEASE, MS, OUTCOMES, Probe, RELEASED, RETAIN, TTL, answer, by, done, header,
    pending, request_by, unlimited,
};
use idem_runtime::store::{ClaimReply, Remains, RenewReply, State};

cases! {
    5 a_renewal_starts_the_lease_again: transport,
    5 a_claim_that_is_renewed_in_time_is_never_granted_to_another,
    5 a_lapsed_claim_is_renewed_if_nobody_took_it,
    6 a_renewal_starts_the_life_again,
    2 a_renewal_by_another_owner_changes_nothing,
    2 a_superseded_owner_does_not_renew,
    3 a_renewal_changes_nothing_but_the_time,
    2 a_claim_that_was_lost_is_written_again: transport,
    2 a_claim_that_was_written_again_is_held,
    4 a_renewal_does_not_undo_what_is_done,
    2 a_renewal_does_not_take_a_released_key,
}

async fn a_renewal_starts_the_lease_again(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(LEASE / 2).await;
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    let left = running!(p.claim(&request_by(B)).await);
    p.assert_left(left, LEASE);
    p.advance_just_before(LEASE).await;
    expect!(p.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
    p.advance_the_rest().await;
    expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ());
}

async fn a_claim_that_is_renewed_in_time_is_never_granted_to_another(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    for _ in 0..20 {
        p.advance(LEASE / 2).await;
        expect!(p.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    }
    assert_eq!(p.complete(&answer(&claim, b"long")).await, IN_TIME);
}

async fn a_lapsed_claim_is_renewed_if_nobody_took_it(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(LEASE * 3).await;
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    expect!(p.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
    assert_eq!(p.header().await, claim);
}

async fn a_renewal_starts_the_life_again(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(RETAIN / 2).await;
    p.assert_left(p.found().await.1, RETAIN / 2);
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    p.assert_left(p.found().await.1, RETAIN);
    p.advance_just_before(RETAIN).await;
    assert_eq!(p.header().await, claim);
}

async fn a_renewal_by_another_owner_changes_nothing(p: Probe) {
    for age in [Duration::ZERO, MS, LEASE, LEASE * 3] {
        let held = header(pending());
        let bytes = p.plant(&held, b"", RETAIN - age).await;
        for owner in [B, C] {
            assert_eq!(p.renew(&by(owner, held)).await, RenewReply::Lost);
        }
        p.unchanged(&bytes, "a renewal by another owner").await;
        p.assert_left(p.found().await.1, RETAIN - age);
    }
}

async fn a_superseded_owner_does_not_renew(p: Probe) {
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let second = p.take(&request_by(B)).await;
    p.advance(LEASE / 2).await;
    assert_eq!(p.renew(&first).await, RenewReply::Lost);
    let (record, left) = p.found().await;
    assert_eq!(record.header, second);
    p.assert_left(left, RETAIN - LEASE / 2);
    assert_eq!(p.renew(&second).await, RenewReply::Renewed);
}

async fn a_renewal_changes_nothing_but_the_time(p: Probe) {
    let claim = p.take(&request_by(C)).await;
    let bytes = p.peek().await.expect("the claim is there");
    for _ in 0..5 {
        p.advance(LEASE / 4).await;
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
        p.unchanged(&bytes, "a renewal").await;
        p.assert_left(p.found().await.1, RETAIN);
    }
}

async fn a_claim_that_was_lost_is_written_again(p: Probe) {
    for (n, claim) in [
        header(pending()),
        with!(header(pending()), owner: C, attempts: u16::MAX, retain: TTL),
    ]
    .into_iter()
    .enumerate()
    {
        let p = p.at(n);
        assert_eq!(p.renew(&claim).await, RenewReply::Reasserted);
        let (record, left) = p.found().await;
        assert_eq!(record.header, claim);
        assert!(record.body().is_empty());
        p.assert_left(left, claim.retain);
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    }
}

async fn a_claim_that_was_written_again_is_held(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(RETAIN).await;
    assert_eq!(p.renew(&claim).await, RenewReply::Reasserted);
    expect!(p.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
    p.advance(LEASE).await;
    let request = unlimited(B);
    let next = p.take(&request).await;
    assert_eq!(next.attempts, claim.attempts + 1, "attempts count on");
    assert!(next.fence > claim.fence, "and so do fences");
}

async fn a_renewal_does_not_undo_what_is_done(p: Probe) {
    for outcome in OUTCOMES {
        let bytes = p.plant(&header(done(outcome)), b"done", RETAIN / 2).await;
        for owner in [A, B] {
            let claim = by(owner, header(pending()));
            assert_eq!(p.renew(&claim).await, RenewReply::Lost);
        }
        p.unchanged(&bytes, "a renewal").await;
        p.assert_left(p.found().await.1, RETAIN / 2);
    }
}

async fn a_renewal_does_not_take_a_released_key(p: Probe) {
    let released = p.plant(&header(State::Released), b"", RETAIN / 2).await;
    for owner in [A, B] {
        let claim = by(owner, header(pending()));
        assert_eq!(p.renew(&claim).await, RenewReply::Lost);
    }
    p.unchanged(&released, "a renewal").await;
    p.assert_left(p.found().await.1, RETAIN / 2);
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
}
