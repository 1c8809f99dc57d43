//! Life of records: written with an expiry, gone to the millisecond.

use std::time::Duration;

use super::probe::{
    A, B, C, IN_TIME, LATE, LEASE, MS, Probe, RELEASED, RETAIN, TTL, answer, by, counted, dated,
    finished, header, kept_for, pending, record, request_by, states,
};
use idem_runtime::store::{
    ClaimReply, CompleteReply, Fence, MAX_RETAIN, ReadReply, ReleaseReply, Remains, RenewReply,
    State,
};

cases! {
    6 a_claim_that_nobody_takes_over_expires_to_the_millisecond,
    6 an_answer_expires_to_the_millisecond,
    6 an_expired_answer_is_not_given_to_anybody,
    6 a_released_record_expires,
    6 a_release_of_which_nothing_remains_lives_for_a_lease,
    6 a_release_of_which_nothing_remains_lives_for_ten_seconds_at_least,
    6 a_release_of_which_something_remains_keeps_its_life,
    6 a_release_that_leaves_another_attempt_keeps_its_life,
    6 a_claim_after_a_release_of_which_nothing_remains_has_its_whole_life,
    3 what_comes_late_finds_the_release_of_which_nothing_remains,
    6 records_of_every_state_expire,
    6 every_retention_is_kept,
    6 what_is_left_is_told_with_the_answer,
    6 no_operation_leaves_a_record_without_an_expiry,
    6 reading_does_not_prolong_a_life,
    6 a_new_life_begins_with_a_new_claim,
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

async fn expires_in(p: &Probe, life: Duration) {
    p.advance_just_before(life).await;
    let (_, left) = p.found().await;
    p.assert_left(left, p.fixture.drift() + MS);
    p.advance_the_rest().await;
    assert_eq!(p.read().await, ReadReply::Absent);
    assert_eq!(p.peek().await, None);
}

async fn a_claim_that_nobody_takes_over_expires_to_the_millisecond(p: Probe) {
    p.take(&request_by(A)).await;
    expires_in(&p, RETAIN).await;
    assert_eq!(
        p.take(&request_by(A)).await.attempts,
        1,
        "nothing is known of it"
    );
}

async fn an_answer_expires_to_the_millisecond(p: Probe) {
    p.finish(b"x").await;
    p.advance(TTL / 2).await;
    expires_in(&p, TTL / 2).await;
}

async fn an_expired_answer_is_not_given_to_anybody(p: Probe) {
    p.finish(b"old").await;
    p.advance(TTL).await;
    let claim = p.take(&request_by(B)).await;
    assert_eq!(claim.attempts, 1);
    assert!(p.found().await.0.body().is_empty());
    assert_eq!(p.complete(&answer(&claim, b"new")).await, IN_TIME);
    assert_eq!(p.found().await.0.body(), b"new");
}

async fn a_released_record_expires(p: Probe) {
    p.take(&request_by(A)).await;
    p.advance(RETAIN / 4).await;
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    expires_in(&p, RETAIN / 4 * 3).await;
    assert_eq!(p.release(A, Remains::Attempt).await, ReleaseReply::Absent);
}

async fn a_release_of_which_nothing_remains_lives_for_a_lease(p: Probe) {
    // Of a claim that was renewed, one that lapsed, and one that a call waits for.
    for (n, age) in [MS, LEASE / 2, LEASE * 3].into_iter().enumerate() {
        let p = p.at(n);
        p.take(&request_by(A)).await;
        p.advance(age).await;
        assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
        assert_eq!(p.header().await.retain, LEASE);
        p.assert_left(p.found().await.1, LEASE);
        // Sent again, it does not extend the life.
        p.advance(LEASE / 2).await;
        assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
        p.assert_left(p.found().await.1, LEASE / 2);
        expires_in(&p, LEASE / 2).await;
        let next = p.take(&request_by(B)).await;
        assert_eq!(next.attempts, 1, "nothing is known of it");
    }
}

async fn a_release_of_which_nothing_remains_lives_for_ten_seconds_at_least(p: Probe) {
    const LEAST: Duration = Duration::from_secs(10);
    for (n, lease) in [MS * 100, LEAST, LEAST + MS].into_iter().enumerate() {
        let p = p.at(n);
        let request = with!(request_by(A), lease: lease);
        expect!(p.claim(&request).await, ClaimReply::Granted { .. } => ());
        assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
        let life = lease.max(LEAST);
        assert_eq!(p.header().await.retain, life);
        p.assert_left(p.found().await.1, life);
        p.advance(life).await;
        assert_eq!(p.read().await, ReadReply::Absent);
    }
}

async fn a_release_of_which_something_remains_keeps_its_life(p: Probe) {
    for (n, remains) in [Remains::Request, Remains::Attempt].into_iter().enumerate() {
        let p = p.at(n);
        p.take(&request_by(A)).await;
        p.advance(RETAIN / 4).await;
        assert_eq!(p.release(A, remains).await, RELEASED);
        assert_eq!(p.header().await.retain, RETAIN);
        p.assert_left(p.found().await.1, RETAIN / 4 * 3);
        p.advance(LEASE * 3).await;
        assert_eq!(p.header().await.state, State::Released);
    }
}

async fn a_release_that_leaves_another_attempt_keeps_its_life(p: Probe) {
    // Its owner may still be running, and `max_attempts` counts it.
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let second = p.take(&request_by(B)).await;
    assert_eq!(p.release(B, Remains::Nothing).await, RELEASED);
    p.advance(LEASE * 9).await;
    let kept = p.header().await;
    assert_eq!((kept.attempts, kept.fence), (1, second.fence));
    let third = p.take(&request_by(C)).await;
    assert_eq!(third.attempts, 2);
    assert!(third.fence > second.fence && second.fence > first.fence);
    // More than fit into a byte of the counter.
    for (n, attempts) in [0x100, 0x101].into_iter().enumerate() {
        let p = p.at(n);
        let many = counted(attempts, header(pending()));
        p.plant(&many, b"", RETAIN / 2).await;
        assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
        p.assert_left(p.found().await.1, RETAIN / 2);
    }
}

async fn a_claim_after_a_release_of_which_nothing_remains_has_its_whole_life(p: Probe) {
    p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
    let next = p.take(&request_by(B)).await;
    assert_eq!(next.retain, RETAIN);
    p.assert_left(p.found().await.1, RETAIN);
    p.advance(LEASE * 3).await;
    assert_eq!(p.header().await, next, "it outlives the release");
}

async fn what_comes_late_finds_the_release_of_which_nothing_remains(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
    p.advance_just_before(LEASE).await;
    let bytes = p.peek().await.expect("the record lives for a lease");
    let lease_left = Duration::ZERO;
    assert_eq!(
        p.claim(&request_by(A)).await,
        ClaimReply::Running { lease_left }
    );
    assert_eq!(p.renew(&claim).await, RenewReply::Lost);
    assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
    p.unchanged(&bytes, "what came late").await;
}

async fn records_of_every_state_expire(p: Probe) {
    for state in states() {
        p.plant(&header(state), b"", LEASE).await;
        expires_in(&p, LEASE).await;
    }
}

async fn every_retention_is_kept(p: Probe) {
    for (n, retain) in [
        Duration::from_millis(200),
        Duration::from_millis(60_001),
        RETAIN,
        Duration::from_secs(90 * 24 * 60 * 60),
        Duration::from_millis(4_294_967_296),
        YEAR,
        YEAR * 10,
        MAX_RETAIN,
    ]
    .into_iter()
    .enumerate()
    {
        let p = p.at(n);
        let claim = p.take(&request_by(A)).await;
        let done = kept_for(retain, finished(&claim));
        let bytes = record(&done, b"long");
        assert_eq!(p.complete(&bytes).await, IN_TIME);
        if retain > p.fixture.drift() + MS {
            assert_eq!(p.header().await.retain, retain);
            expires_in(&p, retain).await;
        } else {
            p.advance(retain).await;
            assert_eq!(p.read().await, ReadReply::Absent);
        }
    }
}

async fn what_is_left_is_told_with_the_answer(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.complete(&answer(&claim, b"x")).await, IN_TIME);
    for _ in 0..3 {
        let (_, before) = p.found().await;
        let claimed =
            expect!(p.claim(&dated(&request_by(B))).await, ClaimReply::Done { left, .. } => left);
        let theirs = by(B, finished(&claim));
        let adopted = expect!(
            p.complete(&record(&theirs, b"y")).await,
            CompleteReply::Adopted { left, .. } => left
        );
        let (_, after) = p.found().await;
        // Copies in front of the store may expire by another clock.
        let inexact = p.fixture.drift() + MS;
        for (earlier, later) in [(before, claimed), (claimed, adopted), (adopted, after)] {
            assert!(
                earlier + inexact >= later,
                "{later:?} are left after {earlier:?}"
            );
        }
        p.advance(TTL / 4).await;
        p.assert_left(p.found().await.1, before - TTL / 4);
    }
}

