//! Two stores as one, as a fixture of the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use idem_conformance::{BoxFuture, Fixture, Plant};
use idem_runtime::store::author::ReadCache;
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::{RecordKey, Store};

use crate::shop::{PATIENCE, until};

/// Duration of a reset.
const TRUST: Duration = Duration::from_millis(50);

/// A store of one fixture in front of the store of another.
pub struct InLayers {
    front: Arc<dyn ReadCache>,
    fast: Arc<dyn Fixture>,
    durable: Arc<dyn Fixture>,
    store: LayeredStore,
}

impl InLayers {
    /// `front` is the store of `fast`. The durable store uses the same prefix.
    pub fn new(
        front: Arc<dyn ReadCache>,
        fast: Arc<dyn Fixture>,
        durable: Arc<dyn Fixture>,
    ) -> Self {
        let store = LayeredStore::over(Arc::clone(&front), durable.store())
            .patience(PATIENCE)
            .trust(TRUST)
            .build();
        Self {
            front,
            fast,
            durable,
            store,
        }
    }

    /// Waits until all copies are made.
    async fn settle(&self) {
        until("the copies are made", || self.store.stats().writing == 0).await;
    }
}

impl Fixture for InLayers {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn prefix(&self) -> Arc<str> {
        self.fast.prefix()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.settle().await;
            self.durable.advance(by).await;
            self.fast.advance(by).await;
        })
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            self.settle().await;
            let planted = self.durable.plant(key, plant).await;
            let forgotten = self.store.forget(key).await;
            forgotten.expect("the fast store is up");
            planted
        })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        self.durable.peek(key)
    }

    fn drift(&self) -> Duration {
        self.fast.drift().max(self.durable.drift())
    }

    fn patience(&self) -> Duration {
        self.fast.patience().max(self.durable.patience())
    }

    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        Box::pin(async move {
            let durable = self.durable.scarce().await?;
            let (front, fast) = (Arc::clone(&self.front), Arc::clone(&self.fast));
            Some(Arc::new(Self::new(front, fast, durable)) as Arc<dyn Fixture>)
        })
    }
}
