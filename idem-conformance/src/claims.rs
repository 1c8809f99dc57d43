//! Claims in every state, for either owner and every fingerprint.

use super::probe::{
    A, ASKED, B, C, LEASE, MS, NONE, OTHER, OUTCOMES, Probe, RETAIN, dated, done, fingerprinted,
    header, limit, owner, pending, request_by, request_with,
};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{ClaimReply, Fence, Owner, ReadReply, State};

cases! {
    1 the_first_claim_is_granted: transport,
    1 a_granted_claim_stands_in_the_record: transport,
    1 a_second_claim_is_told_to_wait,
    1 a_refused_claim_leaves_the_record_as_it_was,
    1 owners_are_compared_to_the_last_byte: transport,
    5 a_live_claim_is_granted_to_its_owner_only,
    5 a_lapsed_claim_is_granted_to_anybody,
    4 a_done_key_is_granted_to_nobody,
    1 a_released_key_is_granted_to_anybody_else,
    6 a_takeover_keeps_the_record_for_what_the_new_claim_says,
}

/// Fingerprints of the record and of the claim that match, and the one that is then kept.
const MATCHING: [(Fingerprint, Fingerprint, Fingerprint); 4] = [
    (ASKED, ASKED, ASKED),
    (ASKED, NONE, ASKED),
    (NONE, ASKED, ASKED),
    (NONE, NONE, NONE),
];

async fn the_first_claim_is_granted(p: Probe) {
    assert_eq!(p.read().await, ReadReply::Absent, "the prefix is fresh");
    let (fence, attempt) = expect!(
        p.claim(&request_by(A)).await,
        ClaimReply::Granted { fence, attempt, .. } => (fence, attempt)
    );
    assert_eq!(attempt, 1, "attempts start at 1");
    assert!(fence > Fence::default(), "a fence is more than 0");
}

async fn a_granted_claim_stands_in_the_record(p: Probe) {
    for (n, owner) in [A, B, C].into_iter().enumerate() {
        for (m, fingerprint) in [ASKED, OTHER, NONE].into_iter().enumerate() {
            let p = p.at(n * 10 + m);
            let claim = p.take(&request_with(owner, fingerprint)).await;
            let (record, left) = p.found().await;
            assert_eq!(record.header, claim);
            assert!(record.body().is_empty(), "a claim has no answer");
            p.assert_left(left, RETAIN);
        }
    }
}

async fn a_second_claim_is_told_to_wait(p: Probe) {
    p.take(&request_by(A)).await;
    for owner in [B, C, owner(1)] {
        let left = running!(p.claim(&request_by(owner)).await);
        p.assert_left(left, LEASE);
    }
}

async fn a_refused_claim_leaves_the_record_as_it_was(p: Probe) {
    p.take(&request_by(A)).await;
    let bytes = p.peek().await.expect("the claim is there");
    let odd = with!(request_by(B), lease: LEASE * 7, retain: RETAIN * 7, max_attempts: None);
    expect!(p.claim(&odd).await, ClaimReply::Running { .. } => ());
    expect!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Mismatch => ());
    p.unchanged(&bytes, "a claim that is refused").await;
    p.assert_left(p.found().await.1, RETAIN);
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
    assert_eq!(
        p.take(&request_by(C)).await,
        claim,
        "the owner itself is granted"
    );
}

async fn a_live_claim_is_granted_to_its_owner_only(p: Probe) {
    for (kept, fingerprint, stays) in MATCHING {
        let live = fingerprinted(kept, header(pending()));
        let age = LEASE / 2;
        let bytes = p.plant(&live, b"", RETAIN - age).await;
        let left = running!(p.claim(&request_with(B, fingerprint)).await);
        p.assert_left(left, LEASE - age);
        p.unchanged(&bytes, "another's claim").await;

        let claim = p.take(&request_with(A, fingerprint)).await;
        assert_eq!(
            (claim.fence, claim.attempts),
            (live.fence, live.attempts),
            "its own claim, sent again, is the same attempt"
        );
        let expected = fingerprinted(stays, live);
        let (record, left) = p.found().await;
        assert_eq!(record.header, expected);
        p.assert_left(left, RETAIN);
    }
}

async fn a_lapsed_claim_is_granted_to_anybody(p: Probe) {
    for age in [LEASE, LEASE + MS, LEASE * 30] {
        for (kept, fingerprint, stays) in MATCHING {
            let lapsed = fingerprinted(kept, header(pending()));
            p.plant(&lapsed, b"", RETAIN - age).await;
            let again = p.take(&request_with(A, fingerprint)).await;
            assert_eq!(
                (again.fence, again.attempts),
                (lapsed.fence, lapsed.attempts),
                "no other owner took the lapsed claim, so its owner is granted it again"
            );

            p.plant(&lapsed, b"", RETAIN - age).await;
            let taken = p.take(&request_with(B, fingerprint)).await;
            assert_eq!(taken.attempts, lapsed.attempts + 1);
            assert!(taken.fence > lapsed.fence, "a takeover has a higher fence");
            let expected = fingerprinted(stays, taken);
            assert_eq!(p.header().await, expected);
        }
    }
}

async fn a_done_key_is_granted_to_nobody(p: Probe) {
    for outcome in OUTCOMES {
        for (kept, fingerprint, _) in MATCHING {
            let finished = fingerprinted(kept, header(done(outcome)));
            let bytes = p.plant(&finished, b"the answer", RETAIN / 2).await;
            for owner in [A, B] {
                let request = request_with(owner, fingerprint);
                let (record, left) = replayed!(p.claim(&dated(&request)).await);
                assert_eq!(record.as_bytes(), &bytes[..]);
                p.assert_left(left, RETAIN / 2);
                let (record, at_least) = replayed!(p.claim(&request).await);
                assert_eq!(record.as_bytes(), &bytes[..]);
                // Copies in front of the store may expire by another clock.
                let inexact = p.fixture.drift() + MS;
                assert!(at_least <= left + inexact, "{at_least:?} of {left:?}");
            }
            p.unchanged(&bytes, "a claim of a done key").await;
        }
    }
}

async fn a_released_key_is_granted_to_anybody_else(p: Probe) {
    for owner in [B, C] {
        for (kept, fingerprint, stays) in MATCHING {
            let released = fingerprinted(kept, header(State::Released));
            p.plant(&released, b"", RETAIN - MS).await;
            let claim = p.take(&request_with(owner, fingerprint)).await;
            assert_eq!(claim.attempts, released.attempts + 1, "a new attempt");
            assert!(claim.fence > released.fence, "with a fence of its own");
            let expected = fingerprinted(stays, claim);
            assert_eq!(p.header().await, expected);
        }
    }
}

async fn a_takeover_keeps_the_record_for_what_the_new_claim_says(p: Probe) {
    let request =
        with!(request_by(B), lease: LEASE * 2, retain: RETAIN * 3, max_attempts: limit(9));
    for state in [pending(), State::Released] {
        p.plant(&header(state), b"", RETAIN - LEASE).await;
        let claim = p.take(&request).await;
        let (record, left) = p.found().await;
        assert_eq!(record.header, claim, "lease and retention are the claim's");
        p.assert_left(left, RETAIN * 3);
        let left = running!(p.claim(&request_by(A)).await);
        p.assert_left(left, LEASE * 2);
    }
}
