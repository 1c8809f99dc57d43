//! Claims, releases and renewals.

use super::probe::{
    A, B, C, IN_TIME, LEASE, Probe, RELEASED, RETAIN, SUPERSEDED, answer, ask_to_find_out, at_most,
    by, dated, header, pending, request_by,
};
use idem_runtime::store::Fence;
use idem_runtime::store::author::{
    AppendReply, ClaimReply, ClaimRequest, Needs, Owner, ReadReply, Remains, RenewReply, State,
};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

cases! {
    1 the_first_claim_is_granted: transport,
    2 owners_are_compared_to_the_last_byte: transport,
    3 an_operation_that_was_dropped_can_be_sent_again: transport,
    8 a_key_without_attempts_is_granted_to_nobody,
    17 a_claim_that_needs_a_record_begins_none: transport,
    1 another_client_of_the_store_sees_the_same: transport,
}

async fn the_first_claim_is_granted(p: Probe) {
    assert_eq!(p.read().await, ReadReply::Absent, "the prefix is fresh");
    let (fence, attempt) = expect!(
        p.claim(&request_by(A)).await,
        ClaimReply::Granted { fence, attempt, .. } => (fence, attempt)
    );
    assert_eq!(attempt, 1, "attempts start at 1");
    assert!(fence > Fence::default(), "a fence is more than 0");
}

async fn owners_are_compared_to_the_last_byte(p: Probe) {
    let near = [0, 7, 15].map(|at| {
        let mut bytes = *C.as_bytes();
        bytes[at] ^= 0x80;
        Owner::from_bytes(bytes)
    });
    let claim = p.take(&request_by(C)).await;
    for owner in near {
        expect!(p.claim(&request_by(owner)).await, ClaimReply::Running { .. } => ());
    }
    let again = p.take(&request_by(C)).await;
    assert_eq!(again, claim, "the owner itself is granted");
    let keeps_journals = p.keeps_journals().await;
    for near in near.map(|owner| by(owner, claim)) {
        assert_eq!(p.renew(&near).await, RenewReply::Lost);
        if keeps_journals {
            assert_eq!(p.append(&near, b"step", 0).await, AppendReply::Lost);
        }
        let released = p.release(near.owner, Remains::Attempt).await;
        assert_eq!(released, SUPERSEDED);
    }
    assert_eq!(p.header().await, claim);
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

async fn a_key_without_attempts_is_granted_to_nobody(p: Probe) {
    // 259 and 3 have the same last byte.
    for (state, life, more) in [
        (State::Released, RETAIN, 4),
        (pending(), RETAIN - LEASE, 259),
    ] {
        p.plant(&header(state), b"", life).await;
        for max in [3, 2, 1] {
            let reply = p.claim(&at_most(max, B)).await;
            assert_eq!(reply, ClaimReply::Exhausted { attempts: 3 });
        }
        assert_eq!(p.take(&at_most(more, B)).await.attempts, 4);
    }
}

/// Claims the body, or the reconciling, only if there is a record.
fn go_on(request: &ClaimRequest) -> ClaimRequest {
    with!(request.clone(), needs: Needs::Record)
}

async fn a_claim_that_needs_a_record_begins_none(p: Probe) {
    let requests = [request_by(A), ask_to_find_out(A), dated(&request_by(A))];
    for (n, request) in requests.into_iter().enumerate() {
        let p = p.at(n);
        let expects_nothing = async || {
            expect!(p.claim(&go_on(&request)).await, ClaimReply::Absent => ());
            assert_eq!(p.peek().await, None);
        };
        expects_nothing().await;
        // Its own claim was granted, the reply was lost, and its record has expired since.
        p.plant(&header(pending()), b"", RETAIN).await;
        p.advance(RETAIN).await;
        expects_nothing().await;
        // It has left nothing behind that refuses a claim without a required record.
        p.take(&request_by(B)).await;
    }
}

async fn another_client_of_the_store_sees_the_same(p: Probe) {
    let other = p.client();
    let claim = p.take(&request_by(A)).await;
    expect!(other.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
    assert_eq!(other.renew(&claim).await, RenewReply::Renewed);
    assert_eq!(other.release(B, Remains::Attempt).await, SUPERSEDED);
    let bytes = answer(&claim, b"x");
    assert_eq!(other.complete(&bytes).await, IN_TIME);
    expect!(p.claim(&request_by(C)).await, ClaimReply::Done { .. } => ());
}
