//! A full store: claims are refused, answers are not, and no live record is dropped.
//!
//! These cases pass immediately on a fixture without a [`scarce`](super::Fixture::scarce) store.

use super::probe::{
    A, B, IN_TIME, LEASE, Probe, RELEASED, RETAIN, TTL, answer, by, finished, record, request_by,
};
use bytes::Bytes;
use idem_runtime::store::{
    ClaimReply, Header, ReadReply, Remains, RenewReply, ResolveReply, StoreErrorKind,
};

cases! {
    12 a_full_store_refuses_claims: transport,
    12 a_full_store_takes_the_answer_of_a_running_body: transport,
    12 a_full_store_takes_resolutions,
    12 a_full_store_drops_nothing_that_is_alive,
    12 a_full_store_renews_and_takes_back,
    12 a_full_store_has_room_again_when_records_expire,
}

/// Far more than a scarce store holds.
const MANY: usize = 20_000;
const BODY: [u8; 16 << 10] = [0x5a; 16 << 10];

/// A full store, and its content: running claims of A, and answers under numbered keys.
struct FullStore {
    p: Probe,
    running: Vec<Header>,
    answers: Vec<Bytes>,
}

/// Fills a scarce store; `None` if this kind of store is never full.
async fn full(p: Probe) -> Option<FullStore> {
    let p = Probe::new(p.fixture.scarce().await?);
    let mut running = Vec::new();
    for n in 0..3 {
        running.push(p.at(MANY + n).take(&request_by(A)).await);
    }
    let mut answers = Vec::new();
    for n in 0..MANY {
        let key = p.at(n);
        match key.try_claim(&request_by(B)).await {
            Ok(ClaimReply::Granted { fence, attempt, .. }) => {
                let claim = with!(running[0], owner: B, fence: fence, attempts: attempt);
                let answer = answer(&claim, &BODY);
                assert_eq!(
                    key.complete(&answer).await,
                    IN_TIME,
                    "the owner of a granted claim finds room for its answer"
                );
                answers.push(answer);
            }
            Ok(other) => panic!("a fresh key was answered {other:?}"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
                assert!(error.is_transient(), "it may be sent again later");
                return Some(FullStore {
                    p,
                    running,
                    answers,
                });
            }
        }
    }
    panic!("a scarce store has room for {MANY} answers");
}

impl FullStore {
    fn held(&self, n: usize) -> Probe {
        self.p.at(MANY + n)
    }
}

/// Claims a fresh key. The capacity of a server is not exact, because a buffer that shrinks frees some: a claim that is
/// not refused must be like any other.
async fn is_refused(p: &Probe) -> bool {
    match p.try_claim(&request_by(A)).await {
        Err(error) => {
            assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
            assert_eq!(p.read().await, ReadReply::Absent, "nothing was written");
            true
        }
        Ok(reply) => {
            expect!(reply, ClaimReply::Granted { attempt: 1, .. } => ());
            assert_eq!(p.header().await.owner, A);
            false
        }
    }
}

async fn a_full_store_refuses_claims(p: Probe) {
    let Some(full) = full(p).await else { return };
    let mut in_a_row = 0;
    for n in 0..MANY {
        in_a_row = if is_refused(&full.p.at(2 * MANY + n)).await {
            in_a_row + 1
        } else {
            0
        };
        if in_a_row == 20 {
            return;
        }
    }
    panic!("a store that was full has room for {MANY} claims");
}

async fn a_full_store_takes_the_answer_of_a_running_body(p: Probe) {
    let Some(full) = full(p).await else { return };
    for (n, claim) in full.running.iter().enumerate() {
        let p = full.held(n);
        let answer = answer(claim, &BODY);
        assert_eq!(p.complete(&answer).await, IN_TIME);
        p.unchanged(&answer, "storing it").await;
        p.assert_left(p.found().await.1, TTL);
    }
}

async fn a_full_store_takes_resolutions(p: Probe) {
    let Some(full) = full(p).await else { return };
    full.p.advance(LEASE).await;
    for (n, seen) in full.running.iter().enumerate() {
        let p = full.held(n);
        let end = by(B, finished(seen));
        let bytes = record(&end, &BODY);
        assert_eq!(p.resolve(seen, &bytes).await, ResolveReply::Resolved);
        p.unchanged(&bytes, "resolving it").await;
    }
}

async fn a_full_store_drops_nothing_that_is_alive(p: Probe) {
    let Some(full) = full(p).await else { return };
    for n in 0..50 {
        is_refused(&full.p.at(2 * MANY + n)).await;
    }
    for (n, claim) in full.running.iter().enumerate() {
        assert_eq!(full.held(n).header().await, *claim);
    }
    for (n, answer) in full.answers.iter().enumerate() {
        full.p.at(n).unchanged(answer, "a lack of room").await;
    }
}

async fn a_full_store_renews_and_takes_back(p: Probe) {
    let Some(full) = full(p).await else { return };
    let (one, two) = (full.held(0), full.held(1));
    one.advance(LEASE / 2).await;
    assert_eq!(one.renew(&full.running[0]).await, RenewReply::Renewed);
    one.assert_left(one.found().await.1, RETAIN);
    assert_eq!(two.release(A, Remains::Request).await, RELEASED);
    assert_eq!(two.header().await.attempts, 0);
}

async fn a_full_store_has_room_again_when_records_expire(p: Probe) {
    let Some(full) = full(p).await else { return };
    full.p.advance(RETAIN).await;
    for n in 0..full.answers.len().min(50) {
        full.p.at(3 * MANY + n).take(&request_by(B)).await;
    }
}
