//! Answers of every size and any bytes are read back as they were stored.

use super::probe::{
    A, B, IN_TIME, LATE, LEASE, OTHER, Probe, RELEASED, SUPERSEDED, TTL, answer, by, done,
    finished, header, kept_for, record, request_by, request_with,
};
use idem_runtime::store::{ClaimReply, HEADER, OutcomeKind, Remains, RenewReply};

cases! {
    4 an_answer_of_any_size_comes_back: transport,
    4 an_answer_of_any_bytes_comes_back: transport,
    4 a_large_answer_is_adopted_whole: transport,
    2 a_large_answer_is_kept_out_like_a_small_one: transport,
    3 a_large_answer_sent_again_is_stored_once: transport,
    8 a_large_answer_of_a_released_key_keeps_the_attempts: transport,
    9 a_large_answer_is_compared_like_a_small_one: transport,
    6 a_large_answer_expires: transport,
    4 what_is_done_with_a_large_answer_stays: transport,
}

const KIB: usize = 1 << 10;

/// Sizes at which a store may change its path: nothing, a packet, 8 KiB, the limit of an answer.
const SIZES: [usize; 12] = [
    0,
    1,
    63,
    64,
    1_400,
    8 * KIB - HEADER,
    8 * KIB - 1,
    8 * KIB,
    8 * KIB + 1,
    64 * KIB,
    256 * KIB - 1,
    256 * KIB,
];

const LARGE: usize = 100 * KIB;

/// Bytes that do not repeat at a power of two, so that a lost or doubled block shows.
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
        panic!(
            "{} bytes came back for {}; they differ first at {at:?}",
            found.len(),
            stored.len()
        );
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

async fn a_large_answer_is_adopted_whole(p: Probe) {
    for (n, size) in SIZES.into_iter().enumerate() {
        let p = p.at(n);
        let bytes = p.finish(&body(size)).await;
        let theirs = by(B, finished(&p.header().await));
        let (adopted, left) = adopted!(p.complete(&record(&theirs, &body(LARGE))).await);
        same(adopted.as_bytes(), &bytes);
        p.assert_left(left, TTL);
    }
}

async fn a_large_answer_is_kept_out_like_a_small_one(p: Probe) {
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let second = p.take(&request_by(B)).await;
    superseded!(p.complete(&answer(&first, &body(LARGE))).await);
    assert_eq!(p.header().await, second);
}

async fn a_large_answer_sent_again_is_stored_once(p: Probe) {
    let bytes = p.finish(&body(LARGE)).await;
    for _ in 0..2 {
        assert_eq!(p.complete(&bytes).await, IN_TIME);
    }
    same(p.found().await.0.as_bytes(), &bytes);
}

async fn a_large_answer_of_a_released_key_keeps_the_attempts(p: Probe) {
    let first = p.take(&request_by(A)).await;
    p.advance(LEASE).await;
    let second = p.take(&request_by(B)).await;
    assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
    assert_eq!(p.complete(&answer(&first, &body(LARGE))).await, LATE);
    let (stored, _) = p.found().await;
    let expected = with!(finished(&first), fence: second.fence, attempts: second.attempts);
    assert_eq!(stored.header, expected);
    same(stored.body(), &body(LARGE));
}

async fn a_large_answer_is_compared_like_a_small_one(p: Probe) {
    let bytes = p.finish(&body(LARGE)).await;
    let other = request_with(B, OTHER);
    assert_eq!(p.claim(&other).await, ClaimReply::Mismatch);
    same(p.found().await.0.as_bytes(), &bytes);
}

async fn a_large_answer_expires(p: Probe) {
    p.finish(&body(LARGE)).await;
    p.advance(TTL).await;
    let claim = p.take(&request_by(B)).await;
    assert_eq!(claim.attempts, 1);
    assert!(p.found().await.0.body().is_empty());
}

async fn what_is_done_with_a_large_answer_stays(p: Probe) {
    let large = kept_for(TTL, header(done(OutcomeKind::Error)));
    let bytes = p.plant(&large, &body(LARGE), TTL).await;
    for owner in [A, B] {
        assert_eq!(p.release(owner, Remains::Request).await, SUPERSEDED);
        assert_eq!(p.renew(&by(owner, large)).await, RenewReply::Lost);
        let replayed = replayed!(p.claim(&request_by(owner)).await).0;
        same(replayed.as_bytes(), &bytes);
    }
}
