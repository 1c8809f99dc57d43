//! idem's side: functions with the attribute, and what calls them.

use std::sync::Arc;

use idem_runtime::{Classify, Engine, Error, HasEngine, idempotent};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::driver::{STORED, Work};
use super::order::{Order, Receipt};

/// An error of each kind.
#[derive(Debug, Classify, Serialize, Deserialize)]
pub(crate) enum Fault {
    #[class(business)]
    SoldOut,
    #[class(system)]
    Down,
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

/// An engine, and what its calls answer.
#[derive(Debug)]
pub(crate) struct Shop {
    engine: Engine,
    receipt: Receipt,
}

impl HasEngine for Shop {
    fn engine(&self) -> Engine {
        self.engine.clone()
    }
}

impl Shop {
    pub(crate) fn new(engine: Engine, value_bytes: usize) -> Arc<Self> {
        let receipt = Receipt::of(value_bytes);
        Arc::new(Self { engine, receipt })
    }

    #[idempotent(op = "bench.pay", key = (order.merchant, order.number), ttl = "2m", engine = self)]
    pub(crate) async fn pay(&self, order: &Order) -> Result<Receipt, Fault> {
        Ok(self.receipt.clone())
    }

    #[idempotent(op = "bench.refuse", key = (order.merchant, order.number), ttl = "2m", engine = self)]
    pub(crate) async fn refuse(&self, order: &Order) -> Result<Receipt, Fault> {
        Err(Fault::SoldOut)
    }

    #[idempotent(op = "bench.fail", key = (order.merchant, order.number), ttl = "2m", engine = self)]
    pub(crate) async fn fail(&self, order: &Order) -> Result<Receipt, Fault> {
        Err(Fault::Down)
    }

    /// Runs until it is told to go on.
    #[idempotent(op = "bench.linger", key = (order.merchant, order.number), ttl = "2m",
        on_running = wait("20s"), engine = self)]
    pub(crate) async fn linger(
        &self,
        order: &Order,
        #[idem(skip)] gate: &Gate,
    ) -> Result<Receipt, Fault> {
        gate.entered.notify_one();
        gate.open.notified().await;
        Ok(self.receipt.clone())
    }
}

/// Holds a body, and tells that it has begun.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) entered: Notify,
    pub(crate) open: Notify,
}

/// A worker's own order, and the shop that all share.
#[derive(Clone, Debug)]
pub(crate) struct Customer {
    pub(crate) shop: Arc<Shop>,
    pub(crate) order: Order,
}

impl Customer {
    pub(crate) fn of(shop: &Arc<Shop>, merchant: u64) -> Self {
        Self {
            shop: Arc::clone(shop),
            order: Order::of(merchant),
        }
    }
}

/// A new order each time.
#[derive(Clone, Debug)]
pub(crate) struct First(pub(crate) Customer);

impl Work for First {
    async fn call(&mut self, number: u64) {
        self.0.order.number = STORED + number;
        self.0.shop.pay(&self.0.order).await.unwrap();
    }
}

/// An order that is answered already.
#[derive(Clone, Debug)]
pub(crate) struct Replay(pub(crate) Customer);

impl Work for Replay {
    fn fills(&self) -> bool {
        true
    }

    async fn fill(&mut self, number: u64) {
        self.call(number).await;
    }

    async fn call(&mut self, number: u64) {
        self.0.order.number = number % STORED;
        let receipt = self.0.shop.pay(&self.0.order).await.unwrap();
        assert_eq!(receipt.cents, 129_900);
    }
}

/// A new order, twice.
#[derive(Clone, Debug)]
pub(crate) struct FirstAndReplay(pub(crate) Customer);

impl Work for FirstAndReplay {
    async fn call(&mut self, number: u64) {
        self.0.order.number = STORED + number;
        self.0.shop.pay(&self.0.order).await.unwrap();
        self.0.shop.pay(&self.0.order).await.unwrap();
    }
}

/// An order that was refused.
#[derive(Clone, Debug)]
pub(crate) struct BusinessError(pub(crate) Customer);

impl Work for BusinessError {
    fn fills(&self) -> bool {
        true
    }

    async fn fill(&mut self, number: u64) {
        self.call(number).await;
    }

    async fn call(&mut self, number: u64) {
        self.0.order.number = number % STORED;
        let refused = self.0.shop.refuse(&self.0.order).await;
        assert!(matches!(refused, Err(Fault::SoldOut)));
    }
}

/// An order that gives its key back.
#[derive(Clone, Debug)]
pub(crate) struct Release(pub(crate) Customer);

impl Work for Release {
    async fn call(&mut self, number: u64) {
        self.0.order.number = STORED + number;
        let failed = self.0.shop.fail(&self.0.order).await;
        assert!(matches!(failed, Err(Fault::Down)));
    }
}
