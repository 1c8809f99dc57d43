//! Releases in every state, for either owner.

use super::probe::{
    A, B, C, IN_TIME, LEASE, MS, OUTCOMES, Probe, RELEASED, REMAINS, RETAIN, SUPERSEDED, answer,
    done, header, owner, pending, request_by,
};
use idem_runtime::store::{ClaimReply, ReadReply, ReleaseReply, Remains, RenewReply, State};

cases! {
    2 the_owner_gives_a_key_back: transport,
    2 a_release_by_another_owner_changes_nothing,
    2 a_release_without_a_record_changes_nothing: transport,
    2 a_lapsed_claim_is_released_by_its_owner_if_nobody_took_it,
    4 a_release_does_not_undo_what_is_done,
    6 a_release_keeps_the_life_that_is_left,
    7 a_release_keeps_the_record,
    2 a_superseded_owner_does_not_release_its_successor,
    2 a_released_claim_cannot_be_renewed,
    2 an_owner_that_released_can_still_complete,
}

async fn the_owner_gives_a_key_back(p: Probe) {
    for (n, holder) in [A, C].into_iter().enumerate() {
        for (m, remains) in REMAINS.into_iter().enumerate() {
            let p = p.at(n * 10 + m);
            p.take(&request_by(holder)).await;
            assert_eq!(p.release(holder, remains).await, RELEASED);
            expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ());
        }
    }
}

async fn a_release_by_another_owner_changes_nothing(p: Probe) {
    for state in [pending(), State::Released] {
        for age in [MS, LEASE, LEASE * 3] {
            let bytes = p.plant(&header(state), b"", RETAIN - age).await;
            for (owner, remains) in [
                (B, Remains::Attempt),
                (B, Remains::Request),
                (C, Remains::Nothing),
                (owner(3), Remains::Request),
            ] {
                assert_eq!(p.release(owner, remains).await, SUPERSEDED);
            }
            p.unchanged(&bytes, "a release by another owner").await;
            p.assert_left(p.found().await.1, RETAIN - age);
        }
    }
}

async fn a_release_without_a_record_changes_nothing(p: Probe) {
    for remains in REMAINS {
        assert_eq!(p.release(A, remains).await, ReleaseReply::Absent);
        assert_eq!(p.read().await, ReadReply::Absent);
    }
}

async fn a_lapsed_claim_is_released_by_its_owner_if_nobody_took_it(p: Probe) {
    p.plant(&header(pending()), b"", RETAIN - LEASE * 2).await;
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    let expected = header(State::Released);
    assert_eq!(p.header().await, expected);
}

async fn a_release_does_not_undo_what_is_done(p: Probe) {
    for outcome in OUTCOMES {
        let bytes = p.plant(&header(done(outcome)), b"done", RETAIN).await;
        for owner in [A, B] {
            for remains in REMAINS {
                assert_eq!(p.release(owner, remains).await, SUPERSEDED);
            }
        }
        p.unchanged(&bytes, "a release").await;
    }
}

async fn a_release_keeps_the_life_that_is_left(p: Probe) {
    for life in [RETAIN, RETAIN / 2, LEASE] {
        p.plant(&header(pending()), b"", life).await;
        assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
        p.assert_left(p.found().await.1, life);
        assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
        p.assert_left(p.found().await.1, life);
    }
    p.advance_just_before(LEASE).await;
    p.found().await;
    p.advance_the_rest().await;
    assert_eq!(p.read().await, ReadReply::Absent, "and ends with it");
}

async fn a_release_keeps_the_record(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    let expected = with!(claim, state: State::Released);
    let (record, _) = p.found().await;
    assert_eq!(record.header, expected, "fence, attempts and fingerprint");
    assert!(record.body().is_empty());
}

async fn a_superseded_owner_does_not_release_its_successor(p: Probe) {
    p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let successor = p.take(&request_by(B)).await;
    for remains in REMAINS {
        assert_eq!(p.release(A, remains).await, SUPERSEDED);
    }
    assert_eq!(p.header().await, successor);
    expect!(p.claim(&request_by(C)).await, ClaimReply::Running { .. } => ());
}

async fn a_released_claim_cannot_be_renewed(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    let before = p.peek().await.expect("a released record stays");
    assert_eq!(p.renew(&claim).await, RenewReply::Lost);
    p.unchanged(&before, "a renewal of what was given back")
        .await;
}

async fn an_owner_that_released_can_still_complete(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    let bytes = answer(&claim, b"it happened after all");
    assert_eq!(p.complete(&bytes).await, IN_TIME);
    p.unchanged(&bytes, "storing it").await;
}
