//! The types of the answers: kept through every state, compared where a claim would be granted, removed by a release
//! and a reset.

use super::probe::{
    A, B, C, IN_TIME, LEASE, OUTCOMES, Probe, RELEASED, RETAIN, TYPES, answer, ask_to_find_out,
    counted, done, finished, finished_by, header, limit, pending, reconciling, record, request_by,
    undecided,
};
use super::resolving::{new, reset, resolved};
use idem_runtime::store::{
    AnswerTypes, ClaimReply, ClaimRequest, CompleteReply, Needs, OutcomeKind, Owner, Remains,
    RenewReply, State,
};

cases! {
    9 a_record_has_the_types_of_its_claim,
    9 the_types_outlive_the_claim_that_brought_them,
    9 a_claim_of_another_type_is_granted_nothing,
    9 a_claim_of_another_type_waits_and_is_answered_as_any,
    9 types_are_compared_to_the_last_byte_of_the_value,
    9 errors_of_another_type_are_no_reason_to_refuse,
    9 a_claim_without_types_goes_with_every_record,
    9 a_claim_without_types_does_not_forget_the_records,
    9 a_claim_that_takes_any_type_brings_its_own,
    9 a_record_without_types_learns_the_first_that_come,
    9 an_answer_brings_its_types,
    9 an_answer_without_types_does_not_forget_the_records,
    9 a_release_of_which_nothing_remains_takes_the_types_off,
    9 a_release_of_which_something_remains_keeps_the_types,
    9 a_reconciliation_given_back_keeps_the_types,
    9 a_reset_takes_the_types_off,
    9 a_resolution_has_the_types_that_it_says,
}

/// Values of another type, and errors of the same.
const OTHER_VALUE: AnswerTypes = AnswerTypes::from_bytes([0x0d, 0x0b, 0x00, 0x24]);
/// Errors of another type, and values of the same.
const OTHER_ERROR: AnswerTypes = AnswerTypes::from_bytes([0x0d, 0x0a, 0x24, 0x00]);
const UNKNOWN: AnswerTypes = AnswerTypes::UNKNOWN;

fn of(owner: Owner, types: AnswerTypes) -> ClaimRequest {
    with!(request_by(owner), types: types)
}

/// Every state in which a claim of this kind would be granted, and its remaining life.
fn free(reconciles: bool) -> Vec<(State, std::time::Duration)> {
    let mut free = vec![(pending(), RETAIN - LEASE), (State::Released, RETAIN)];
    if reconciles {
        free.extend([
            (reconciling(), RETAIN - LEASE),
            (undecided(), RETAIN),
            (done(OutcomeKind::Unknown), RETAIN),
        ]);
    }
    free
}

async fn a_record_has_the_types_of_its_claim(p: Probe) {
    for (n, dated) in [false, true].into_iter().enumerate() {
        for (m, types) in [TYPES, OTHER_VALUE, UNKNOWN].into_iter().enumerate() {
            let p = p.at(3 * n + m);
            let request = with!(of(A, types), dated: dated);
            let claim = p.take(&request).await;
            assert_eq!(p.header().await.types, types);
            // Sent again.
            p.take(&request).await;
            assert_eq!(p.header().await.types, types);
            assert_eq!(p.complete(&answer(&claim, b"x")).await, IN_TIME);
            assert_eq!(p.header().await.types, types);
        }
    }
}

async fn the_types_outlive_the_claim_that_brought_them(p: Probe) {
    let check = async |state: &str| {
        assert_eq!(p.header().await.types, TYPES, "{state}");
    };
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    check("renewed").await;
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    check("released").await;
    p.take(&request_by(B)).await;
    p.advance(LEASE).await;
    check("lapsed").await;
    let finding = p.look_into(&ask_to_find_out(C)).await;
    check("reconciled").await;
    let start = with!(request_by(C), needs: Needs::Verdict);
    let claim = p.take(&start).await;
    assert!(claim.fence > finding.fence);
    check("started").await;
    p.advance(RETAIN).await;
    assert_eq!(p.renew(&claim).await, RenewReply::Reasserted);
    check("written again").await;
    for (n, bytes) in [1, 3_000, 20_000].into_iter().enumerate() {
        let p = p.at(n);
        p.finish(&vec![b'x'; bytes]).await;
        assert_eq!(p.header().await.types, TYPES, "an answer of {bytes} bytes");
    }
}

