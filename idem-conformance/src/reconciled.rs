//! Ends of a reconciling claim: with an answer, released, or abandoned.

use std::time::Duration;

use super::probe::{
    A, B, C, IN_TIME, LATE, LEASE, MS, OUTCOMES, Probe, RELEASED, REMAINS, RETAIN, SUPERSEDED, TTL,
    answer, ask_to_find_out, counted, done, ended, finished, header, pending, reconciling, record,
    request_by, undecided, unknown_outcome,
};
use idem_runtime::store::{
    ClaimReply, CompleteReply, Header, OutcomeKind, ReadReply, Remains, RenewReply, State,
};

cases! {
    2 who_finds_out_stores_what_it_found,
    2 who_finds_out_slowly_stores_what_it_found_if_nobody_took_over,
    2 another_owner_does_not_complete_a_live_reconciliation,
    2 a_success_is_stored_where_who_was_to_find_out_vanished,
    2 an_error_is_not_stored_where_who_was_to_find_out_vanished,
    13 a_reconciliation_that_is_given_back_is_unknown,
    8 giving_a_reconciliation_back_leaves_the_attempts,
    6 giving_a_reconciliation_back_leaves_the_life,
    3 giving_a_reconciliation_back_again_changes_nothing,
    2 another_owner_does_not_give_a_reconciliation_back,
    2 a_superseded_reconciliation_is_not_given_back,
    5 a_renewal_keeps_a_reconciliation,
    3 a_renewal_changes_nothing_of_a_reconciliation_but_its_time,
    2 a_renewal_of_a_reconciliation_by_another_owner_changes_nothing,
    2 a_reconciliation_that_is_over_is_not_renewed,
    2 a_reconciliation_that_was_lost_is_written_again,
    13 a_reconciliation_that_was_written_again_is_one,
}

/// A claim of B that reconciles an unknown outcome.
async fn looking(p: &Probe) -> Header {
    p.plant(&header(unknown_outcome()), b"", RETAIN).await;
    p.look_into(&ask_to_find_out(B)).await
}

async fn who_finds_out_stores_what_it_found(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        let claim = looking(&p).await;
        let end = ended(&claim, outcome);
        let bytes = record(&end, b"found");
        assert_eq!(p.complete(&bytes).await, IN_TIME);
        p.unchanged(&bytes, "storing it").await;
        p.assert_left(p.found().await.1, TTL);
        let stored = replayed!(p.claim(&request_by(C)).await).0;
        assert_eq!(stored.as_bytes(), &bytes[..]);
    }
}

async fn who_finds_out_slowly_stores_what_it_found_if_nobody_took_over(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        let claim = looking(&p).await;
        p.advance(LEASE * 2).await;
        let end = ended(&claim, outcome);
        assert_eq!(p.complete(&record(&end, b"")).await, IN_TIME);
    }
}

async fn another_owner_does_not_complete_a_live_reconciliation(p: Probe) {
    for age in [MS, LEASE / 2] {
        let bytes = p.plant(&header(reconciling()), b"", RETAIN - age).await;
        for outcome in OUTCOMES {
            let theirs = with!(finished(&header(pending())), owner: B, state: done(outcome));
            let left = superseded!(p.complete(&record(&theirs, b"not ours")).await);
            p.assert_left(left, LEASE - age);
        }
        p.unchanged(&bytes, "a completion by another owner").await;
    }
}

/// The completion of the first attempt, A's, after the reconciling owner vanished.
async fn after_who_vanished(p: &Probe, outcome: OutcomeKind) -> CompleteReply {
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let claim = p.look_into(&ask_to_find_out(B)).await;
    p.advance(LEASE).await;
    let end = ended(&first, outcome);
    let reply = p.complete(&record(&end, b"first")).await;
    let there = p.header().await;
    let stored = reply == LATE;
    assert_eq!(there.owner == A, stored);
    assert_eq!((there.fence, there.attempts), (claim.fence, 1));
    reply
}

async fn a_success_is_stored_where_who_was_to_find_out_vanished(p: Probe) {
    for (n, outcome) in [OutcomeKind::Value, OutcomeKind::Tombstone]
        .into_iter()
        .enumerate()
    {
        assert_eq!(after_who_vanished(&p.at(n), outcome).await, LATE);
    }
}

async fn an_error_is_not_stored_where_who_was_to_find_out_vanished(p: Probe) {
    for (n, outcome) in [OutcomeKind::Error, OutcomeKind::Unknown]
        .into_iter()
        .enumerate()
    {
        let lease_left = Duration::ZERO;
        assert_eq!(
            after_who_vanished(&p.at(n), outcome).await,
            CompleteReply::Superseded { lease_left }
        );
    }
}

async fn a_reconciliation_that_is_given_back_is_unknown(p: Probe) {
    for (n, remains) in REMAINS.into_iter().enumerate() {
        let p = p.at(n);
        let claim = looking(&p).await;
        assert_eq!(p.release(B, remains).await, RELEASED);
        let expected = with!(claim, state: undecided());
        let (record, _) = p.found().await;
        assert_eq!(record.header, expected);
        assert!(record.body().is_empty());
        let replayed = replayed!(p.claim(&request_by(A)).await).0;
        assert_eq!(replayed, record);
        let next = p.look_into(&ask_to_find_out(C)).await;
        assert!(next.fence > claim.fence);
    }
}