async fn no_operation_leaves_a_record_without_an_expiry(p: Probe) {
    let far = MAX_RETAIN + YEAR;
    let claim = header(pending());
    for operation in 0..7 {
        let p = p.at(operation);
        if (3..6).contains(&operation) {
            p.plant(&claim, b"", RETAIN - LEASE).await;
        }
        match operation {
            0 => expect!(p.claim(&request_by(A)).await, ClaimReply::Granted { .. } => ()),
            1 => assert_eq!(p.renew(&claim).await, RenewReply::Reasserted),
            2 => assert_eq!(p.complete(&answer(&claim, b"x")).await, LATE),
            3 => expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ()),
            4 => assert_eq!(p.renew(&claim).await, RenewReply::Renewed),
            5 => assert_eq!(p.release(A, Remains::Attempt).await, RELEASED),
            _ => drop(p.finish(b"x").await),
        }
        assert!(p.found().await.1 <= RETAIN);
    }
    p.advance(far).await;
    for operation in 0..7 {
        assert_eq!(p.at(operation).read().await, ReadReply::Absent);
    }
}

async fn reading_does_not_prolong_a_life(p: Probe) {
    p.finish(b"x").await;
    for _ in 0..4 {
        p.found().await;
        expect!(p.claim(&request_by(C)).await, ClaimReply::Done { .. } => ());
        p.advance(TTL / 4).await;
    }
    assert_eq!(p.read().await, ReadReply::Absent);
}

async fn a_new_life_begins_with_a_new_claim(p: Probe) {
    let brief = with!(request_by(A), retain: LEASE * 2);
    p.take(&brief).await;
    p.advance(LEASE).await;
    let claim = p.take(&request_by(B)).await;
    p.advance(LEASE * 2).await;
    let (record, left) = p.found().await;
    assert_eq!(record.header, claim, "the first claim's life is over");
    p.assert_left(left, RETAIN - LEASE * 2);
    assert!(claim.fence > Fence::default());
}
