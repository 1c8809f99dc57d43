//! One operation on an engine with a cache, whose bodies are counted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{Listener, Store};
use idem_runtime::testing::{Faulty, Forward, StoreOperation};
use idem_runtime::{
    CallBuilder, Engine, EngineBuilder, Observer,
    admin::Entry,
    cache::{LocalCache, LocalCacheStats},
    observe::{Event, EventKind},
};
use idem_tests::shop::{Failure, until};

/// Clones make the calls of one process.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) store: Faulty,
    runs: Arc<AtomicU32>,
    pub(crate) told: Told,
}

/// Events of the engine: sources of replays, and warnings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|told| *told == what).count()
    }
}

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        let line = match event.kind {
            EventKind::Replayed { local: true, .. } => "local".to_owned(),
            EventKind::Replayed { .. } => "replayed".to_owned(),
            EventKind::Warning { message } => format!("warning: {message}"),
            _ => return,
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
    }
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
        let (store, told) = (Faulty::over(store), Told::default());
        let builder = Engine::builder(store.clone()).observer(told.clone());
        Self {
            engine: settings(builder.local_cache(cache)).build().unwrap(),
            store,
            runs: Arc::default(),
            told,
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

    /// A body.
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

    /// The call is answered without a command to the store.
    pub(crate) async fn is_local(&self, key: &str, run: u32) {
        let (sent, local) = (self.store.log().len(), self.told.count("local"));
        assert_eq!(self.pay(key).await, Ok(run));
        assert_eq!(self.store.log().len(), sent, "nothing is asked");
        assert_eq!(self.told.count("local"), local + 1);
    }

    /// The call sends a claim to the store.
    pub(crate) async fn is_asked(&self, key: &str, run: u32) {
        let (claims, local) = (self.claims(), self.told.count("local"));
        assert_eq!(self.pay(key).await, Ok(run));
        assert_eq!(self.claims(), claims + 1, "the store is asked");
        assert_eq!(self.told.count("local"), local);
    }
}

/// A memory store on this clock.
pub(crate) fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock.clone()).build()
}

/// A store whose notifications the test sends, as if they came from another process.
#[derive(Debug)]
pub(crate) struct Far {
    store: MemoryStore,
    tells: bool,
    listener: Mutex<Option<Listening>>,
}

pub(crate) type Classified = idem_runtime::__private::Classified;

pub(crate) struct Listening(Weak<dyn Listener>);

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listening")
    }
}

impl Far {
    /// `tells`: the store reports that it notifies, and the test has to open the cache.
    pub(crate) fn new(store: &MemoryStore, tells: bool) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            tells,
            listener: Mutex::default(),
        })
    }

    pub(crate) async fn listener(&self) -> Arc<dyn Listener> {
        let there = || self.listener.lock().unwrap();
        until("somebody listens", || there().is_some()).await;
        let listener = there();
        listener.as_ref().unwrap().0.upgrade().unwrap()
    }
}

impl Forward for Far {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn listen(&self, _: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        if self.tells {
            *self.listener.lock().unwrap() = Some(Listening(listener));
        }
        self.tells
    }
}
