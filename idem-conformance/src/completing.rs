//! The header of the ending claim, passed to a completion, saves work and changes no result.

use super::probe::{
    A, B, IN_TIME, LATE, LEASE, OUTCOMES, Probe, RELEASED, RETAIN, SCHEMA, TTL, answer, counted,
    ended, fenced, fingerprinted, header, kept_for, pending, record, request_by,
};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{ClaimReply, Fence, ReadReply, Remains, RenewReply, State};

cases! {
    2 a_completion_that_says_nothing_of_its_claim_is_stored,
    2 a_completion_whose_claim_is_not_as_it_says_is_stored,
    2 what_is_said_of_a_claim_does_not_bring_it_back,
    4 what_is_said_of_a_claim_does_not_replace_an_answer,
    3 a_completion_is_repeated_with_and_without_a_word_of_its_claim,
    6 an_answer_whose_claim_is_known_is_kept_for_what_its_record_says,
    2 a_renewed_claim_is_completed_as_it_was_granted,
}

async fn a_completion_that_says_nothing_of_its_claim_is_stored(p: Probe) {
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        let claim = p.take(&request_by(A)).await;
        let end = ended(&claim, outcome);
        let bytes = record(&end, b"unsaid");
        assert_eq!(p.complete_unsaid(&bytes).await, IN_TIME, "{outcome:?}");
        p.unchanged(&bytes, "storing it").await;
        p.assert_left(p.found().await.1, TTL);
    }
    let p = p.at(9);
    let bytes = answer(&header(pending()), b"unsaid");
    assert_eq!(p.read().await, ReadReply::Absent);
    assert_eq!(p.complete_unsaid(&bytes).await, LATE);
    p.unchanged(&bytes, "storing it").await;
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

async fn what_is_said_of_a_claim_does_not_bring_it_back(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let theirs = p.take(&request_by(B)).await;
    let bytes = answer(&claim, b"overtaken");
    superseded!(p.complete_claim(&claim, &bytes).await);
    assert_eq!(p.header().await, theirs, "the later attempt is not touched");
    assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
    assert_eq!(p.complete_claim(&claim, &bytes).await, LATE);
    assert_eq!(p.found().await.0.body(), b"overtaken");

    let p = p.at(1);
    let claim = p.take(&request_by(A)).await;
    p.advance(RETAIN).await;
    let bytes = answer(&claim, b"forgotten");
    assert_eq!(p.complete_claim(&claim, &bytes).await, LATE);
}

async fn what_is_said_of_a_claim_does_not_replace_an_answer(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let theirs = p.take(&request_by(B)).await;
    let first = answer(&theirs, b"first");
    assert_eq!(p.complete_claim(&theirs, &first).await, IN_TIME);
    for said in [&claim, &theirs] {
        let record = adopted!(p.complete_claim(said, &answer(&claim, b"second")).await).0;
        assert_eq!(record.as_bytes(), &first[..]);
    }
    p.unchanged(&first, "another completion").await;
}

async fn a_completion_is_repeated_with_and_without_a_word_of_its_claim(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    let bytes = answer(&claim, b"paid");
    assert_eq!(p.complete_claim(&claim, &bytes).await, IN_TIME);
    p.advance(TTL / 2).await;
    assert_eq!(p.complete_claim(&claim, &bytes).await, IN_TIME);
    assert_eq!(p.complete_unsaid(&bytes).await, IN_TIME);
    p.unchanged(&bytes, "sending it again").await;
    p.assert_left(p.found().await.1, TTL / 2);
}

async fn an_answer_whose_claim_is_known_is_kept_for_what_its_record_says(p: Probe) {
    for (n, life) in [LEASE, TTL, RETAIN, RETAIN * 2].into_iter().enumerate() {
        for (m, bytes) in [0, 200, 20_000].into_iter().enumerate() {
            let p = p.at(10 * n + m);
            let claim = p.take(&request_by(A)).await;
            p.advance(LEASE / 2).await;
            let end = with!(claim, retain: life, state: State::Done {
                outcome: idem_runtime::store::OutcomeKind::Value,
                schema: SCHEMA,
            });
            let bytes = record(&end, &vec![b'x'; bytes]);
            assert_eq!(p.complete_claim(&claim, &bytes).await, IN_TIME);
            p.unchanged(&bytes, "storing it").await;
            p.assert_left(p.found().await.1, life);
        }
    }
}

async fn a_renewed_claim_is_completed_as_it_was_granted(p: Probe) {
    let claim = p.take(&request_by(A)).await;
    for _ in 0..3 {
        p.advance(LEASE / 2).await;
        assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    }
    let bytes = answer(&claim, b"paid");
    assert_eq!(p.complete_claim(&claim, &bytes).await, IN_TIME);
    expect!(p.claim(&request_by(B)).await, ClaimReply::Done { .. } => ());
    p.assert_left(p.found().await.1, TTL);
}
