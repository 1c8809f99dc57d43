//! idem's side: functions with the attribute, and what calls them.

use std::sync::Arc;

use idem_runtime::{Classify, Engine, Error, HasEngine, idempotent};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::driver::Work;
use super::order::{Order, Receipt, merchant};

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

/// The call of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A new order each time.
    First,
    /// An order that is answered already.
    Replay,
    /// A new order, twice.
    FirstAndReplay,
    /// An order that was refused.
    BusinessError,
    /// An order that gives its key back.
    Release,
}

impl Kind {
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("first", Self::First),
        ("replay", Self::Replay),
        ("first+replay", Self::FirstAndReplay),
        ("business_error", Self::BusinessError),
        ("release", Self::Release),
    ];
}

/// A worker's own order, and the shop that all share.
#[derive(Clone, Debug)]
pub(crate) struct Customer {
    pub(crate) shop: Arc<Shop>,
    pub(crate) order: Order,
    kind: Kind,
}

impl Customer {
    pub(crate) fn of(shop: &Arc<Shop>, kind: Kind) -> Self {
        Self {
            shop: Arc::clone(shop),
            order: Order::of(merchant()),
            kind,
        }
    }
}

impl Work for Customer {
    fn fills(&self) -> bool {
        matches!(self.kind, Kind::Replay | Kind::BusinessError)
    }

    async fn call(&mut self, number: u64) {
        self.order.number = number;
        let (shop, order) = (&self.shop, &self.order);
        match self.kind {
            Kind::First => drop(shop.pay(order).await.unwrap()),
            Kind::Replay => assert_eq!(shop.pay(order).await.unwrap().cents, 129_900),
            Kind::FirstAndReplay => {
                shop.pay(order).await.unwrap();
                shop.pay(order).await.unwrap();
            }
            Kind::BusinessError => {
                let refused = shop.refuse(order).await;
                assert!(matches!(refused, Err(Fault::SoldOut)));
            }
            Kind::Release => {
                let failed = shop.fail(order).await;
                assert!(matches!(failed, Err(Fault::Down)));
            }
        }
    }
}
