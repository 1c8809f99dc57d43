//! Completions over an unknown outcome: a success resolves it.

use super::probe::{
    A, ASKED, B, C, IN_TIME, LATE, NONE, OTHER, OUTCOMES, Probe, RETAIN, SUPERSEDED, TTL,
    ask_to_find_out, done, finished, finished_by, header, pending, record, request_by, undecided,
    unknown_outcome,
};
use idem_runtime::store::{CompleteReply, Fence, OutcomeKind, Remains};

cases! {
    4 a_success_takes_the_place_of_an_unknown_outcome,
    4 an_unknown_outcome_is_replaced_by_nothing_but_a_success,
    4 a_success_over_an_unknown_outcome_is_final,
    9 a_success_to_another_request_does_not_replace_an_unknown_outcome,
    3 a_success_over_an_unknown_outcome_sent_again_is_stored_once,
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

async fn an_unknown_outcome_is_replaced_by_nothing_but_a_success(p: Probe) {
    for state in [done(OutcomeKind::Unknown), undecided()] {
        let bytes = p.plant(&header(state), b"", RETAIN / 2).await;
        for outcome in OUTCOMES.into_iter().filter(|o| !is_success(*o)) {
            let end =
                |owner| with!(finished(&header(pending())), state: done(outcome), owner: owner);
            let (adopted, left) = adopted!(p.complete(&record(&end(B), b"")).await);
            assert_eq!(adopted.as_bytes(), &bytes[..]);
            p.assert_left(left, RETAIN / 2);
            assert_eq!(p.complete(&record(&end(A), b"")).await, IN_TIME);
        }
        p.unchanged(&bytes, "what is no success").await;
        p.assert_left(p.found().await.1, RETAIN / 2);
    }
}

async fn a_success_over_an_unknown_outcome_is_final(p: Probe) {
    p.plant(&header(undecided()), b"", RETAIN).await;
    let of = |owner| finished_by(owner);
    let bytes = record(&of(B), b"it happened");
    assert_eq!(p.complete(&bytes).await, LATE);
    for request in [request_by(C), ask_to_find_out(C)] {
        let found = replayed!(p.claim(&request).await).0;
        assert_eq!(found.body(), b"it happened");
    }
    adopted!(p.complete(&record(&of(C), b"later")).await);
    assert_eq!(p.release(A, Remains::Attempt).await, SUPERSEDED);
    assert_eq!(p.found().await.0.body(), b"it happened");
}

async fn a_success_to_another_request_does_not_replace_an_unknown_outcome(p: Probe) {
    let bytes = p.plant(&header(undecided()), b"", RETAIN).await;
    let of = |fingerprint| with!(finished(&header(pending())), owner: B, fingerprint: fingerprint);
    let other = record(&of(OTHER), b"to another");
    assert_eq!(p.complete(&other).await, CompleteReply::Mismatch);
    p.unchanged(&bytes, "an answer to another request").await;
    assert_eq!(p.complete(&record(&of(NONE), b"x")).await, LATE);
    assert_eq!(p.header().await.fingerprint, ASKED);
}

async fn a_success_over_an_unknown_outcome_sent_again_is_stored_once(p: Probe) {
    p.plant(&header(undecided()), b"", RETAIN).await;
    let end = finished_by(B);
    let bytes = record(&end, b"once");
    assert_eq!(p.complete(&bytes).await, LATE);
    p.advance(TTL / 2).await;
    for _ in 0..3 {
        expect!(p.complete(&bytes).await, CompleteReply::Stored { .. } => ());
        p.unchanged(&bytes, "its completion, sent again").await;
        p.assert_left(p.found().await.1, TTL / 2);
    }
}
