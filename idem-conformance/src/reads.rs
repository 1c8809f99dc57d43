//! Reading, and more than one client of the same store.

use super::fixture::Plant;
use super::probe::{
    A, ASKED, B, C, IN_TIME, LEASE, OUTCOMES, Probe, RELEASED, RETAIN, SUPERSEDED, TTL, answer,
    done, header, pending, request_by, request_with, states,
};
use idem_runtime::store::{
    ClaimReply, CompleteReply, Header, ReadReply, ReleaseReply, Remains, RenewReply, State,
};

cases! {
    1 reading_sees_what_was_written_before: transport,
    6 reading_shows_every_state_and_its_life,
    3 reading_changes_nothing,
    1 another_client_of_the_store_sees_the_same: transport,
    11 a_key_that_was_never_used_is_absent,
    4 who_waits_sees_the_answer,
    5 who_waits_does_not_see_a_claim_that_is_over,
    10 who_waits_is_told_what_cannot_be_read,
}

async fn reading_sees_what_was_written_before(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.header().await, claim);
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    assert_eq!(p.header().await.state, State::Released);
    let claim = p.take(&request_by(B)).await;
    assert_eq!(p.header().await, claim);
    let bytes = answer(&claim, b"x");
    expect!(p.complete(&bytes).await, CompleteReply::Stored { .. } => ());
    assert_eq!(p.found().await.0.as_bytes(), &bytes[..]);
}

async fn reading_shows_every_state_and_its_life(p: Probe) {
    for state in states() {
        for life in [RETAIN, RETAIN - LEASE, TTL, RETAIN * 3] {
            for body in [&b""[..], b"body", &[7; 9_000]] {
                let bytes = p.plant(&header(state), body, life).await;
                let (record, left) = p.found().await;
                assert_eq!(record.header, header(state));
                assert_eq!(record.as_bytes(), &bytes[..]);
                assert_eq!(record.body(), body);
                p.assert_left(left, life);
            }
        }
    }
}

async fn reading_changes_nothing(p: Probe) {
    for state in states() {
        let bytes = p.plant(&header(state), b"", RETAIN - LEASE * 2).await;
        for _ in 0..3 {
            p.found().await;
        }
        p.unchanged(&bytes, "reading").await;
        p.assert_left(p.found().await.1, RETAIN - LEASE * 2);
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
    let unasked = request_with(C, ASKED);
    expect!(p.claim(&unasked).await, ClaimReply::Done { .. } => ());
}

async fn a_key_that_was_never_used_is_absent(p: Probe) {
    p.finish(b"x").await;
    for n in 0..5 {
        let p = p.at(n);
        assert_eq!(p.read().await, ReadReply::Absent);
        assert_eq!(p.release(A, Remains::Request).await, ReleaseReply::Absent);
        assert_eq!(p.peek().await, None);
    }
    let claim: Header = header(pending());
    assert_eq!(p.at(6).renew(&claim).await, RenewReply::Reasserted);
}

async fn who_waits_sees_the_answer(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        for body in [&b""[..], b"body", &[7; 9_000]] {
            let bytes = p.plant(&header(done(outcome)), body, TTL).await;
            let (record, left) = expect!(
                p.poll().await,
                ReadReply::Found { record, left } => (record, left)
            );
            assert_eq!(record.as_bytes(), &bytes[..]);
            assert!(
                left <= RETAIN,
                "its whole life is {RETAIN:?}, and {left:?} are left"
            );
            // A local copy may expire a little sooner.
            let least = TTL.saturating_sub(p.fixture.drift() + LEASE);
            assert!(
                left >= least,
                "it is there for {least:?}, and {left:?} are left"
            );
        }
        p.advance(TTL).await;
        assert_eq!(p.poll().await, ReadReply::Absent);
    }
}

async fn who_waits_does_not_see_a_claim_that_is_over(p: Probe) {
    assert_eq!(p.poll().await, ReadReply::Absent);
    let claim = p.take(&request_by(A)).await;
    let held = |reply: ReadReply| {
        let (record, left) = expect!(reply, ReadReply::Found { record, left } => (record, left));
        assert_eq!(record.header, claim);
        record.header.lease_left(left)
    };
    p.assert_left(held(p.poll().await), LEASE);
    p.advance(LEASE / 2).await;
    assert!(!held(p.poll().await).is_zero());
    p.advance(LEASE).await;
    assert!(held(p.poll().await).is_zero(), "its lease is over");
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    let record = expect!(p.poll().await, ReadReply::Found { record, .. } => record);
    assert_eq!(record.header.state, State::Released);
}

async fn who_waits_is_told_what_cannot_be_read(p: Probe) {
    p.plant_bytes(b"another program's", RETAIN).await;
    expect!(p.poll().await, ReadReply::Unreadable(_) => ());
    let p = p.at(1);
    if p.fixture.plant(&p.key, Plant::OtherType).await {
        expect!(p.poll().await, ReadReply::Unreadable(_) => ());
    }
}
