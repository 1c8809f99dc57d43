//! The settings of a layered store.

use std::sync::Arc;
use std::time::Duration;

use super::background::Background;
use super::breaker::Breaker;
use super::epochs::Epochs;
use super::layers::Layers;
use super::stats::Counters;
use super::store::LayeredStore;
use super::unacked::UnackedCompletions;
use crate::store::Store;
use crate::store::observers::Observers;
use crate::store::read_cache::ReadCache;

/// The first pause of requests after failures in a row.
const PAUSE: Duration = Duration::from_secs(1);

/// Configures a [`LayeredStore`].
#[derive(Debug)]
#[must_use]
pub struct LayeredStoreBuilder {
    fast: Arc<dyn ReadCache>,
    durable: Arc<dyn Store>,
    patience: Duration,
    trust: Duration,
}

impl LayeredStore {
    /// Configures a store.
    pub fn builder(fast: impl ReadCache, durable: impl Store) -> LayeredStoreBuilder {
        LayeredStoreBuilder::new(Arc::new(fast), Arc::new(durable))
    }

    /// Configures a store on two stores that are shared already.
    pub fn over(fast: Arc<dyn ReadCache>, durable: Arc<dyn Store>) -> LayeredStoreBuilder {
        LayeredStoreBuilder::new(fast, durable)
    }
}

impl LayeredStoreBuilder {
    fn new(fast: Arc<dyn ReadCache>, durable: Arc<dyn Store>) -> Self {
        Self {
            fast,
            durable,
            patience: Duration::from_millis(50),
            trust: Duration::from_secs(1),
        }
    }

    /// The longest wait of a call for the fast store.
    ///
    /// Default 50 ms. After that the call queries the durable store.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.min(Duration::from_secs(60));
        self
    }

    /// How long copies are trusted without the durable store's reply.
    ///
    /// Default 1 s, at most a minute. While calls are made, one small record is read from the durable store every half
    /// of this, once a process and prefix. The same for all processes that share the records.
    ///
    /// [`Entry::reset`](crate::admin::Entry::reset) of an answered key takes this long, and fails after another
    /// [`claim_deadline`](crate::EngineBuilder::claim_deadline) of the engine.
    pub fn trust(mut self, trust: Duration) -> Self {
        self.trust = trust.min(Duration::from_secs(60));
        self
    }

    /// Builds the store.
    #[must_use]
    pub fn build(self) -> LayeredStore {
        LayeredStore(Arc::new(Layers {
            fast: self.fast,
            durable: self.durable,
            patience: self.patience,
            epochs: Epochs::new(self.trust),
            breaker: Breaker::new(PAUSE),
            background: Background::default(),
            counters: Counters::default(),
            unacked: UnackedCompletions::default(),
            observers: Observers::default(),
        }))
    }
}