async fn giving_a_reconciliation_back_leaves_the_attempts(p: Probe) {
    for attempts in [0, 1, 256, u16::MAX] {
        for remains in REMAINS {
            let claim = counted(attempts, header(reconciling()));
            p.plant(&claim, b"", RETAIN).await;
            assert_eq!(p.release(A, remains).await, RELEASED);
            assert_eq!(p.header().await.attempts, attempts);
        }
    }
}

async fn giving_a_reconciliation_back_leaves_the_life(p: Probe) {
    for life in [RETAIN, RETAIN / 2, LEASE] {
        p.plant(&header(reconciling()), b"", life).await;
        assert_eq!(p.release(A, Remains::Request).await, RELEASED);
        p.assert_left(p.found().await.1, life);
    }
    p.advance_just_before(LEASE).await;
    p.found().await;
    p.advance_the_rest().await;
    assert_eq!(p.read().await, ReadReply::Absent, "and ends with it");
}

async fn giving_a_reconciliation_back_again_changes_nothing(p: Probe) {
    looking(&p).await;
    assert_eq!(p.release(B, Remains::Request).await, RELEASED);
    let bytes = p.peek().await.expect("it is unknown now");
    for remains in REMAINS {
        assert_eq!(p.release(B, remains).await, RELEASED);
    }
    p.unchanged(&bytes, "a release, sent again").await;
    let next = p.look_into(&ask_to_find_out(C)).await;
    assert_eq!(p.release(B, Remains::Request).await, SUPERSEDED);
    assert_eq!(p.header().await, next);
}

async fn another_owner_does_not_give_a_reconciliation_back(p: Probe) {
    for (state, age) in [
        (reconciling(), MS),
        (reconciling(), LEASE * 3),
        (undecided(), MS),
    ] {
        let bytes = p.plant(&header(state), b"", RETAIN - age).await;
        for remains in REMAINS {
            assert_eq!(p.release(B, remains).await, SUPERSEDED);
        }
        p.unchanged(&bytes, "a release by another owner").await;
    }
}

async fn a_superseded_reconciliation_is_not_given_back(p: Probe) {
    let first = looking(&p).await;
    p.advance(LEASE).await;
    let next = p.look_into(&ask_to_find_out(C)).await;
    for remains in REMAINS {
        assert_eq!(p.release(B, remains).await, SUPERSEDED);
    }
    assert_eq!(p.renew(&first).await, RenewReply::Lost);
    superseded!(p.complete(&answer(&first, b"too late")).await);
    assert_eq!(p.header().await, next);
}

async fn a_renewal_keeps_a_reconciliation(p: Probe) {
    let claim = looking(&p).await;
    for _ in 0..5 {
        p.advance(LEASE / 2).await;
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
        let left = running!(p.claim(&ask_to_find_out(C)).await);
        p.assert_left(left, LEASE);
    }
    p.advance(LEASE * 3).await;
    assert_eq!(
        p.renew(&claim).await,
        RenewReply::Renewed,
        "no other owner took it"
    );
    expect!(p.claim(&request_by(C)).await, ClaimReply::Running { .. } => ());
    assert_eq!(p.complete(&answer(&claim, b"found")).await, IN_TIME);
}

async fn a_renewal_changes_nothing_of_a_reconciliation_but_its_time(p: Probe) {
    let claim = looking(&p).await;
    let bytes = p.peek().await.expect("the claim is there");
    for _ in 0..3 {
        p.advance(LEASE / 4).await;
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
        p.unchanged(&bytes, "a renewal").await;
        p.assert_left(p.found().await.1, RETAIN);
    }
}

async fn a_renewal_of_a_reconciliation_by_another_owner_changes_nothing(p: Probe) {
    for age in [Duration::ZERO, LEASE / 2, LEASE * 3] {
        let held = header(reconciling());
        let bytes = p.plant(&held, b"", RETAIN - age).await;
        for state in [pending(), reconciling()] {
            let theirs = with!(held, owner: B, state: state);
            assert_eq!(p.renew(&theirs).await, RenewReply::Lost);
        }
        p.unchanged(&bytes, "a renewal by another owner").await;
        p.assert_left(p.found().await.1, RETAIN - age);
    }
}

async fn a_reconciliation_that_is_over_is_not_renewed(p: Probe) {
    let claim = looking(&p).await;
    assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
    let bytes = p.peek().await.expect("it is unknown now");
    assert_eq!(p.renew(&claim).await, RenewReply::Lost);
    p.unchanged(&bytes, "a renewal of what was given back")
        .await;
}

async fn a_reconciliation_that_was_lost_is_written_again(p: Probe) {
    let claim = header(reconciling());
    assert_eq!(p.renew(&claim).await, RenewReply::Reasserted);
    let (record, left) = p.found().await;
    assert_eq!(record.header, claim);
    p.assert_left(left, RETAIN);
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
}

async fn a_reconciliation_that_was_written_again_is_one(p: Probe) {
    let claim = header(reconciling());
    assert_eq!(p.renew(&claim).await, RenewReply::Reasserted);
    expect!(p.claim(&ask_to_find_out(B)).await, ClaimReply::Running { .. } => ());
    p.advance(LEASE).await;
    expect!(p.claim(&request_by(B)).await, ClaimReply::Done { .. } => (), "the outcome is unknown");
    let next = p.look_into(&ask_to_find_out(B)).await;
    assert_eq!(next.attempts, claim.attempts);
    let started = p.take(&request_by(B)).await;
    assert_eq!(started.attempts, claim.attempts + 1);
    assert!(matches!(started.state, State::Pending { .. }));
}
