//! Operations sent twice: by the engine after a lost reply, or by a client library on its own.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::probe::{
    A, B, C, IN_TIME, LATE, LEASE, Probe, RELEASED, REMAINS, RETAIN, SUPERSEDED, TTL, answer,
    ask_to_find_out, at_most, counted, finished, header, pending, record, request_by,
};
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, ReadReply, Remains, RenewReply, State,
};

cases! {
    3 a_claim_sent_again_is_the_same_attempt: transport,
    3 a_takeover_sent_again_is_the_same_attempt,
    3 a_claim_after_a_release_sent_again_is_the_same_attempt,
    3 the_last_attempt_sent_again_is_granted_again,
    3 a_claim_sent_again_starts_its_lease_again,
    3 a_completion_sent_again_is_stored_once: transport,
    3 a_late_completion_sent_again_is_stored_once,
    3 a_completion_sent_again_does_not_live_longer,
    3 a_release_sent_again_counts_once,
    3 a_release_sent_again_does_not_free_the_next_claim,
    3 a_claim_after_its_own_release_is_granted_nothing: transport,
    3 a_claim_after_its_own_release_is_no_obstacle_to_others,
    3 a_refusal_sent_again_is_the_same_refusal,
    3 reading_again_reads_the_same,
    3 an_operation_that_was_dropped_can_be_sent_again: transport,
}

async fn same_attempt(p: &Probe, request: &ClaimRequest) {
    let first = p.take(request).await;
    let bytes = p.peek().await.expect("the claim is there");
    for _ in 0..3 {
        assert_eq!(p.take(request).await, first, "same fence, same attempt");
    }
    p.unchanged(&bytes, "its claim, sent again").await;
}

async fn a_claim_sent_again_is_the_same_attempt(p: Probe) {
    for (n, owner) in [A, B, C].into_iter().enumerate() {
        same_attempt(&p.at(n), &request_by(owner)).await;
    }
}

async fn a_takeover_sent_again_is_the_same_attempt(p: Probe) {
    p.plant(&header(pending()), b"", RETAIN - LEASE).await;
    same_attempt(&p, &request_by(B)).await;
    assert_eq!(p.header().await.attempts, header(pending()).attempts + 1);
}

async fn a_claim_after_a_release_sent_again_is_the_same_attempt(p: Probe) {
    p.plant(&header(State::Released), b"", RETAIN).await;
    same_attempt(&p, &request_by(B)).await;
    assert_eq!(p.header().await.attempts, header(pending()).attempts + 1);
}

async fn the_last_attempt_sent_again_is_granted_again(p: Probe) {
    for (n, max) in [1, 4].into_iter().enumerate() {
        let p = p.at(n);
        let released = counted(max - 1, header(State::Released));
        p.plant(&released, b"", RETAIN).await;
        let request = at_most(max, B);
        same_attempt(&p, &request).await;
        p.advance(LEASE * 2).await;
        assert_eq!(p.take(&request).await.attempts, max, "lapsed, but its own");
    }
}

async fn a_claim_sent_again_starts_its_lease_again(p: Probe) {
    p.take(&request_by(A)).await;
    p.advance(LEASE / 2).await;
    p.take(&request_by(A)).await;
    let left = running!(p.claim(&request_by(B)).await);
    p.assert_left(left, LEASE);
    p.assert_left(p.found().await.1, RETAIN);
}

async fn a_completion_sent_again_is_stored_once(p: Probe) {
    let claim = p.take(&request_by(C)).await;
    let bytes = answer(&claim, b"\0\r\nonce");
    for _ in 0..4 {
        assert_eq!(p.complete(&bytes).await, IN_TIME);
        p.unchanged(&bytes, "its completion, sent again").await;
    }
    // An owner has one answer: a second one is a bug of the caller, and the first one stays.
    assert_eq!(p.complete(&answer(&claim, b"another")).await, IN_TIME);
    p.unchanged(&bytes, "another answer of the same owner")
        .await;
}

async fn a_late_completion_sent_again_is_stored_once(p: Probe) {
    let bytes = record(&finished(&header(pending())), b"late");
    assert_eq!(p.complete(&bytes).await, LATE);
    // Lateness is known the first time only.
    expect!(p.complete(&bytes).await, CompleteReply::Stored { .. } => ());
    p.unchanged(&bytes, "its completion, sent again").await;
}

