//! Fingerprints: kept and compared in every state, removed by a release, and the behaviour of `NONE`.

use super::probe::{
    A, ASKED, B, C, IN_TIME, LEASE, NONE, OTHER, OUTCOMES, Probe, RELEASED, RETAIN, SUPERSEDED,
    answer, counted, done, fingerprinted, finished, header, pending, reconciling, record,
    request_by, request_with,
};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Owner, Remains, RenewReply, State,
};

cases! {
    9 another_request_is_a_mismatch_in_every_state,
    9 the_owner_of_a_claim_may_not_ask_for_something_else,
    9 fingerprints_are_compared_to_the_last_byte,
    9 an_answer_to_another_request_is_refused_in_every_state,
    9 a_fingerprint_outlives_the_claim_that_brought_it,
    9 a_claim_without_a_fingerprint_goes_with_every_record,
    9 a_claim_without_a_fingerprint_does_not_forget_the_records,
    9 a_record_without_a_fingerprint_learns_the_first_that_comes,
    9 an_answer_without_a_fingerprint_does_not_forget_the_records,
    9 an_answer_brings_its_fingerprint_to_a_record_without,
    9 a_fingerprint_is_free_again_with_its_record,
    9 a_release_of_which_nothing_remains_takes_the_fingerprint_off,
    9 a_release_of_which_something_remains_keeps_the_fingerprint,
    9 the_fingerprint_of_another_attempt_that_counts_stays,
    9 a_release_sent_again_takes_no_fingerprint_of_another_claim,
    9 a_reconciliation_given_back_keeps_the_fingerprint,
    9 a_claim_says_whether_it_brought_the_fingerprint,
    9 a_fingerprint_that_was_taken_off_may_be_brought_again,
}

/// Every state and its life: live and lapsed, of a body or of a reconcile hook; released, and done with every outcome.
fn states() -> impl Iterator<Item = (State, std::time::Duration)> {
    let done = OUTCOMES.map(|outcome| (done(outcome), RETAIN));
    let others = [
        (reconciling(), RETAIN),
        (reconciling(), RETAIN - LEASE),
        (pending(), RETAIN),
        (pending(), RETAIN - LEASE),
        (State::Released, RETAIN),
    ];
    others.into_iter().chain(done)
}

async fn another_request_is_a_mismatch_in_every_state(p: Probe) {
    for (state, life) in states() {
        let bytes = p.plant(&header(state), b"", life).await;
        for owner in [A, B] {
            assert_eq!(
                p.claim(&request_with(owner, OTHER)).await,
                ClaimReply::Mismatch,
                "{state:?} with {life:?} to live"
            );
        }
        p.unchanged(&bytes, "another request").await;
        p.assert_left(p.found().await.1, life);
    }
}

async fn the_owner_of_a_claim_may_not_ask_for_something_else(p: Probe) {
    p.take(&request_by(A)).await;
    assert_eq!(p.claim(&request_with(A, OTHER)).await, ClaimReply::Mismatch);
    assert_eq!(p.header().await.fingerprint, ASKED);
}

async fn fingerprints_are_compared_to_the_last_byte(p: Probe) {
    let near = [0, 8, 15].map(|at| {
        let mut bytes = *ASKED.as_bytes();
        bytes[at] ^= 1;
        Fingerprint::from_bytes(bytes)
    });
    let nearly_none = [0, 15].map(|at| {
        let mut bytes = [0; 16];
        bytes[at] = 1;
        Fingerprint::from_bytes(bytes)
    });
    p.take(&request_by(A)).await;
    for other in near.into_iter().chain(nearly_none) {
        assert_eq!(p.claim(&request_with(B, other)).await, ClaimReply::Mismatch);
    }
    let p = p.at(1);
    p.take(&request_with(A, nearly_none[1])).await;
    assert_eq!(
        p.claim(&request_with(B, nearly_none[0])).await,
        ClaimReply::Mismatch
    );
    expect!(p.claim(&request_with(B, nearly_none[1])).await, ClaimReply::Running { .. } => ());
}

async fn an_answer_to_another_request_is_refused_in_every_state(p: Probe) {
    for (state, life) in states() {
        let bytes = p.plant(&header(state), b"", life).await;
        for owner in [A, B] {
            let answer = with!(finished(&header(pending())), owner: owner, fingerprint: OTHER);
            assert_eq!(
                p.complete(&record(&answer, b"to what?")).await,
                CompleteReply::Mismatch,
                "{state:?} with {life:?} to live"
            );
        }
        p.unchanged(&bytes, "an answer to another request").await;
    }
}

