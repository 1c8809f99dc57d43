//! `idempotent` 2, on its store for Redis.

use std::time::Duration;

use idempotent::fingerprint::body;
use idempotent::{ExecutionOutcome, IdempotencyKey, IdempotencyStore as _, valkey::ValkeyStore};

use crate::load::driver::Work;
use crate::load::order::{Order, Receipt, merchant};

const LEASE: Duration = Duration::from_secs(30);
const LIFE: Duration = Duration::from_secs(120);

#[derive(Clone)]
pub(crate) struct Shop {
    store: ValkeyStore,
    order: Order,
    receipt: Receipt,
}

impl Shop {
    pub(crate) async fn new(url: &str, value_bytes: usize) -> Self {
        let store = ValkeyStore::with_url(url).prefix("idempotent");
        Self {
            store: store.try_build().await.unwrap(),
            order: Order::of(merchant()),
            receipt: Receipt::of(value_bytes),
        }
    }

    async fn pay(&self) -> ExecutionOutcome<Receipt> {
        let Order {
            merchant, number, ..
        } = self.order;
        let key = IdempotencyKey::new(format!("{merchant}-{number}")).unwrap();
        let claim = self.store.claim(&key, LEASE);
        let claim = claim.fingerprint("bench.pay", &body(&self.order)).json();
        let receipt = &self.receipt;
        let answer = claim.execute_or_replay(LIFE, |_| async { Ok(receipt.clone()) });
        answer.await.unwrap()
    }
}

/// Payments: of orders that are answered already, or of new ones.
#[derive(Clone)]
pub(crate) struct Calls(pub(crate) Shop, pub(crate) bool);

impl Work for Calls {
    fn fills(&self) -> bool {
        self.1
    }

    async fn fill(&mut self, number: u64) {
        self.0.order.number = number;
        self.0.pay().await;
    }

    async fn call(&mut self, number: u64) {
        self.0.order.number = number;
        let replayed = matches!(self.0.pay().await, ExecutionOutcome::Replayed(_));
        assert_eq!(replayed, self.1);
    }
}