async fn a_claim_of_another_type_is_granted_nothing(p: Probe) {
    for reconciles in [false, true] {
        for (state, life) in free(reconciles) {
            let bytes = p.plant(&header(state), b"", life).await;
            let request = with!(of(B, OTHER_VALUE), reconciles: reconciles);
            let reply = p.claim(&request).await;
            assert_eq!(reply, ClaimReply::OtherType, "{state:?} {reconciles}");
            p.unchanged(&bytes, "a claim of another type").await;
            p.assert_left(p.found().await.1, life);
        }
    }
    // Also where no attempt is left.
    p.plant(&header(State::Released), b"", RETAIN).await;
    let last = with!(of(B, OTHER_VALUE), max_attempts: limit(1));
    assert_eq!(p.claim(&last).await, ClaimReply::OtherType);
}

async fn a_claim_of_another_type_waits_and_is_answered_as_any(p: Probe) {
    for state in [pending(), reconciling()] {
        let bytes = p.plant(&header(state), b"", RETAIN).await;
        let reply = p.claim(&of(B, OTHER_VALUE)).await;
        expect!(reply, ClaimReply::Running { .. } => ());
        p.unchanged(&bytes, "a claim of another type").await;
    }
    // The owner of a claim reads the type of the answer in the record.
    for outcome in OUTCOMES {
        p.plant(&header(done(outcome)), b"", RETAIN).await;
        let reply = p.claim(&of(B, OTHER_VALUE)).await;
        let found = replayed!(reply).0;
        assert_eq!(found.header.types, TYPES, "{outcome:?}");
    }
}

async fn types_are_compared_to_the_last_byte_of_the_value(p: Probe) {
    for value in [[0x0d, 0x0b], [0x0c, 0x0a], [0x0d, 0], [0, 0x0a]] {
        let [v, w] = value;
        p.plant(&header(State::Released), b"", RETAIN).await;
        let other = of(B, AnswerTypes::from_bytes([v, w, 0x00, 0x24]));
        let reply = p.claim(&other).await;
        assert_eq!(reply, ClaimReply::OtherType, "{value:x?}");
    }
}

async fn errors_of_another_type_are_no_reason_to_refuse(p: Probe) {
    p.plant(&header(State::Released), b"", RETAIN).await;
    p.take(&of(B, OTHER_ERROR)).await;
    assert_eq!(p.header().await.types, OTHER_ERROR, "those of the last");
}

async fn a_claim_without_types_goes_with_every_record(p: Probe) {
    for (state, life) in free(false) {
        p.plant(&header(state), b"", life).await;
        expect!(p.claim(&of(B, UNKNOWN)).await, ClaimReply::Granted { .. } => ());
    }
    for (state, life) in free(true) {
        p.plant(&header(state), b"", life).await;
        let request = with!(ask_to_find_out(B), types: UNKNOWN);
        expect!(p.claim(&request).await, ClaimReply::Reconcile { .. } => ());
    }
}

async fn a_claim_without_types_does_not_forget_the_records(p: Probe) {
    for (state, life) in free(false) {
        p.plant(&header(state), b"", life).await;
        p.take(&of(B, UNKNOWN)).await;
        assert_eq!(p.header().await.types, TYPES);
        p.advance(LEASE).await;
        assert_eq!(p.claim(&of(C, OTHER_VALUE)).await, ClaimReply::OtherType);
    }
}

async fn a_claim_that_takes_any_type_brings_its_own(p: Probe) {
    for reconciles in [false, true] {
        for (state, life) in free(reconciles) {
            p.plant(&header(state), b"", life).await;
            let request = with!(of(B, OTHER_VALUE), any_type: true, reconciles: reconciles);
            if reconciles {
                p.look_into(&request).await;
            } else {
                p.take(&request).await;
            }
            assert_eq!(p.header().await.types, OTHER_VALUE, "{state:?}");
            p.advance(LEASE).await;
            let former = with!(request_by(C), reconciles: reconciles);
            assert_eq!(p.claim(&former).await, ClaimReply::OtherType);
        }
    }
}