async fn a_fingerprint_outlives_the_claim_that_brought_it(p: Probe) {
    let check = async |state: &str| {
        assert_eq!(
            p.claim(&request_with(B, OTHER)).await,
            ClaimReply::Mismatch,
            "{state}"
        );
        assert_eq!(p.header().await.fingerprint, ASKED, "{state}");
    };
    let claim = p.take(&request_by(A)).await;
    check("claimed").await;
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    check("renewed").await;
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    check("released").await;
    p.take(&request_by(B)).await;
    check("claimed again").await;
    p.advance(LEASE).await;
    check("lapsed").await;
    let claim = p.take(&request_by(A)).await;
    check("taken over").await;
    let answer = answer(&claim, b"x");
    expect!(p.complete(&answer).await, CompleteReply::Stored { .. } => ());
    check("done").await;
}

async fn a_claim_without_a_fingerprint_goes_with_every_record(p: Probe) {
    p.take(&request_by(A)).await;
    expect!(p.claim(&request_with(B, NONE)).await, ClaimReply::Running { .. } => ());
    let p = p.at(1);
    p.finish(b"x").await;
    expect!(p.claim(&request_with(B, NONE)).await, ClaimReply::Done { .. } => ());
    let p = p.at(2);
    p.plant(&header(State::Released), b"", RETAIN).await;
    expect!(p.claim(&request_with(B, NONE)).await, ClaimReply::Granted { .. } => ());
}

async fn a_claim_without_a_fingerprint_does_not_forget_the_records(p: Probe) {
    for (state, life) in [(State::Released, RETAIN), (pending(), RETAIN - LEASE)] {
        p.plant(&header(state), b"", life).await;
        p.take(&request_with(B, NONE)).await;
        assert_eq!(p.header().await.fingerprint, ASKED);
        assert_eq!(p.claim(&request_with(A, OTHER)).await, ClaimReply::Mismatch);
    }
}

async fn a_record_without_a_fingerprint_learns_the_first_that_comes(p: Probe) {
    p.take(&request_with(A, NONE)).await;
    expect!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Running { .. } => ());
    assert_eq!(
        p.header().await.fingerprint,
        NONE,
        "a claim that is refused leaves nothing behind"
    );
    p.advance(LEASE).await;
    p.take(&request_with(B, OTHER)).await;
    assert_eq!(p.header().await.fingerprint, OTHER);
    assert_eq!(p.claim(&request_with(A, ASKED)).await, ClaimReply::Mismatch);
}

async fn an_answer_without_a_fingerprint_does_not_forget_the_records(p: Probe) {
    for (state, life) in [
        (pending(), RETAIN),
        (pending(), RETAIN - LEASE),
        (State::Released, RETAIN),
    ] {
        p.plant(&header(state), b"", life).await;
        let done = fingerprinted(NONE, finished(&header(pending())));
        assert_eq!(p.complete(&record(&done, b"the answer")).await, IN_TIME);
        let (stored, _) = p.found().await;
        assert_eq!(stored.header.fingerprint, ASKED);
        assert_eq!(stored.body(), b"the answer");
        assert_eq!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Mismatch);
    }
}

async fn an_answer_brings_its_fingerprint_to_a_record_without(p: Probe) {
    p.take(&request_with(A, NONE)).await;
    let done = fingerprinted(ASKED, finished(&p.header().await));
    assert_eq!(p.complete(&record(&done, b"x")).await, IN_TIME);
    assert_eq!(p.header().await.fingerprint, ASKED);
    assert_eq!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Mismatch);
    expect!(p.claim(&request_with(B, ASKED)).await, ClaimReply::Done { .. } => ());
}

async fn a_fingerprint_is_free_again_with_its_record(p: Probe) {
    p.take(&request_by(A)).await;
    p.advance_just_before(RETAIN).await;
    assert_eq!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Mismatch);
    p.advance_the_rest().await;
    p.take(&request_with(B, OTHER)).await;
    assert_eq!(p.header().await.fingerprint, OTHER);
}

/// Whether the claim, which must be granted, set the fingerprint of the record.
async fn brings(p: &Probe, request: &ClaimRequest) -> bool {
    expect!(p.claim(request).await, ClaimReply::Granted { fresh, .. } => fresh)
}

