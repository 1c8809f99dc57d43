//! One operation on an engine with a cache, whose bodies are counted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use idem_runtime::clock::ManualClock;
use idem_runtime::store::Store;
use idem_runtime::store::author::Listener;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::{Faulty, Forward, StoreOperation};
use idem_runtime::{
    CallBuilder, Engine, EngineBuilder,
    admin::Entry,
    cache::{LocalCache, LocalCacheStats},
};
use idem_tests::events::Events;
use idem_tests::shop::{Failure, until};

/// Clones make the calls of one process.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) store: Faulty,
    runs: Arc<AtomicU32>,
    pub(crate) events: Events,
}

impl Fixture {
    /// A fixture with the default cache on this store.
    pub(crate) async fn on(store: Arc<dyn Store>) -> Self {
        Self::with(store, LocalCache::new(), |engine| engine).await
    }

    pub(crate) async fn with(
        store: Arc<dyn Store>,
        cache: LocalCache,
        settings: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let fixture = Self::closed(store, cache, settings);
        fixture.opens().await;
        fixture
    }

    /// A fixture whose cache need not open.
    pub(crate) fn closed(
        store: Arc<dyn Store>,
        cache: LocalCache,
        settings: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let (store, events) = (Faulty::new(store), Events::default());
        let builder = Engine::builder(store.clone()).observer(events.clone());
        Self {
            engine: settings(builder.local_cache(cache)).build().unwrap(),
            store,
            runs: Arc::default(),
            events,
        }
    }

    /// Waits until the cache keeps answers. Any call makes it open.
    pub(crate) async fn opens(&self) {
        self.pay("opens").await.unwrap();
        until("the cache opens", || self.stats().is_open).await;
    }

    /// Counts the bodies of another fixture together with its own.
    pub(crate) fn sharing(mut self, other: &Self) -> Self {
        self.runs = Arc::clone(&other.runs);
        self
    }

    pub(crate) fn call(&self, key: &str) -> CallBuilder<Classified> {
        self.engine
            .operation("fixture.pay")
            .key(key)
            .fingerprint(&1_250)
    }

    /// The run of a body that the answer is from.
    pub(crate) async fn pay(&self, key: &str) -> Result<u32, Failure> {
        self.call(key).run(async |_| Ok(self.run())).await
    }

    pub(crate) fn run(&self) -> u32 {
        self.runs.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) async fn entry(&self, key: &str) -> Entry {
        self.call(key).entry().await.unwrap().expect("a record")
    }

    pub(crate) async fn reset(&self, key: &str) {
        self.entry(key).await.reset().await.unwrap();
    }

    pub(crate) fn stats(&self) -> LocalCacheStats {
        self.engine.local_cache_stats().expect("there is a cache")
    }

    /// Number of claims sent to the store.
    pub(crate) fn claims(&self) -> usize {
        self.store.count(StoreOperation::Claim)
    }

    /// Number of calls that the cache answered.
    pub(crate) fn locals(&self) -> usize {
        let events = self.events.all();
        events
            .iter()
            .filter(|event| event.ends_with(" locally"))
            .count()
    }

    /// Number of warnings that contain this.
    pub(crate) fn warnings(&self, about: &str) -> usize {
        let events = self.events.all().into_iter();
        let warnings = events.filter(|event| event.starts_with("warning: "));
        warnings.filter(|event| event.contains(about)).count()
    }

    /// The call is answered without a command to the store.
    pub(crate) async fn is_local(&self, key: &str, run: u32) {
        let (sent, local) = (self.store.log().len(), self.locals());
        assert_eq!(self.pay(key).await, Ok(run));
        assert_eq!(self.store.log().len(), sent, "nothing is asked");
        assert_eq!(self.locals(), local + 1);
    }

    /// The call sends a claim to the store.
    pub(crate) async fn is_asked(&self, key: &str, run: u32) {
        let (claims, local) = (self.claims(), self.locals());
        assert_eq!(self.pay(key).await, Ok(run));
        assert_eq!(self.claims(), claims + 1, "the store is asked");
        assert_eq!(self.locals(), local);
    }
}

pub(crate) fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock.clone()).build()
}

/// A store with notifications by the test, as if from another process.
#[derive(Debug)]
pub(crate) struct Far {
    store: MemoryStore,
    tells: bool,
    listener: OnceLock<Weak<dyn Listener>>,
}

pub(crate) type Classified = idem_runtime::__private::Classified;

impl Far {
    /// `tells`: the store reports that it notifies, and the test has to open the cache.
    pub(crate) fn new(store: &MemoryStore, tells: bool) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            tells,
            listener: OnceLock::new(),
        })
    }

    pub(crate) async fn listener(&self) -> Arc<dyn Listener> {
        until("it is subscribed", || self.listener.get().is_some()).await;
        self.listener.get().unwrap().upgrade().unwrap()
    }
}

impl Forward for Far {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn listen(&self, _: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        if self.tells {
            self.listener.get_or_init(|| listener);
        }
        self.tells
    }
}