async fn a_completion_sent_again_does_not_live_longer(p: Probe) {
    let bytes = p.finish(b"once").await;
    p.advance(TTL / 2).await;
    assert_eq!(p.complete(&bytes).await, IN_TIME);
    p.assert_left(p.found().await.1, TTL / 2);
}

async fn a_release_sent_again_counts_once(p: Probe) {
    for (remains, attempts) in [(Remains::Attempt, 3), (Remains::Request, 2)] {
        p.plant(&header(pending()), b"", RETAIN).await;
        for _ in 0..4 {
            assert_eq!(p.release(A, remains).await, RELEASED);
            assert_eq!(p.header().await.attempts, attempts);
        }
    }
}

async fn a_release_sent_again_does_not_free_the_next_claim(p: Probe) {
    p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    let next = p.take(&request_by(B)).await;
    assert_eq!(p.release(A, Remains::Request).await, SUPERSEDED);
    assert_eq!(p.header().await, next);
}

async fn a_claim_after_its_own_release_is_granted_nothing(p: Probe) {
    // As if the claim had been sent twice, and the network had delayed one until now.
    for (n, remains) in REMAINS.into_iter().enumerate() {
        let p = p.at(n);
        p.take(&request_by(A)).await;
        assert_eq!(p.release(A, remains).await, RELEASED);
        let bytes = p.peek().await.expect("a released record stays");
        for request in [request_by(A), ask_to_find_out(A), at_most(1, A)] {
            assert_eq!(
                p.claim(&request).await,
                ClaimReply::Running {
                    lease_left: Duration::ZERO
                },
                "its sender is gone"
            );
        }
        p.unchanged(&bytes, "a claim after its own release").await;
    }
}

async fn a_claim_after_its_own_release_is_no_obstacle_to_others(p: Probe) {
    p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    expect!(p.claim(&request_by(A)).await, ClaimReply::Running { .. } => ());
    let next = p.take(&request_by(B)).await;
    assert_eq!(next.attempts, 2);
    expect!(p.claim(&request_by(A)).await, ClaimReply::Running { .. } => ());
    assert_eq!(p.header().await, next);
}

async fn a_refusal_sent_again_is_the_same_refusal(p: Probe) {
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let second = p.take(&request_by(B)).await;
    for _ in 0..3 {
        superseded!(p.complete(&answer(&first, b"too late")).await);
        assert_eq!(p.release(A, Remains::Attempt).await, SUPERSEDED);
        assert_eq!(p.renew(&first).await, RenewReply::Lost);
        expect!(p.claim(&request_by(C)).await, ClaimReply::Running { .. } => ());
    }
    assert_eq!(p.header().await, second);
}

async fn reading_again_reads_the_same(p: Probe) {
    assert_eq!(p.read().await, ReadReply::Absent);
    assert_eq!(p.read().await, ReadReply::Absent);
    let bytes = p.finish(b"read me").await;
    for _ in 0..3 {
        let (record, left) = p.found().await;
        assert_eq!(record.as_bytes(), &bytes[..]);
        p.assert_left(left, TTL);
    }
}

/// Polls once, and drops: the operation may or may not be executed.
async fn drop_after_one_poll(operation: impl Future) {
    let mut operation = pin!(operation);
    poll_fn(|cx| {
        let _ = operation.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

async fn an_operation_that_was_dropped_can_be_sent_again(p: Probe) {
    for n in 0..20 {
        let p = p.at(n);
        drop_after_one_poll(p.claim(&request_by(A))).await;
        let claim = p.take(&request_by(A)).await;
        assert_eq!(claim.attempts, 1);
        drop_after_one_poll(p.renew(&claim)).await;
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
        drop_after_one_poll(p.read()).await;
        assert_eq!(p.header().await, claim);
        if n % 2 == 0 {
            drop_after_one_poll(p.release(A, Remains::Request)).await;
            assert_eq!(p.release(A, Remains::Request).await, RELEASED);
            assert_eq!(p.header().await.attempts, 0);
        } else {
            let bytes = answer(&claim, b"once");
            drop_after_one_poll(p.complete(&bytes)).await;
            assert_eq!(p.complete(&bytes).await, IN_TIME);
            p.unchanged(&bytes, "its completion, sent again").await;
        }
    }
}
