//! Completions, and reconciliations of what was not completed.

use super::probe::{
    A, B, C, IN_TIME, LATE, LEASE, NO_RECORDS, OUTCOMES, Probe, RETAIN, TTL, answer,
    ask_to_find_out, counted, done, ended, fenced, fingerprinted, finished, header, kept_for,
    pending, record, request_by, undecided, unknown_outcome, unknowns,
};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{ClaimReply, CompleteReply, Fence, Header, OutcomeKind, State};
use std::time::Duration;

cases! {
    2 the_owner_of_a_live_claim_completes: transport,
    10 a_completion_that_is_no_record_is_refused: transport,
    2 a_completion_whose_claim_is_not_as_it_says_is_stored,
    2 an_error_is_not_stored_while_the_later_attempt_may_succeed,
    4 a_success_takes_the_place_of_an_unknown_outcome,
    13 a_lapsed_reconciliation_is_unknown,
    13 who_can_find_out_is_asked_to_where_the_outcome_is_unknown,
    2 a_success_is_stored_where_who_was_to_find_out_vanished,
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

async fn a_completion_that_is_no_record_is_refused(p: Probe) {
    p.take(&request_by(A)).await;
    let before = p.peek().await.expect("the claim is there");
    for (bytes, error) in NO_RECORDS {
        let bytes = bytes::Bytes::from_static(bytes);
        assert_eq!(p.complete(&bytes).await, CompleteReply::Unreadable(error));
    }
    p.unchanged(&before, "what is no record").await;
}

async fn a_completion_whose_claim_is_not_as_it_says_is_stored(p: Probe) {
    let granted = header(pending());
    let said = [
        with!(granted, state: State::Pending { lease: LEASE / 2 }),
        with!(granted, state: State::Reconciling { lease: LEASE }),
        kept_for(RETAIN / 2, granted),
        fenced(Fence::new(granted.fence.get() + 1), granted),
        counted(granted.attempts + 1, granted),
        fingerprinted(Fingerprint::NONE, granted),
    ];
    for (n, said) in said.iter().enumerate() {
        let p = p.at(n);
        p.plant(&granted, b"", RETAIN).await;
        let bytes = answer(&granted, b"paid");
        assert_eq!(p.complete_claim(said, &bytes).await, IN_TIME, "{said:?}");
        p.unchanged(&bytes, "storing it").await;
    }
}

/// A claims, lapses, and B claims.
async fn overtaken(p: &Probe) -> (Header, Header) {
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    (first, p.take(&request_by(B)).await)
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

fn is_success(outcome: OutcomeKind) -> bool {
    matches!(outcome, OutcomeKind::Value | OutcomeKind::Tombstone)
}

async fn a_success_takes_the_place_of_an_unknown_outcome(p: Probe) {
    let unknown = header(unknown_outcome());
    for state in [unknown.state, undecided()] {
        for outcome in OUTCOMES.into_iter().filter(|o| is_success(*o)) {
            for (owner, reply) in [(A, IN_TIME), (B, LATE)] {
                for (fence, higher) in [(1, unknown.fence.get()), (u64::MAX >> 12, u64::MAX >> 12)]
                {
                    p.plant(&header(state), b"", RETAIN / 2).await;
                    let end = with!(finished(&unknown), state: done(outcome), owner: owner, fence: Fence::new(fence), attempts: 1);
                    assert_eq!(p.complete(&record(&end, b"it happened")).await, reply);
                    let (stored, left) = p.found().await;
                    let expected =
                        with!(end, fence: Fence::new(higher), attempts: unknown.attempts);
                    assert_eq!(stored.header, expected);
                    assert_eq!(stored.body(), b"it happened");
                    p.assert_left(left, TTL);
                }
            }
        }
    }
}

async fn looked_into(p: &Probe, state: State, life: Duration) {
    let before = header(state);
    p.plant(&before, b"", life).await;
    let request = with!(ask_to_find_out(B), lease: LEASE * 2, retain: RETAIN * 2);
    let claim = p.look_into(&request).await;
    assert_eq!(claim.attempts, before.attempts, "of {state:?}");
    assert!(claim.fence > before.fence, "a claim has a fence of its own");
    let (record, left) = p.found().await;
    assert_eq!(record.header, claim);
    assert!(record.body().is_empty());
    p.assert_left(left, RETAIN * 2);
}

async fn who_can_find_out_is_asked_to_where_the_outcome_is_unknown(p: Probe) {
    for (state, life) in unknowns() {
        looked_into(&p, state, life).await;
    }
    let unknown = header(unknown_outcome());
    p.plant(&counted(0, unknown), b"", RETAIN).await;
    assert_eq!(p.look_into(&ask_to_find_out(B)).await.attempts, 0);
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

async fn a_lapsed_reconciliation_is_unknown(p: Probe) {
    p.plant(&header(unknown_outcome()), b"", RETAIN).await;
    let vanished = p.look_into(&ask_to_find_out(C)).await;
    p.advance(LEASE).await;
    let record = replayed!(p.claim(&request_by(A)).await).0;
    assert_eq!(record.header, vanished);
    let next = p.look_into(&ask_to_find_out(B)).await;
    assert!(next.fence > vanished.fence);
    expect!(p.claim(&request_by(C)).await, ClaimReply::Running { .. } => ());
    p.advance(LEASE).await;
    let record = replayed!(p.claim(&request_by(A)).await).0;
    assert_eq!(record.header, next);
}