async fn a_release_of_which_nothing_remains_takes_the_fingerprint_off(p: Probe) {
    let first = p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
    let free = p.header().await;
    assert_eq!((free.fingerprint, free.attempts), (NONE, 0));
    assert_eq!((free.state, free.fence), (State::Released, first.fence));
    let second = p.take(&request_with(B, OTHER)).await;
    assert_eq!(second.attempts, 1);
    assert!(second.fence > first.fence);
    assert_eq!(p.header().await.fingerprint, OTHER);
    // A late completion of the first claim changes nothing.
    let bytes = p.peek().await.expect("the second claim is stored");
    assert_eq!(
        p.complete(&answer(&first, b"late")).await,
        CompleteReply::Mismatch
    );
    assert_eq!(p.claim(&request_by(A)).await, ClaimReply::Mismatch);
    assert_eq!(p.renew(&first).await, RenewReply::Lost);
    p.unchanged(&bytes, "the first attempt").await;
}

async fn a_release_of_which_something_remains_keeps_the_fingerprint(p: Probe) {
    for (n, remains) in [Remains::Request, Remains::Attempt].into_iter().enumerate() {
        let p = p.at(n);
        p.take(&request_by(A)).await;
        assert_eq!(p.release(A, remains).await, RELEASED);
        assert_eq!(p.header().await.fingerprint, ASKED);
        assert_eq!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Mismatch);
    }
}

async fn the_fingerprint_of_another_attempt_that_counts_stays(p: Probe) {
    p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    p.take(&request_by(B)).await;
    assert_eq!(p.release(B, Remains::Nothing).await, RELEASED);
    let kept = p.header().await;
    assert_eq!((kept.fingerprint, kept.attempts), (ASKED, 1));
    assert_eq!(p.claim(&request_with(C, OTHER)).await, ClaimReply::Mismatch);
    // More than fit into a byte of the counter.
    for (n, attempts) in [0x100, 0x101, u16::MAX].into_iter().enumerate() {
        let p = p.at(n);
        let many = counted(attempts, header(pending()));
        p.plant(&many, b"", RETAIN).await;
        assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
        let kept = p.header().await;
        assert_eq!((kept.fingerprint, kept.attempts), (ASKED, attempts - 1));
    }
}

async fn a_release_sent_again_takes_no_fingerprint_of_another_claim(p: Probe) {
    p.take(&request_by(A)).await;
    for _ in 0..2 {
        assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
        assert_eq!(p.header().await.fingerprint, NONE);
    }
    p.take(&request_with(B, OTHER)).await;
    let bytes = p.peek().await.expect("another has the key");
    let reply = p.release(A, Remains::Nothing).await;
    assert_eq!(reply, SUPERSEDED);
    p.unchanged(&bytes, "a release of an earlier claim").await;
}

async fn a_reconciliation_given_back_keeps_the_fingerprint(p: Probe) {
    p.plant(&header(reconciling()), b"", RETAIN).await;
    assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
    assert_eq!(p.header().await.fingerprint, ASKED);
}

async fn a_claim_says_whether_it_brought_the_fingerprint(p: Probe) {
    assert!(brings(&p, &request_by(A)).await, "there was no record");
    assert!(!brings(&p, &request_by(A)).await, "sent again");
    p.advance(LEASE).await;
    assert!(!brings(&p, &request_by(B)).await, "a lapsed claim had it");
    assert_eq!(p.release(B, Remains::Request).await, RELEASED);
    assert!(
        !brings(&p, &request_by(C)).await,
        "an earlier attempt had it"
    );
    let p = p.at(1);
    p.take(&request_with(A, NONE)).await;
    p.advance(LEASE).await;
    assert!(brings(&p, &request_by(B)).await, "the record had none");
}

async fn a_fingerprint_that_was_taken_off_may_be_brought_again(p: Probe) {
    for request in [request_by(A), request_with(B, OTHER), request_by(C)] {
        assert!(brings(&p, &request).await);
        assert_eq!(p.header().await.fingerprint, request.fingerprint);
        let released = p.release(request.owner, Remains::Nothing).await;
        assert_eq!(released, RELEASED);
    }
    p.take(&request_with(Owner::from_bytes([9; 16]), ASKED))
        .await;
    assert_eq!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Mismatch);
}
