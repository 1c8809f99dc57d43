//! Late answers: stored if no other owner runs, refused if one does.

use std::time::Duration;

use super::probe::{
    A, ASKED, B, C, IN_TIME, LATE, LEASE, MS, OTHER, OUTCOMES, Probe, RELEASED, REMAINS, RETAIN,
    SUPERSEDED, TTL, answer, at_most, by, dated, done, ended, finished, header, pending, record,
    request_by, request_with,
};
use idem_runtime::store::{
    ClaimReply, CompleteReply, Header, OutcomeKind, ReadReply, Remains, RenewReply,
};

cases! {
    2 an_answer_whose_record_expired_is_stored,
    2 an_answer_whose_record_never_was_is_stored,
    2 an_answer_is_refused_while_a_later_attempt_runs,
    2 an_answer_is_stored_when_the_later_attempt_gave_up,
    2 an_answer_is_stored_when_the_later_attempt_lapsed,
    2 an_error_is_not_stored_while_the_later_attempt_may_succeed,
    2 a_later_attempt_that_renews_keeps_the_answer_out,
    4 an_answer_after_the_later_attempts_answer_is_not_stored,
    2 a_later_attempt_that_was_overtaken_by_the_answer_has_lost,
    4 a_later_attempt_is_given_the_answer_that_overtook_it,
    7 a_late_answer_keeps_the_fence_of_the_later_attempt,
    8 a_late_answer_keeps_the_attempts_that_were_counted,
    8 a_late_answer_heals_a_key_without_attempts,
    9 a_late_answer_to_another_request_is_refused,
    4 a_late_answer_is_final,
}

/// A claims, lapses, and B claims.
async fn overtaken(p: &Probe) -> (Header, Header) {
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    (first, p.take(&request_by(B)).await)
}

async fn an_answer_whose_record_expired_is_stored(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(RETAIN).await;
    assert_eq!(p.read().await, ReadReply::Absent);
    let bytes = answer(&claim, b"still the truth");
    assert_eq!(p.complete(&bytes).await, LATE);
    let (stored, left) = p.found().await;
    assert_eq!(stored.as_bytes(), &bytes[..]);
    p.assert_left(left, TTL);
}

async fn an_answer_whose_record_never_was_is_stored(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        let bytes = record(&header(done(outcome)), b"from elsewhere");
        assert_eq!(p.complete(&bytes).await, LATE);
        p.unchanged(&bytes, "storing it").await;
        let (found, left) = replayed!(p.claim(&dated(&request_by(B))).await);
        assert_eq!(found.as_bytes(), &bytes[..]);
        p.assert_left(left, RETAIN);
    }
}

async fn an_answer_is_refused_while_a_later_attempt_runs(p: Probe) {
    let (first, second) = overtaken(&p).await;
    let left = superseded!(p.complete(&answer(&first, b"overtaken")).await);
    p.assert_left(left, LEASE);
    assert_eq!(p.header().await, second, "the later attempt is not touched");
}

async fn an_answer_is_stored_when_the_later_attempt_gave_up(p: Probe) {
    for (n, remains) in REMAINS.into_iter().enumerate() {
        let p = p.at(n);
        let (first, _) = overtaken(&p).await;
        assert_eq!(p.release(B, remains).await, RELEASED);
        assert_eq!(p.complete(&answer(&first, b"first")).await, LATE);
        assert_eq!(p.found().await.0.body(), b"first");
    }
}

async fn an_answer_is_stored_when_the_later_attempt_lapsed(p: Probe) {
    for (n, age) in [LEASE, LEASE + MS, LEASE * 9].into_iter().enumerate() {
        let p = p.at(n);
        let (first, _) = overtaken(&p).await;
        p.advance(age).await;
        assert_eq!(p.complete(&answer(&first, b"first")).await, LATE);
        let (stored, left) = p.found().await;
        assert_eq!((stored.header.owner, stored.body()), (A, &b"first"[..]));
        p.assert_left(left, TTL);
    }
}

async fn an_error_is_not_stored_while_the_later_attempt_may_succeed(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        let (first, second) = overtaken(&p).await;
        p.advance(LEASE).await;
        let end = ended(&first, outcome);
        let bytes = record(&end, b"");
        if matches!(outcome, OutcomeKind::Value | OutcomeKind::Tombstone) {
            assert_eq!(p.complete(&bytes).await, LATE, "{outcome:?}");
            continue;
        }
        assert_eq!(
            p.complete(&bytes).await,
            CompleteReply::Superseded {
                lease_left: Duration::ZERO
            },
            "{outcome:?}"
        );
        assert_eq!(p.header().await, second, "the later attempt is not touched");
        assert_eq!(p.complete(&answer(&second, b"second")).await, IN_TIME);
    }
}

