//! Unreadable records are refused by every operation, and stay as they are.

use super::fixture::Plant;
use super::probe::{
    A, B, LEASE, OUTCOMES, Probe, REMAINS, TTL, answer, ask_to_find_out, by, dated, done, header,
    pending, reconciling, record, request_by,
};
use idem_runtime::store::author::{
    ClaimReply, CompleteReply, HEADER, ReadReply, ReleaseReply, Remains, RenewReply, ResolveReply,
    State, Unreadable,
};

cases! {
    10 what_is_no_record_is_not_replaced: transport,
    10 a_newer_layout_is_not_replaced,
    10 an_unknown_state_is_not_replaced,
    10 a_record_without_an_expiry_is_not_replaced: transport,
    10 a_claim_without_an_expiry_is_ended_by_its_owner_if_by_anybody,
    10 a_value_of_another_type_is_not_replaced: transport,
}

/// Sends every operation: as the owner that the bytes may contain, and as another.
async fn refused(p: &Probe, error: Unreadable) {
    for owner in [A, B] {
        let claim = by(owner, header(pending()));
        let reply = p.claim(&dated(&request_by(owner))).await;
        assert_eq!(reply, ClaimReply::Unreadable(error));
        // A finished answer may be returned to a claim that does not need its remaining life.
        match p.claim(&request_by(owner)).await {
            ClaimReply::Done { .. } if error == Unreadable::Immortal => {}
            reply => assert_eq!(reply, ClaimReply::Unreadable(error)),
        }
        let reply = p.complete(&answer(&claim, b"over it")).await;
        assert_eq!(reply, CompleteReply::Unreadable(error));
        let reply = p.claim(&dated(&ask_to_find_out(owner))).await;
        assert_eq!(reply, ClaimReply::Unreadable(error));
        let resolution = answer(&claim, b"we know better");
        let reply = p.resolve(&header(pending()), &resolution).await;
        assert_eq!(reply, ResolveReply::Unreadable(error));
        for remains in REMAINS {
            let reply = p.release(owner, remains).await;
            assert_eq!(reply, ReleaseReply::Unreadable(error));
        }
        assert_eq!(p.renew(&claim).await, RenewReply::Unreadable(error));
        assert_eq!(p.read().await, ReadReply::Unreadable(error));
        if error != Unreadable::Immortal {
            expect!(p.poll().await, ReadReply::Unreadable(_) => ());
        }
    }
}

async fn stays(p: &Probe, bytes: &[u8], error: Unreadable) {
    p.plant_bytes(bytes, LEASE).await;
    refused(p, error).await;
    p.unchanged(bytes, "what the store refused").await;
}

async fn what_is_no_record_is_not_replaced(p: Probe) {
    let whole = record(&header(pending()), b"");
    for bytes in [0, 1, 2, 17, 18, 35, HEADER - 1] {
        stays(&p, &whole[..bytes], Unreadable::Short { bytes }).await;
    }
    stays(&p, b"27", Unreadable::Short { bytes: 2 }).await;
    // Of other programs.
    for text in ["{\"status\":\"COMPLETED\"}", "in progress", "\0\0\0\0"] {
        let byte = text.as_bytes()[0];
        stays(&p, text.as_bytes(), Unreadable::Layout { byte }).await;
    }
}

async fn a_newer_layout_is_not_replaced(p: Probe) {
    for byte in [b'5', b'1', b'0', b'P', 0, 1, 0xff] {
        for len in [1, HEADER - 1, HEADER, HEADER + 9, 9_000] {
            let mut bytes = record(&header(pending()), &[7; 9_000]).to_vec();
            bytes.truncate(len);
            bytes[0] = byte;
            stays(&p, &bytes, Unreadable::Layout { byte }).await;
        }
    }
}

async fn an_unknown_state_is_not_replaced(p: Probe) {
    for byte in [b'X', b'p', b'1', b'.', b'%', 0, 0xff, b'\n'] {
        for body in [0, 10, 9_000] {
            let mut bytes = record(&header(pending()), &vec![7; body]).to_vec();
            bytes[1] = byte;
            stays(&p, &bytes, Unreadable::State { byte }).await;
        }
    }
}

async fn a_record_without_an_expiry_is_not_replaced(p: Probe) {
    let states = OUTCOMES.map(done).into_iter();
    for state in states.chain([reconciling(), State::Released]) {
        for body in [&b""[..], &[7; 9_000]] {
            let bytes = record(&header(state), body).to_vec();
            let plant = Plant::Immortal {
                bytes: bytes.clone(),
            };
            if p.fixture.plant(&p.key, plant).await {
                refused(&p, Unreadable::Immortal).await;
                p.unchanged(&bytes, "what the store refused").await;
            }
        }
    }
}

async fn a_claim_without_an_expiry_is_ended_by_its_owner_if_by_anybody(p: Probe) {
    let claim = header(pending());
    let bytes = claim.encode().to_vec();
    let plant = Plant::Immortal {
        bytes: bytes.clone(),
    };
    if !p.fixture.plant(&p.key, plant).await {
        return;
    }
    let error = Unreadable::Immortal;
    for request in [request_by(B), dated(&request_by(B)), ask_to_find_out(B)] {
        assert_eq!(p.claim(&request).await, ClaimReply::Unreadable(error));
    }
    let theirs = answer(&by(B, claim), b"over it");
    assert_eq!(p.complete(&theirs).await, CompleteReply::Unreadable(error));
    let reply = p.release(B, Remains::Attempt).await;
    assert_eq!(reply, ReleaseReply::Unreadable(error));
    p.unchanged(&bytes, "what the store refused").await;
    let ours = answer(&claim, b"the answer");
    match p.complete(&ours).await {
        // It has an expiry again.
        CompleteReply::Stored { late: false } => p.assert_left(p.found().await.1, TTL),
        reply => assert_eq!(reply, CompleteReply::Unreadable(error)),
    }
}

async fn a_value_of_another_type_is_not_replaced(p: Probe) {
    if p.fixture.plant(&p.key, Plant::OtherType).await {
        refused(&p, Unreadable::Type).await;
        refused(&p, Unreadable::Type).await;
    }
}
