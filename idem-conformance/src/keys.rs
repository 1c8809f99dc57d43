//! Keys are separate, whatever their names.

use std::sync::Arc;

use super::probe::{A, B, LATE, LEASE, OTHER, Probe, RELEASED, answer, request_by, request_with};
use idem_runtime::key::Operation;
use idem_runtime::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest};
use idem_runtime::store::RecordKey;
use idem_runtime::store::{ClaimReply, ReadReply, Remains, RenewReply};

cases! {
    11 keys_of_different_digests_are_separate,
    11 keys_of_different_operations_are_separate,
    11 keys_of_different_prefixes_are_separate: transport,
    11 an_operation_on_one_key_does_not_touch_another,
    11 operations_of_any_name_are_separate: transport,
    11 digests_are_compared_to_the_last_byte,
    11 the_same_parts_are_the_same_key,
}

const DIGEST: KeyDigest = KeyDigest::from_bytes([0x2a; 32]);

/// Claims every key, and completes each with an answer of its own.
async fn separate(probes: &[Probe]) {
    for p in probes {
        assert_eq!(
            p.read().await,
            ReadReply::Absent,
            "{:?} is another key",
            p.key
        );
        p.finish(format!("{:?}", p.key).as_bytes()).await;
    }
    for p in probes {
        let (record, _) = p.found().await;
        assert_eq!(record.body(), format!("{:?}", p.key).as_bytes());
    }
}

fn named(p: &Probe, operation: impl Into<String>) -> Probe {
    let operation = Operation::new(operation.into());
    p.on(RecordKey::new(p.fixture.prefix(), operation, DIGEST))
}

async fn keys_of_different_digests_are_separate(p: Probe) {
    let probes: Vec<_> = (0..50).map(|n| p.at(n)).collect();
    separate(&probes).await;
}

async fn keys_of_different_operations_are_separate(p: Probe) {
    separate(&["pay", "Pay", "pay.refund", "pa", "y"].map(|name| named(&p, name))).await;
}

async fn keys_of_different_prefixes_are_separate(p: Probe) {
    let prefix = p.fixture.prefix();
    let probes = ["", "1", "-1", "-", "A", "a"].map(|more| {
        let prefix: Arc<str> = format!("{prefix}{more}").into();
        p.on(RecordKey::new(prefix, Operation::new("pay"), DIGEST))
    });
    separate(&probes).await;
}

async fn an_operation_on_one_key_does_not_touch_another(p: Probe) {
    let (one, two) = (p.at(1), p.at(2));
    let other = request_with(A, OTHER);
    let claim = one.take(&request_by(A)).await;
    let theirs = two.take(&other).await;
    let bytes = two.peek().await.expect("the claim is there");
    assert_eq!(one.renew(&claim).await, RenewReply::Renewed);
    assert_eq!(one.release(A, Remains::Attempt).await, RELEASED);
    expect!(one.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ());
    one.advance(LEASE / 2).await;
    superseded!(one.complete(&answer(&claim, b"x")).await);
    assert_eq!(one.release(B, Remains::Request).await, RELEASED);
    assert_eq!(one.complete(&answer(&claim, b"x")).await, LATE);
    two.unchanged(&bytes, "what happened to another key").await;
    assert_eq!(
        two.renew(&theirs).await,
        RenewReply::Renewed,
        "time passes for both, and A holds this one"
    );
}

async fn operations_of_any_name_are_separate(p: Probe) {
    let long = "a".repeat(300);
    let names = [
        "",
        " ",
        "a b",
        "a_b",
        "a\0b",
        "a\r\nb",
        "pay{tag}",
        "{pay}tag",
        "*",
        "?",
        "[a-z]",
        "\\",
        "'quoted'",
        "\"quoted\"",
        "$1",
        "%s",
        "zahlung.ausführen",
        "支払い",
        "🦀",
        "a:b",
        "a:b:",
        &long,
        &long[1..],
        &format!("{}x", &long[1..]),
    ];
    let probes = names.map(|name| {
        // The digest of a real key holds the operation's whole name.
        let digest = KeyBuilder::new(name, DEFAULT_MAX_KEY_BYTES).key("the same key");
        let digest = digest.expect("a short text is a key");
        let operation = Operation::new(name.to_owned());
        p.on(RecordKey::new(p.fixture.prefix(), operation, digest))
    });
    separate(&probes).await;
}

async fn digests_are_compared_to_the_last_byte(p: Probe) {
    let mut digests = vec![[0; 32], [0xff; 32]];
    for at in [0, 1, 15, 16, 30, 31] {
        for bit in [1, 0x80] {
            let mut digest = [0; 32];
            digest[at] ^= bit;
            digests.push(digest);
        }
    }
    let probes: Vec<_> = digests
        .into_iter()
        .map(|digest| {
            let operation = p.key.operation().clone();
            let digest = KeyDigest::from_bytes(digest);
            p.on(RecordKey::new(p.fixture.prefix(), operation, digest))
        })
        .collect();
    separate(&probes).await;
}

async fn the_same_parts_are_the_same_key(p: Probe) {
    for name in ["pay", "", "支払い\0", &"b".repeat(200)] {
        let bytes = named(&p, name).finish(b"once").await;
        let again = named(&p, name);
        assert_eq!(again.found().await.0.as_bytes(), &bytes[..]);
        expect!(again.claim(&request_by(B)).await, ClaimReply::Done { .. } => ());
    }
}
