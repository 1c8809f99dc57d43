//! Leases and lives: by the store's clock, to the millisecond.

use super::probe::{
    A, B, IN_TIME, LEASE, MS, Probe, RELEASED, RETAIN, TTL, finished, header, pending, record,
    request_by,
};
use idem_runtime::FOREVER;
use idem_runtime::store::author::{
    ClaimReply, CompleteReply, MAX_RETAIN, ReadReply, Remains, State,
};
use std::time::Duration;

cases! {
    6 a_release_of_which_nothing_remains_lives_for_a_lease,
    5 one_millisecond_of_a_lease_is_a_lease,
    5 leases_of_every_length_end_when_they_should,
    5 a_record_with_more_life_than_written_is_as_good_as_new,
    6 an_answer_expires_to_the_millisecond,
    6 every_retention_is_kept,
}

async fn running(p: &Probe) -> Duration {
    expect!(p.claim(&request_by(B)).await, ClaimReply::Running { lease_left } => lease_left)
}

async fn one_millisecond_of_a_lease_is_a_lease(p: Probe) {
    if !p.stands_still() {
        return seen_in_passing(&p).await;
    }
    p.plant(&header(pending()), b"", RETAIN - LEASE + MS).await;
    assert_eq!(running(&p).await, MS);
    let theirs = with!(finished(&header(pending())), owner: B);
    let superseded = CompleteReply::Superseded { lease_left: MS };
    assert_eq!(p.complete(&record(&theirs, b"")).await, superseded);
    p.advance(MS).await;
    expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ());
}

/// A running clock does not stop at the last millisecond. Frequent reads must observe it.
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

async fn leases_of_every_length_end_when_they_should(p: Probe) {
    let leases = [
        100, 101, 1_999, 30_000, 65_536, 600_000, 16_777_216, 86_400_000,
    ];
    for (n, lease) in leases.into_iter().map(Duration::from_millis).enumerate() {
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

async fn a_record_with_more_life_than_written_is_as_good_as_new(p: Probe) {
    let bytes = p.plant(&header(pending()), b"", RETAIN * 2).await;
    let left = running(&p).await;
    assert_eq!(left, LEASE, "a lease is never longer than it was written");
    p.unchanged(&bytes, "a refused claim").await;
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

async fn an_answer_expires_to_the_millisecond(p: Probe) {
    p.finish(b"x").await;
    p.advance(TTL / 2).await;
    expires_in(&p, TTL / 2).await;
}

async fn every_retention_is_kept(p: Probe) {
    let short = [200, 60_001, 86_400_000, 7_776_000_000, 4_294_967_296].map(Duration::from_millis);
    let long = [YEAR, YEAR * 10, MAX_RETAIN];
    for (n, retain) in short.into_iter().chain(long).enumerate() {
        let p = p.at(n);
        let claim = p.take(&request_by(A)).await;
        let done = with!(finished(&claim), retain: retain);
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
    if p.fixture.store().keeps_forever() {
        // As its docs state.
        let claim = p.take(&request_by(A)).await;
        let bytes = record(&with!(finished(&claim), retain: FOREVER), b"kept");
        assert_eq!(p.complete(&bytes).await, IN_TIME);
        p.advance(MAX_RETAIN).await;
        assert_eq!(p.header().await.retain, FOREVER);
    }
}

async fn a_release_of_which_nothing_remains_lives_for_a_lease(p: Probe) {
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
