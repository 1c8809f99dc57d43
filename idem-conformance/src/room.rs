//! A full store: claims are refused, answers are not, and no live record is dropped.
//!
//! These cases pass immediately on a fixture without a [`scarce`](super::Fixture::scarce) store.

use super::probe::{
    A, B, IN_TIME, LEASE, Probe, RELEASED, RETAIN, TTL, answer, by, finished, record, request_by,
};
use bytes::Bytes;
use idem_runtime::store::StoreErrorKind;
use idem_runtime::store::author::{
    ClaimReply, CompleteReply, Header, ReadReply, Remains, RenewReply, ResolveReply,
};

cases! {
    12 a_full_store_refuses_claims_and_drops_nothing_that_is_alive: transport,
    12 a_full_store_takes_what_ends_or_renews_a_claim: transport,
    12 a_full_store_has_room_again_when_records_expire,
}

/// Far more than a scarce store holds.
const MANY: usize = 20_000;
const BODY: [u8; 16 << 10] = [0x5a; 16 << 10];

/// A full store, and its content: running claims of A and a released one, and answers under numbered keys.
struct FullStore {
    p: Probe,
    running: Vec<Header>,
    answers: Vec<Bytes>,
}

/// Fills a scarce store; `None` if this kind of store is never full.
async fn full(p: Probe) -> Option<FullStore> {
    let p = Probe::new(p.fixture.scarce().await?);
    let mut running = Vec::new();
    for n in 0..4 {
        running.push(p.at(MANY + n).take(&request_by(A)).await);
    }
    let released = p.at(MANY + running.len());
    released.take(&request_by(A)).await;
    assert_eq!(released.release(A, Remains::Attempt).await, RELEASED);
    running.push(released.header().await);
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

async fn a_full_store_refuses_claims_and_drops_nothing_that_is_alive(p: Probe) {
    let Some(full) = full(p).await else { return };
    let (mut in_a_row, mut keys) = (0, 0..MANY);
    while in_a_row < 20 {
        let n = keys
            .next()
            .expect("a store that was full has room for many claims");
        let refused = is_refused(&full.p.at(2 * MANY + n)).await;
        in_a_row = if refused { in_a_row + 1 } else { 0 };
    }
    for (n, claim) in full.running.iter().enumerate() {
        assert_eq!(full.held(n).header().await, *claim);
    }
    for (n, answer) in full.answers.iter().enumerate() {
        full.p.at(n).unchanged(answer, "a lack of room").await;
    }
}

async fn a_full_store_takes_what_ends_or_renews_a_claim(p: Probe) {
    let Some(full) = full(p).await else { return };
    let [renewed, released, answered, resolved] = [0, 1, 2, 3].map(|n| full.held(n));
    renewed.advance(LEASE / 2).await;
    assert_eq!(renewed.renew(&full.running[0]).await, RenewReply::Renewed);
    renewed.assert_left(renewed.found().await.1, RETAIN);
    assert_eq!(released.release(A, Remains::Request).await, RELEASED);
    assert_eq!(released.header().await.attempts, 0);
    let bytes = answer(&full.running[2], &BODY);
    assert_eq!(answered.complete(&bytes).await, IN_TIME);
    answered.unchanged(&bytes, "storing it").await;
    answered.assert_left(answered.found().await.1, TTL);
    // Its record is gone.
    let reply = full.p.at(4 * MANY).complete(&bytes).await;
    assert_eq!(reply, CompleteReply::Stored { late: true });
    resolved.advance(LEASE).await;
    let seen = &full.running[3];
    let bytes = record(&by(B, finished(seen)), &BODY);
    assert_eq!(resolved.resolve(seen, &bytes).await, ResolveReply::Resolved);
    resolved.unchanged(&bytes, "resolving it").await;
}

async fn a_full_store_has_room_again_when_records_expire(p: Probe) {
    let Some(full) = full(p).await else { return };
    full.p.advance(RETAIN).await;
    for n in 0..full.answers.len().min(50) {
        full.p.at(3 * MANY + n).take(&request_by(B)).await;
    }
}
