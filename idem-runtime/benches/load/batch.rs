//! Hundreds of claims and whole calls, sequential and at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{Admission, ClaimReply, ClaimRequest, Owner};
use idem_runtime::store::{RecordKey, Store};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::driver::Work;
use super::shop::Customer;

/// Calls of one batch.
const BATCH: u64 = 100;

/// Batches of a case at once: more calls than this makes the store refuses as too many.
const AT_ONCE: usize = 8;

/// The cases of a store; a call of each is a batch.
pub(crate) fn batches(
    store: &Arc<dyn Store>,
    customer: impl Fn() -> Customer,
    mut add: impl FnMut(&'static str, Batch),
) {
    for (claims, firsts, at_once) in [
        ("claims_in_turn", "firsts_in_turn", false),
        ("claims_at_once", "firsts_at_once", true),
    ] {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let of = |call| Batch {
            call,
            at_once,
            turns: Arc::clone(&turns),
        };
        add(claims, of(Call::Claim(Arc::clone(store))));
        add(firsts, of(Call::First(customer())));
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    call: Call,
    at_once: bool,
    turns: Arc<Semaphore>,
}

#[derive(Clone)]
enum Call {
    /// A claim alone, by the store's own operation.
    Claim(Arc<dyn Store>),
    /// A claim and its answer.
    First(Customer),
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl Call {
    async fn make(&mut self, number: u64) {
        match self {
            Self::Claim(store) => {
                let (key, owner) = (random_key(), Owner::random());
                let (lease, retain) = (Duration::from_secs(30), Duration::from_secs(2 * 60));
                let request = ClaimRequest::new(owner, lease, retain);
                let reply = store
                    .claim(&key, &request, &Admission::new(lease))
                    .await
                    .unwrap();
                assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
            }
            Self::First(customer) => {
                customer.order.number = number;
                customer.shop.pay(&customer.order).await.unwrap();
            }
        }
    }
}

fn random_key() -> RecordKey {
    let halves = [Owner::random(), Owner::random()];
    let halves = halves.map(|half| *half.as_bytes());
    let digest = halves.concat().try_into().unwrap();
    let operation = Operation::new("bench.claim");
    RecordKey::new("bench".into(), operation, KeyDigest::from_bytes(digest))
}

impl Work for Batch {
    async fn call(&mut self, number: u64) {
        let _turn = self.turns.acquire().await.unwrap();
        let numbers = number * BATCH..(number + 1) * BATCH;
        if !self.at_once {
            for number in numbers {
                self.call.make(number).await;
            }
            return;
        }
        let mut calls = JoinSet::new();
        for number in numbers {
            let mut call = self.call.clone();
            calls.spawn(async move { call.make(number).await });
        }
        while let Some(made) = calls.join_next().await {
            made.unwrap();
        }
    }
}