async fn a_later_attempt_that_renews_keeps_the_answer_out(p: Probe) {
    let (first, second) = overtaken(&p).await;
    for _ in 0..3 {
        p.advance(LEASE * 2).await;
        assert_eq!(p.renew(&second).await, RenewReply::Renewed);
        superseded!(p.complete(&answer(&first, b"overtaken")).await);
    }
    assert_eq!(p.complete(&answer(&second, b"second")).await, IN_TIME);
}

async fn an_answer_after_the_later_attempts_answer_is_not_stored(p: Probe) {
    let (first, second) = overtaken(&p).await;
    let counts = answer(&second, b"counts");
    assert_eq!(p.complete(&counts).await, IN_TIME);
    p.advance(TTL / 2).await;
    let (adopted, left) = adopted!(p.complete(&answer(&first, b"does not")).await);
    assert_eq!(adopted.as_bytes(), &counts[..]);
    p.assert_left(left, TTL / 2);
    p.unchanged(&counts, "the first attempt's answer").await;
}

async fn a_later_attempt_that_was_overtaken_by_the_answer_has_lost(p: Probe) {
    let (first, second) = overtaken(&p).await;
    p.advance(LEASE).await;
    let bytes = answer(&first, b"first");
    assert_eq!(p.complete(&bytes).await, LATE);
    assert_eq!(p.renew(&second).await, RenewReply::Lost);
    assert_eq!(p.release(B, Remains::Attempt).await, SUPERSEDED);
    assert_eq!(p.found().await.0.body(), b"first");
}

async fn a_later_attempt_is_given_the_answer_that_overtook_it(p: Probe) {
    let (first, second) = overtaken(&p).await;
    p.advance(LEASE).await;
    assert_eq!(p.complete(&answer(&first, b"first")).await, LATE);
    let adopted = adopted!(p.complete(&answer(&second, b"second")).await).0;
    assert_eq!(adopted.body(), b"first");
    // Its claim, sent again afterwards, receives the answer as well.
    let found = replayed!(p.claim(&request_by(B)).await).0;
    assert_eq!(found, adopted);
}

async fn a_late_answer_keeps_the_fence_of_the_later_attempt(p: Probe) {
    let (first, second) = overtaken(&p).await;
    assert!(second.fence > first.fence);
    assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
    assert_eq!(p.complete(&answer(&first, b"x")).await, LATE);
    assert_eq!(p.header().await.fence, second.fence);
}

async fn a_late_answer_keeps_the_attempts_that_were_counted(p: Probe) {
    for (n, (remains, expected)) in [
        (Remains::Attempt, 2),
        (Remains::Request, 1),
        (Remains::Nothing, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let p = p.at(n);
        let (first, second) = overtaken(&p).await;
        assert_eq!((first.attempts, second.attempts), (1, 2));
        assert_eq!(p.release(B, remains).await, RELEASED);
        assert_eq!(p.complete(&answer(&first, b"x")).await, LATE);
        assert_eq!(p.header().await.attempts, expected);
    }
}

async fn a_late_answer_heals_a_key_without_attempts(p: Probe) {
    let only = |owner| at_most(2, owner);
    let first = p.take(&only(A)).await;
    p.advance(LEASE).await;
    p.take(&only(B)).await;
    p.advance(LEASE).await;
    expect!(p.claim(&only(C)).await, ClaimReply::Exhausted { attempts: 2 } => ());
    assert_eq!(p.complete(&answer(&first, b"healed")).await, LATE);
    let found = replayed!(p.claim(&only(C)).await).0;
    assert_eq!(found.body(), b"healed");
}

async fn a_late_answer_to_another_request_is_refused(p: Probe) {
    let first = p.take(&request_by(A)).await;
    p.advance(RETAIN).await;
    let other = request_with(B, OTHER);
    p.take(&other).await;
    let claimed = p.peek().await.expect("the claim is there");
    let late = answer(&first, b"asked before");
    assert_eq!(first.fingerprint, ASKED);
    assert_eq!(p.complete(&late).await, CompleteReply::Mismatch);
    p.unchanged(&claimed, "an answer to another request").await;
    p.advance(LEASE).await;
    assert_eq!(p.complete(&late).await, CompleteReply::Mismatch);
    assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
    assert_eq!(p.complete(&late).await, CompleteReply::Mismatch);
}

async fn a_late_answer_is_final(p: Probe) {
    let bytes = record(&finished(&header(done(OUTCOMES[0]))), b"late");
    assert_eq!(p.complete(&bytes).await, LATE);
    let claim = by(B, header(pending()));
    adopted!(p.complete(&answer(&claim, b"later")).await);
    assert_eq!(p.renew(&claim).await, RenewReply::Lost);
    p.unchanged(&bytes, "later operations").await;
}
