//! The records of claims and completions, as the engine writes them.

use std::time::Duration;

use bytes::Bytes;
use idem_runtime::store::author::{
    Admission, ClaimReply, ClaimRequest, CompleteReply, Header, State,
};
use idem_runtime::store::{OutcomeKind, RecordKey, Store};

/// The admission of a claim that waits longer than a test does.
pub fn unhurried() -> Admission {
    Admission::new(Duration::from_mins(5))
}

pub fn granted(request: &ClaimRequest, reply: &ClaimReply) -> Header {
    let ClaimReply::Granted { fence, attempt, .. } = reply else {
        panic!("no other owner has the key, and the store replied {reply:?}");
    };
    let lease = request.lease;
    let state = State::Pending { lease };
    let mut claim = Header::new(state, request.owner, *fence, request.retain);
    (claim.attempts, claim.fingerprint) = (*attempt, request.fingerprint);
    claim
}

/// Claims a key that no other owner has.
pub async fn take(store: &dyn Store, key: &RecordKey, request: &ClaimRequest) -> Header {
    let reply = store.claim(key, request, &unhurried()).await;
    granted(request, &reply.expect("the store is up"))
}

pub fn finished(claim: &Header, outcome: OutcomeKind, answer: &[u8]) -> Bytes {
    let mut done = *claim;
    done.state = State::Done { outcome, schema: 1 };
    [&done.encode()[..], answer].concat().into()
}

/// Completes a claim that is not lost.
pub async fn complete(store: &dyn Store, key: &RecordKey, record: &Bytes) {
    let stored = store.complete(key, None, record).await;
    let stored = stored.expect("the store is up");
    assert_eq!(stored, CompleteReply::Stored { late: false });
}
