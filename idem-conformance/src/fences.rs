//! Fences grow with every claim of a key.

use super::probe::{
    A, B, C, LEASE, MS, Probe, RELEASED, RETAIN, fenced, header, owner, pending, request_by,
    unlimited,
};
use idem_runtime::store::{Fence, Remains, RenewReply, State};

cases! {
    7 a_takeover_has_a_higher_fence,
    7 a_claim_after_a_release_has_a_higher_fence,
    7 fences_grow_over_many_attempts,
    7 a_fence_grows_when_the_clock_does_not,
    7 a_fence_ahead_of_the_clock_grows_by_one,
    7 every_byte_of_a_fence_counts,
    7 a_renewal_keeps_the_fence,
    7 a_fence_after_the_records_life_is_not_lower,
}

async fn a_takeover_has_a_higher_fence(p: Probe) {
    let mut last = p.take(&request_by(A)).await.fence;
    for (owner, age) in [(B, LEASE), (C, LEASE * 3), (A, LEASE + MS)] {
        p.advance(age).await;
        let fence = p.take(&request_by(owner)).await.fence;
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
    }
}

async fn a_claim_after_a_release_has_a_higher_fence(p: Probe) {
    let mut last = Fence::default();
    for owner in [A, B, A, C] {
        let fence = p.take(&request_by(owner)).await.fence;
        assert!(fence > last, "{fence:?} after {last:?}");
        assert_eq!(p.release(owner, Remains::Request).await, RELEASED);
        last = fence;
    }
}

async fn fences_grow_over_many_attempts(p: Probe) {
    let mut last = Fence::default();
    for n in 0..100 {
        let request = unlimited(owner(n));
        let fence = p.take(&request).await.fence;
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        if n % 2 == 0 {
            assert_eq!(p.release(owner(n), Remains::Attempt).await, RELEASED);
        } else {
            p.advance(LEASE).await;
        }
    }
}

async fn a_fence_grows_when_the_clock_does_not(p: Probe) {
    let mut fences = Vec::new();
    for n in 0..20 {
        fences.push(p.take(&request_by(owner(n))).await.fence);
        assert_eq!(p.release(owner(n), Remains::Request).await, RELEASED);
    }
    assert!(
        fences.is_sorted_by(|last, next| last < next),
        "{fences:?} grow"
    );
}

async fn a_fence_ahead_of_the_clock_grows_by_one(p: Probe) {
    // As after a failover to a server whose clock is behind; in the year 2185.
    let ahead = Fence::new(6_789_012_345_678_901);
    for (state, life) in [(pending(), RETAIN - LEASE), (State::Released, RETAIN)] {
        let record = fenced(ahead, header(state));
        p.plant(&record, b"", life).await;
        let claim = p.take(&request_by(B)).await;
        assert_eq!(claim.fence.get(), ahead.get() + 1);
        assert_eq!(p.header().await.fence, claim.fence);
        let again = p.take(&request_by(B)).await;
        assert_eq!(again.fence, claim.fence, "the same attempt");
    }
}

async fn every_byte_of_a_fence_counts(p: Probe) {
    // Numbers whose bytes a text protocol, or a carry, would corrupt.
    for number in [
        0x000d_0a0d_0a00_ffff,
        0x000f_00ff_00ff_00ff,
        0x0010_0000_0000_0000,
        0x001f_ffff_ffff_fffd,
        0x000f_ffff_ffff_ffff,
    ] {
        let record = fenced(Fence::new(number), header(State::Released));
        p.plant(&record, b"", RETAIN).await;
        assert_eq!(p.take(&request_by(B)).await.fence.get(), number + 1);
    }
}

async fn a_renewal_keeps_the_fence(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(LEASE / 2).await;
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    assert_eq!(p.header().await.fence, claim.fence);
    assert_eq!(p.take(&request_by(A)).await.fence, claim.fence);
}

async fn a_fence_after_the_records_life_is_not_lower(p: Probe) {
    // The record is gone, so this fence is based on the store's clock.
    let first = p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    p.advance(RETAIN).await;
    let second = p.take(&request_by(B)).await;
    assert!(second.fence >= first.fence);
    assert_eq!(second.attempts, 1);
}
