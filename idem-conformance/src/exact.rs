//! Every byte counts: of names, fences, fingerprints, types and answers.

use super::probe::{
    A, ASKED, B, IN_TIME, LEASE, Probe, RELEASED, RETAIN, TTL, answer, by, finished, header,
    pending, record, request_by, request_with,
};
use idem_runtime::__private::{DEFAULT_MAX_KEY_BYTES, KeyBuilder};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{
    AnswerTypes, ClaimReply, ClaimRequest, CompleteReply, HEADER, Owner, ReadReply, Remains, State,
};
use idem_runtime::store::{Fence, RecordKey};
use std::sync::Arc;

cases! {
    11 keys_of_different_prefixes_are_separate: transport,
    11 operations_of_any_name_are_separate: transport,
    11 digests_are_compared_to_the_last_byte,
    7 a_fence_ahead_of_the_clock_grows_by_one,
    7 every_byte_of_a_fence_counts,
    7 a_fence_after_the_records_life_is_not_lower,
    9 fingerprints_are_compared_to_the_last_byte,
    9 types_are_compared_to_the_last_byte_of_the_value,
    4 an_answer_of_any_size_comes_back: transport,
    4 an_answer_of_any_bytes_comes_back: transport,
}

const DIGEST: KeyDigest = KeyDigest::from_bytes([0x2a; 32]);

/// Claims every key, and completes each with an answer of its own.
async fn separate(probes: &[Probe]) {
    for p in probes {
        let before = p.read().await;
        assert_eq!(before, ReadReply::Absent, "{:?} is another key", p.key);
        p.finish(format!("{:?}", p.key).as_bytes()).await;
    }
    for p in probes {
        let (record, _) = p.found().await;
        assert_eq!(record.body(), format!("{:?}", p.key).as_bytes());
    }
}

async fn keys_of_different_prefixes_are_separate(p: Probe) {
    let prefix = p.fixture.prefix();
    let probes = ["", "1", "-1", "-", "A", "a"].map(|more| {
        let prefix: Arc<str> = format!("{prefix}{more}").into();
        p.on(RecordKey::new(prefix, Operation::new("pay"), DIGEST))
    });
    separate(&probes).await;
}

