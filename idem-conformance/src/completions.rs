//! Completions in every state, for either owner.

use super::probe::{
    A, B, IN_TIME, LEASE, MS, NO_RECORDS, OUTCOMES, Probe, REMAINS, RETAIN, SCHEMA, SUPERSEDED,
    TTL, answer, by, counted, done, fenced, finished, finished_by, header, kept_for, pending,
    record, request_by,
};
use idem_runtime::store::{CompleteReply, Fence, OutcomeKind, Record, State};

cases! {
    2 the_owner_of_a_live_claim_completes: transport,
    2 the_owner_of_a_lapsed_claim_completes_if_nobody_took_it,
    2 another_owner_does_not_complete_a_live_claim,
    2 a_completion_says_what_is_left_of_the_lease_that_stands_in_its_way,
    4 a_completion_of_a_done_key_is_given_the_answer_that_counts,
    4 what_is_done_can_be_neither_released_nor_renewed,
    6 an_answer_is_kept_for_what_its_record_says,
    8 an_answer_keeps_the_attempts_that_were_counted,
    7 an_answer_keeps_the_higher_fence,
    10 a_completion_that_is_no_record_is_refused: transport,
    4 each_outcome_and_schema_is_given_back_as_it_was_stored,
}

async fn the_owner_of_a_live_claim_completes(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    let bytes = answer(&claim, b"paid");
    assert_eq!(p.complete(&bytes).await, IN_TIME);
    let (record, left) = p.found().await;
    assert_eq!(record.as_bytes(), &bytes[..]);
    p.assert_left(left, TTL);
    let replayed = replayed!(p.claim(&request_by(B)).await).0;
    assert_eq!(replayed, record, "the next caller is given the answer");
}

async fn the_owner_of_a_lapsed_claim_completes_if_nobody_took_it(p: Probe) {
    for age in [LEASE, LEASE + MS, LEASE * 30] {
        p.plant(&header(pending()), b"", RETAIN - age).await;
        let bytes = record(&finished_by(A), b"late but first");
        assert_eq!(p.complete(&bytes).await, IN_TIME);
        p.unchanged(&bytes, "storing it").await;
    }
}

async fn another_owner_does_not_complete_a_live_claim(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    let before = p.peek().await.expect("the claim is there");
    for outcome in OUTCOMES {
        let theirs = with!(finished(&claim), owner: B, state: done(outcome), fence: Fence::new(claim.fence.get() + 1));
        superseded!(p.complete(&record(&theirs, b"not ours")).await);
    }
    p.unchanged(&before, "a completion by another owner").await;
    p.assert_left(p.found().await.1, RETAIN);
    assert_eq!(p.complete(&answer(&claim, b"ours")).await, IN_TIME);
}

async fn a_completion_says_what_is_left_of_the_lease_that_stands_in_its_way(p: Probe) {
    for age in [0, 1, 30] {
        let age = LEASE / 60 * age;
        p.plant(&header(pending()), b"", RETAIN - age).await;
        let left = superseded!(p.complete(&record(&finished_by(B), b"")).await);
        p.assert_left(left, LEASE - age);
    }
}

async fn a_completion_of_a_done_key_is_given_the_answer_that_counts(p: Probe) {
    // A success over an unknown outcome is another matter: see `unknown`.
    for outcome in OUTCOMES.into_iter().filter(|o| *o != OutcomeKind::Unknown) {
        let first = p.plant(&header(done(outcome)), b"first", RETAIN / 2).await;
        let (adopted, left) = adopted!(p.complete(&record(&finished_by(B), b"second")).await);
        assert_eq!(adopted.as_bytes(), &first[..]);
        p.assert_left(left, RETAIN / 2);
        p.unchanged(&first, "a second completion").await;
        p.assert_left(p.found().await.1, RETAIN / 2);
    }
}

async fn what_is_done_can_be_neither_released_nor_renewed(p: Probe) {
    use idem_runtime::store::RenewReply;
    let claim = p.take(&request_by(A)).await;
    let bytes = answer(&claim, b"final");
    assert_eq!(p.complete(&bytes).await, IN_TIME);
    for owner in [A, B] {
        for remains in REMAINS {
            assert_eq!(p.release(owner, remains).await, SUPERSEDED);
        }
        assert_eq!(p.renew(&by(owner, claim)).await, RenewReply::Lost);
    }
    p.unchanged(&bytes, "release and renewal").await;
    p.assert_left(p.found().await.1, TTL);
}

async fn an_answer_is_kept_for_what_its_record_says(p: Probe) {
    for (n, retain) in [TTL, RETAIN * 2, LEASE, RETAIN].into_iter().enumerate() {
        let p = p.at(n);
        let claim = p.take(&request_by(A)).await;
        let done = kept_for(retain, finished(&claim));
        assert_eq!(p.complete(&record(&done, b"x")).await, IN_TIME);
        let (stored, left) = p.found().await;
        assert_eq!(stored.header, done);
        p.assert_left(left, retain);
    }
}

async fn an_answer_keeps_the_attempts_that_were_counted(p: Probe) {
    for state in [pending(), State::Released] {
        p.plant(&header(state), b"", RETAIN - LEASE).await;
        let told_otherwise = counted(1, finished_by(A));
        let bytes = record(&told_otherwise, b"x");
        assert_eq!(p.complete(&bytes).await, IN_TIME);
        let (stored, _) = p.found().await;
        assert_eq!(stored.header.attempts, header(state).attempts);
        assert_eq!(stored.body(), b"x");
    }
}

async fn an_answer_keeps_the_higher_fence(p: Probe) {
    let kept = header(pending()).fence;
    for (given, expected) in [(1, kept.get()), (kept.get() + 9, kept.get() + 9)] {
        p.plant(&header(pending()), b"", RETAIN).await;
        let done = fenced(Fence::new(given), finished_by(A));
        assert_eq!(p.complete(&record(&done, b"x")).await, IN_TIME);
        assert_eq!(p.header().await.fence.get(), expected);
    }
}

async fn a_completion_that_is_no_record_is_refused(p: Probe) {
    p.take(&request_by(A)).await;
    let before = p.peek().await.expect("the claim is there");
    for (bytes, error) in NO_RECORDS {
        let bytes = bytes::Bytes::from_static(bytes);
        assert_eq!(p.complete(&bytes).await, CompleteReply::Unreadable(error));
    }
    p.unchanged(&before, "what is no record").await;
}

async fn each_outcome_and_schema_is_given_back_as_it_was_stored(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        for (m, schema) in [0, 1, SCHEMA, u32::MAX].into_iter().enumerate() {
            let p = p.at(n * 10 + m);
            let claim = p.take(&request_by(A)).await;
            let done = with!(finished(&claim), state: State::Done { outcome, schema });
            let bytes = record(&done, b"");
            assert_eq!(p.complete(&bytes).await, IN_TIME);
            let replayed = replayed!(p.claim(&request_by(B)).await).0;
            let expected = Record::decode(bytes).expect("it was encoded here");
            assert_eq!(replayed, expected);
        }
    }
}