async fn a_record_without_types_learns_the_first_that_come(p: Probe) {
    p.take(&of(A, UNKNOWN)).await;
    expect!(p.claim(&of(B, OTHER_VALUE)).await, ClaimReply::Running { .. } => ());
    let header = p.header().await;
    assert_eq!(header.types, UNKNOWN, "what is refused leaves nothing");
    p.advance(LEASE).await;
    p.take(&of(B, OTHER_VALUE)).await;
    assert_eq!(p.header().await.types, OTHER_VALUE);
    p.advance(LEASE).await;
    assert_eq!(p.claim(&request_by(C)).await, ClaimReply::OtherType);
}

async fn an_answer_brings_its_types(p: Probe) {
    for (n, (state, life)) in [
        (pending(), RETAIN),
        (pending(), RETAIN - LEASE),
        (State::Released, RETAIN),
        (done(OutcomeKind::Unknown), RETAIN),
    ]
    .into_iter()
    .enumerate()
    {
        for (m, bytes) in [1, 3_000].into_iter().enumerate() {
            let p = p.at(2 * n + m);
            let there =
                with!(header(state), owner: B, types: if n == 0 { UNKNOWN } else { OTHER_VALUE });
            p.plant(&there, b"", life).await;
            let owner = if n == 0 { B } else { A };
            let done = finished_by(owner);
            expect!(
                p.complete(&record(&done, &vec![b'x'; bytes])).await,
                CompleteReply::Stored { .. } => ()
            );
            assert_eq!(p.header().await.types, TYPES, "{state:?} {bytes}");
        }
    }
}

async fn an_answer_without_types_does_not_forget_the_records(p: Probe) {
    for (state, life) in [
        (pending(), RETAIN),
        (pending(), RETAIN - LEASE),
        (State::Released, RETAIN),
    ] {
        p.plant(&header(state), b"", life).await;
        let done = with!(finished(&header(pending())), types: UNKNOWN);
        assert_eq!(p.complete(&record(&done, b"the answer")).await, IN_TIME);
        let (stored, _) = p.found().await;
        assert_eq!(stored.header.types, TYPES, "{state:?}");
        assert_eq!(stored.body(), b"the answer");
    }
}

async fn a_release_of_which_nothing_remains_takes_the_types_off(p: Probe) {
    p.take(&request_by(A)).await;
    assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
    assert_eq!(p.header().await.types, UNKNOWN);
    p.take(&of(B, OTHER_VALUE)).await;
    assert_eq!(p.header().await.types, OTHER_VALUE);
    // Another attempt counts.
    for (n, attempts) in [2, 0x100, 0x101].into_iter().enumerate() {
        let p = p.at(n);
        let many = counted(attempts, header(pending()));
        p.plant(&many, b"", RETAIN).await;
        assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
        assert_eq!(p.header().await.types, TYPES);
        assert_eq!(p.claim(&of(B, OTHER_VALUE)).await, ClaimReply::OtherType);
    }
}

async fn a_release_of_which_something_remains_keeps_the_types(p: Probe) {
    for (n, remains) in [Remains::Request, Remains::Attempt].into_iter().enumerate() {
        let p = p.at(n);
        p.take(&request_by(A)).await;
        assert_eq!(p.release(A, remains).await, RELEASED);
        assert_eq!(p.header().await.types, TYPES);
        assert_eq!(p.claim(&of(B, OTHER_VALUE)).await, ClaimReply::OtherType);
    }
}

async fn a_reconciliation_given_back_keeps_the_types(p: Probe) {
    p.plant(&header(reconciling()), b"", RETAIN).await;
    assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
    assert_eq!(p.header().await.types, TYPES);
}

async fn a_reset_takes_the_types_off(p: Probe) {
    for (state, life) in super::resolving::free() {
        p.plant(&header(state), b"", life).await;
        let seen = p.header().await;
        resolved(&p, &seen, &reset()).await;
        assert_eq!(p.header().await.types, UNKNOWN, "{state:?}");
        p.take(&of(B, OTHER_VALUE)).await;
    }
}

async fn a_resolution_has_the_types_that_it_says(p: Probe) {
    for (state, life) in super::resolving::free() {
        for types in [TYPES, OTHER_VALUE, UNKNOWN] {
            p.plant(&header(state), b"", life).await;
            let seen = p.header().await;
            let answer = with!(new(done(OutcomeKind::Value)), types: types);
            resolved(&p, &seen, &record(&answer, b"by hand")).await;
            assert_eq!(p.header().await.types, types, "{state:?}");
        }
    }
}