async fn operations_of_any_name_are_separate(p: Probe) {
    let long = "a".repeat(300);
    let other = format!("{}x", &long[1..]);
    let short = [
        "", " ", "a b", "a_b", "a\0b", "a\r\nb", "pay{tag}", "{pay}tag", "*", "?", "[a-z]", "\\",
        "$1", "%s", "🦀", "a:b", "a:b:",
    ];
    let quoted = ["'quoted'", "\"quoted\"", "zahlung.ausführen", "支払い"];
    let names = short.into_iter().chain(quoted);
    let names = names.chain([&*long, &long[1..], &other]);
    let of_name = |name: &str| {
        // The digest of a real key holds the operation's whole name.
        let digest = KeyBuilder::new(name, DEFAULT_MAX_KEY_BYTES).key("the same key");
        let digest = digest.expect("a short text is a key");
        let operation = Operation::new(name.to_owned());
        p.on(RecordKey::new(p.fixture.prefix(), operation, digest))
    };
    separate(&names.map(of_name).collect::<Vec<_>>()).await;
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

async fn a_fence_ahead_of_the_clock_grows_by_one(p: Probe) {
    // As after a failover to a server whose clock is behind; in the year 2185.
    let ahead = Fence::new(6_789_012_345_678_901);
    for (state, life) in [(pending(), RETAIN - LEASE), (State::Released, RETAIN)] {
        let record = with!(header(state), fence: ahead);
        p.plant(&record, b"", life).await;
        let claim = p.take(&request_by(B)).await;
        assert_eq!(claim.fence.get(), ahead.get() + 1);
        assert_eq!(p.header().await.fence, claim.fence);
        let again = p.take(&request_by(B)).await;
        assert_eq!(again.fence, claim.fence, "the same attempt");
    }
}

async fn every_byte_of_a_fence_counts(p: Probe) {
    // Numbers whose bytes a text protocol, or a carry, would corrupt.
    for number in [
        0x000d_0a0d_0a00_ffff,
        0x000f_00ff_00ff_00ff,
        0x0010_0000_0000_0000,
        0x001f_ffff_ffff_fffd,
        0x000f_ffff_ffff_ffff,
    ] {
        let record = with!(header(State::Released), fence: Fence::new(number));
        p.plant(&record, b"", RETAIN).await;
        assert_eq!(p.take(&request_by(B)).await.fence.get(), number + 1);
    }
}

async fn a_fence_after_the_records_life_is_not_lower(p: Probe) {
    // The record is gone, so this fence is based on the store's clock.
    let before = header(State::Released);
    p.plant(&before, b"", RETAIN).await;
    p.advance(RETAIN).await;
    let first = p.take(&request_by(A)).await;
    assert!(first.fence > before.fence);
    assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
    p.advance(RETAIN).await;
    let second = p.take(&request_by(B)).await;
    assert!(second.fence >= first.fence);
    assert_eq!(second.attempts, 1);
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
    let claim = p.take(&request_by(A)).await;
    let others = near.into_iter().chain(nearly_none);
    for other in others.clone() {
        assert_eq!(p.claim(&request_with(B, other)).await, ClaimReply::Mismatch);
        let answer = answer(&with!(claim, fingerprint: other), b"x");
        assert_eq!(p.complete(&answer).await, CompleteReply::Mismatch);
    }
    assert_eq!(p.complete(&answer(&claim, b"x")).await, IN_TIME);
    replayed!(p.claim(&request_by(B)).await);
    for other in others {
        let at_hand = p.fixture.store().at_hand(&p.key, other);
        assert_eq!(at_hand, None, "it is the answer to another request");
    }
    let p = p.at(1);
    p.take(&request_with(A, nearly_none[1])).await;
    let reply = p.claim(&request_with(B, nearly_none[0])).await;
    assert_eq!(reply, ClaimReply::Mismatch);
    expect!(p.claim(&request_with(B, nearly_none[1])).await, ClaimReply::Running { .. } => ());
}

fn of(owner: Owner, types: AnswerTypes) -> ClaimRequest {
    with!(request_by(owner), types: types)
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

/// Sizes at which a store may change its path: nothing, a packet, 8 KiB, the limit of an answer.
const SIZES: [usize; 12] = [
    0, 1, 63, 64, 1_400, LONG, 8_191, 8_192, 8_193, 65_536, 262_143, 262_144,
];
/// With its header it is 8 KiB.
const LONG: usize = 8_192 - HEADER;
const LARGE: usize = 100 << 10;

/// Bytes without a period of a power of two: lost and doubled blocks show.
fn body(bytes: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..251).collect();
    let mut body = block.repeat(bytes / block.len() + 1);
    body.truncate(bytes);
    body
}

/// Whether two answers are the same, without printing either.
#[track_caller]
fn same(found: &[u8], stored: &[u8]) {
    if found != stored {
        let at = found.iter().zip(stored).position(|(a, b)| a != b);
        let (found, stored) = (found.len(), stored.len());
        panic!("{found} bytes came back for {stored}; they differ first at {at:?}");
    }
}

async fn an_answer_of_any_size_comes_back(p: Probe) {
    for (n, size) in SIZES.into_iter().enumerate() {
        let p = p.at(n);
        let bytes = p.finish(&body(size)).await;
        let replayed = replayed!(p.claim(&request_by(B)).await).0;
        same(replayed.as_bytes(), &bytes);
        same(replayed.body(), &body(size));
        same(p.found().await.0.as_bytes(), &bytes);
        same(&p.peek().await.expect("it is there"), &bytes);
        let theirs = by(B, finished(&p.header().await));
        let reply = p.complete(&record(&theirs, &body(LARGE))).await;
        let (adopted, left) =
            expect!(reply, CompleteReply::Adopted { record, left } => (record, left));
        same(adopted.as_bytes(), &bytes);
        p.assert_left(left, TTL);
    }
}

async fn an_answer_of_any_bytes_comes_back(p: Probe) {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let bodies: [&[u8]; 12] = [
        &all,
        b"\0",
        b"\0\0\0\0",
        b"\r\n",
        b"$-1\r\n*0\r\n",
        b"\n",
        b"\xff\xfe\xc3\x28",
        b"%s %d \\0 \\x00 '\"",
        b"2P",
        "„ü支🦀".as_bytes(),
        &[0; 9_000],
        &[0xff; 9_000],
    ];
    for (n, body) in bodies.into_iter().enumerate() {
        let p = p.at(n);
        let bytes = p.finish(body).await;
        let replayed = replayed!(p.claim(&request_by(B)).await).0;
        same(replayed.as_bytes(), &bytes);
        same(p.found().await.0.body(), body);
    }
}
