//! `cached` 4: looks, runs and stores, as its macro does. Nothing keeps a second call from running.

use std::time::Duration;

use cached::ConcurrentCachedAsync as _;
use cached::stores::AsyncRedisCache;

use crate::load::driver::Work;
use crate::load::order::{Receipt, merchant};

const LIFE: Duration = Duration::from_secs(120);

#[derive(Clone)]
pub(crate) struct Shop {
    cache: std::sync::Arc<AsyncRedisCache<String, Receipt>>,
    merchant: u64,
    receipt: Receipt,
}

impl Shop {
    pub(crate) async fn new(url: &str, value_bytes: usize) -> Self {
        let cache = AsyncRedisCache::builder("cached")
            .ttl(LIFE)
            .connection_string(url);
        Self {
            cache: cache.build().await.unwrap().into(),
            merchant: merchant(),
            receipt: Receipt::of(value_bytes),
        }
    }

    /// Whether it ran.
    async fn pay(&self, number: u64) -> bool {
        let key = format!("{}-{number}", self.merchant);
        if self.cache.async_cache_get(&key).await.unwrap().is_some() {
            return false;
        }
        let receipt = self.receipt.clone();
        self.cache.async_cache_set(key, receipt).await.unwrap();
        true
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
        self.0.pay(number).await;
    }

    async fn call(&mut self, number: u64) {
        assert_ne!(self.0.pay(number).await, self.1);
    }
}
