//! End of leases: by the store's clock, to the millisecond.

use std::time::Duration;

use super::probe::{
    A, ASKED, B, C, LATE, LEASE, MS, Probe, RETAIN, answer, finished_by, header, pending, record,
    request_by,
};
use idem_runtime::store::{ClaimReply, MAX_RETAIN, State};

cases! {
    5 a_lease_ends_to_the_millisecond,
    5 a_lease_that_ends_now_is_over,
    5 one_millisecond_of_a_lease_is_a_lease,
    5 the_rest_of_a_lease_agrees_with_the_life_of_the_record,
    5 leases_of_every_length_end_when_they_should,
    5 a_lease_is_measured_with_the_retention_of_its_own_record,
    5 what_others_ask_does_not_prolong_a_lease,
    5 the_lease_of_a_takeover_is_a_whole_one,
    5 a_superseded_completion_waits_until_the_lease_ends,
    5 a_record_with_more_life_than_written_is_as_good_as_new,
    5 the_longest_lease_that_a_record_can_say_is_kept,
}

async fn running(p: &Probe) -> Duration {
    running!(p.claim(&request_by(B)).await)
}

async fn a_lease_ends_to_the_millisecond(p: Probe) {
    p.take(&request_by(A)).await;
    p.advance_just_before(LEASE).await;
    p.assert_left(running(&p).await, p.fixture.drift() + MS);
    p.advance_the_rest().await;
    p.take(&request_by(B)).await;
    p.advance_just_before(LEASE).await;
    expect!(p.claim(&request_by(C)).await, ClaimReply::Running { .. } => ());
    p.advance_the_rest().await;
    p.take(&request_by(C)).await;
}

async fn a_lease_that_ends_now_is_over(p: Probe) {
    for age in [LEASE, LEASE + MS] {
        p.plant(&header(pending()), b"", RETAIN - age).await;
        expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ());
    }
}

async fn one_millisecond_of_a_lease_is_a_lease(p: Probe) {
    if !p.stands_still() {
        return seen_in_passing(&p).await;
    }
    p.plant(&header(pending()), b"", RETAIN - LEASE + MS).await;
    assert_eq!(running(&p).await, MS);
    let theirs = finished_by(B);
    let lease_left = superseded!(p.complete(&record(&theirs, b"")).await);
    assert_eq!(lease_left, MS);
    p.advance(MS).await;
    expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ());
}

/// A running clock does not stop at the last millisecond, but frequent reads must observe it.
async fn seen_in_passing(p: &Probe) {
    for _ in 0..2_000 {
        p.plant(&header(pending()), b"", RETAIN - LEASE + MS * 3)
            .await;
        loop {
            match p.claim(&request_by(B)).await {
                ClaimReply::Running { lease_left } => {
                    assert!(!lease_left.is_zero(), "a lease of nothing is none");
                    // Some clocks have a resolution finer than a millisecond.
                    if lease_left <= MS {
                        return;
                    }
                }
                ClaimReply::Granted { .. } => break,
                other => panic!("expected Running, then Granted; the store said {other:?}"),
            }
        }
    }
    panic!("leases end more than a millisecond early, or the store is too slow for this test");
}

async fn the_rest_of_a_lease_agrees_with_the_life_of_the_record(p: Probe) {
    p.take(&request_by(A)).await;
    for step in 0..20 {
        // The age of the record is `RETAIN` less its remaining life, whatever the time is.
        let (_, before) = p.found().await;
        let left = running(&p).await;
        let (_, after) = p.found().await;
        let most = LEASE - (RETAIN - before);
        let least = LEASE - (RETAIN - after);
        assert!(
            (least..=most).contains(&left),
            "step {step}: {left:?} are left of a lease that the record says has {least:?} to \
             {most:?}"
        );
        p.advance(Duration::from_millis(1_999)).await;
    }
}

async fn leases_of_every_length_end_when_they_should(p: Probe) {
    for (n, lease) in [
        Duration::from_millis(100),
        Duration::from_millis(101),
        Duration::from_millis(1_999),
        Duration::from_secs(30),
        Duration::from_millis(65_536),
        Duration::from_secs(10 * 60),
        Duration::from_millis(16_777_216),
        Duration::from_secs(24 * 60 * 60),
    ]
    .into_iter()
    .enumerate()
    {
        let p = p.at(n);
        let request = with!(
            request_by(A),
            lease: lease,
            // A record must outlive its lease also on a slow machine.
            retain: lease * 2 + MS + p.fixture.drift(),
        );
        p.take(&request).await;
        assert_eq!(p.header().await.state, State::Pending { lease });
        if lease > p.fixture.drift() + MS {
            p.advance_just_before(lease).await;
            running(&p).await;
            p.advance_the_rest().await;
        } else {
            p.advance(lease).await;
        }
        let next = with!(request, owner: B);
        assert_eq!(p.take(&next).await.attempts, 2, "a lease of {lease:?} ends");
    }
}

async fn a_lease_is_measured_with_the_retention_of_its_own_record(p: Probe) {
    let request = with!(request_by(A), retain: RETAIN * 5);
    p.take(&request).await;
    p.advance(LEASE / 2).await;
    p.assert_left(running(&p).await, LEASE / 2);
    p.advance(LEASE / 2).await;
    let short = with!(request_by(B), retain: LEASE * 2);
    p.take(&short).await;
    let left = running!(p.claim(&with!(request, owner: C)).await);
    p.assert_left(left, LEASE);
}

async fn what_others_ask_does_not_prolong_a_lease(p: Probe) {
    p.take(&request_by(A)).await;
    for _ in 0..4 {
        p.advance(LEASE / 4).await;
        let request = with!(request_by(B), lease: LEASE * 9, retain: RETAIN * 9);
        match p.claim(&request).await {
            ClaimReply::Running { lease_left } => assert!(lease_left <= LEASE),
            ClaimReply::Granted { attempt, .. } => return assert_eq!(attempt, 2),
            other => panic!("expected Running, then Granted; the store said {other:?}"),
        }
    }
    panic!("the lease of A must be over by now");
}

async fn the_lease_of_a_takeover_is_a_whole_one(p: Probe) {
    p.take(&request_by(A)).await;
    p.advance(LEASE + LEASE / 2).await;
    p.take(&request_by(B)).await;
    let left = running!(p.claim(&request_by(C)).await);
    p.assert_left(left, LEASE);
}

async fn a_superseded_completion_waits_until_the_lease_ends(p: Probe) {
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    p.take(&request_by(B)).await;
    let answer = answer(&first, b"mine after all");
    p.advance_just_before(LEASE).await;
    superseded!(p.complete(&answer).await);
    p.advance_the_rest().await;
    assert_eq!(p.complete(&answer).await, LATE);
}

async fn a_record_with_more_life_than_written_is_as_good_as_new(p: Probe) {
    let bytes = p.plant(&header(pending()), b"", RETAIN * 2).await;
    let left = running(&p).await;
    assert_eq!(left, LEASE, "a lease is never longer than it was written");
    p.unchanged(&bytes, "a refused claim").await;
}

async fn the_longest_lease_that_a_record_can_say_is_kept(p: Probe) {
    let lease = Duration::from_millis(u32::MAX.into());
    let request = with!(request_by(A), lease: lease, retain: MAX_RETAIN, fingerprint: ASKED);
    let claim = p.take(&request).await;
    let (record, left) = p.found().await;
    assert_eq!(record.header, claim);
    p.assert_left(left, MAX_RETAIN);
    p.assert_left(running(&p).await, lease);
}
