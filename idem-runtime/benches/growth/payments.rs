//! Calls whose records live for a day, under the names that they would have in a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use idem_runtime::store::RecordKey;
use idem_runtime::{
    Engine, Error, HasEngine, idempotent,
    key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, Operation},
};

use super::load::driver::Work;
use super::load::order::{Order, Receipt};
use super::load::shop::Gate;

const OP: &str = "payments.pay";
/// The life of every record here, in milliseconds.
pub(crate) const DAY: u64 = 86_400_000;

/// The function that is called.
#[derive(Debug)]
pub(crate) struct Payments {
    engine: Engine,
    receipt: Receipt,
}

impl HasEngine for Payments {
    fn engine(&self) -> Engine {
        self.engine.clone()
    }
}

impl Payments {
    pub(crate) fn new(engine: Engine, value_bytes: usize) -> Arc<Self> {
        let receipt = Receipt::of(value_bytes);
        Arc::new(Self { engine, receipt })
    }

    /// The fingerprint leaves the number out, which is the key anyway: so one record, byte for byte,
    /// is right under the name of any order.
    #[idempotent(op = "payments.pay", key = (order.merchant, order.number), ttl = "24h",
        fingerprint(order.customer, order.currency, order.cents, order.address), engine = self)]
    pub(crate) async fn pay(
        &self,
        order: &Order,
        #[idem(skip)] gate: Option<&Gate>,
    ) -> Result<Receipt, Error> {
        if let Some(gate) = gate {
            gate.entered.notify_one();
            gate.open.notified().await;
        }
        Ok(self.receipt.clone())
    }
}

/// Where the record of an order is.
pub(crate) fn name(merchant: u64, number: u64) -> String {
    let key = KeyBuilder::new(OP, DEFAULT_MAX_KEY_BYTES).key(&(merchant, number));
    RecordKey::new("idem".into(), Operation::new(OP), key.unwrap()).name()
}

/// A new order each time; remembers which ones, so that they can be deleted.
#[derive(Clone, Debug)]
pub(crate) struct First {
    pub(crate) payments: Arc<Payments>,
    pub(crate) order: Order,
    pub(crate) made: Arc<Made>,
}

/// The lowest and the highest number of the orders made.
#[derive(Debug)]
pub(crate) struct Made {
    lowest: AtomicU64,
    highest: AtomicU64,
}

impl Made {
    pub(crate) fn none() -> Self {
        Self {
            lowest: AtomicU64::new(u64::MAX),
            highest: AtomicU64::new(0),
        }
    }

    /// These numbers; from now on it is none again.
    pub(crate) fn take(&self) -> std::ops::Range<u64> {
        let lowest = self.lowest.swap(u64::MAX, Ordering::Relaxed);
        lowest..self.highest.swap(0, Ordering::Relaxed) + 1
    }
}

impl Work for First {
    async fn call(&mut self, number: u64) {
        self.order.number = number;
        self.payments.pay(&self.order, None).await.unwrap();
        self.made.lowest.fetch_min(number, Ordering::Relaxed);
        self.made.highest.fetch_max(number, Ordering::Relaxed);
    }
}

/// An order that is answered already, any of so many.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub(crate) payments: Arc<Payments>,
    pub(crate) order: Order,
    pub(crate) stored: u64,
}

impl Work for Replay {
    async fn call(&mut self, number: u64) {
        self.order.number = scattered(number) % self.stored;
        let receipt = self.payments.pay(&self.order, None).await.unwrap();
        assert_eq!(receipt.cents, 129_900);
    }
}

/// The finalizer of `SplitMix64`: numbers that follow each other come to lie far apart.
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
