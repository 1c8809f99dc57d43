//! A fast store that connects lazily.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::env::lock::Lock;
use crate::store::read_cache::{Copied, ReadCache};
use crate::store::{Owner, RecordKey, StoreError, StoreErrorKind, StoreFuture, Watch};

type FirstConnection<S> = Pin<Box<dyn Future<Output = Result<S, StoreError>> + Send>>;

struct Connector<S> {
    connect: Box<dyn Fn() -> FirstConnection<S> + Send + Sync>,
    store: OnceLock<S>,
    state: Lock<Connection>,
}

#[derive(Default)]
struct Connection {
    connecting: bool,
    failure: Option<StoreError>,
}

/// A fast store that may be down when the process starts.
///
/// It connects at the first request, and, as long as that fails, at each probe of the
/// [`LayeredStore`](super::LayeredStore) for its return.
///
/// ```no_run
/// # #[cfg(feature = "redis")] {
/// use idem_runtime::store::layered::{LayeredStore, LazyStore};
/// use idem_runtime::store::{memory::MemoryStore, redis::RedisStore};
///
/// let fast = LazyStore::new(|| RedisStore::connect("redis://localhost"));
/// let durable = MemoryStore::new(); // in production a database
/// let store = LayeredStore::new(fast, durable);
/// # }
/// ```
pub struct LazyStore<S>(Arc<Connector<S>>);

impl<S: ReadCache> LazyStore<S> {
    /// A store that `connect` connects in the background, with retries.
    pub fn new<F, C>(connect: C) -> Self
    where
        F: Future<Output = Result<S, StoreError>> + Send + 'static,
        C: Fn() -> F + Send + Sync + 'static,
    {
        Self(Arc::new(Connector {
            connect: Box::new(move || Box::pin(connect())),
            store: OnceLock::new(),
            state: Lock::default(),
        }))
    }

    /// The store, if it is connected.
    #[must_use]
    pub fn get(&self) -> Option<&S> {
        self.0.store.get()
    }

    /// Starts to connect, and returns why there is no connection yet.
    ///
    /// It starts nothing while an attempt is under way.
    fn connect(&self) -> StoreError {
        let mut state = self.0.state.lock();
        let why = state.failure.clone().unwrap_or_else(|| {
            let message = "the store in front is not connected yet";
            StoreError::new(StoreErrorKind::Unavailable, message)
        });
        if !state.connecting
            && let Ok(here) = Handle::try_current()
        {
            state.connecting = true;
            let attempt = ConnectAttempt(Arc::clone(&self.0));
            here.spawn(attempt.run());
        }
        why
    }

    fn with<'a, T>(
        &'a self,
        request: impl FnOnce(&'a S) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        match self.0.store.get() {
            Some(store) => request(store),
            None => StoreFuture::ready(Err(self.connect())),
        }
    }
}

/// One attempt to connect. It is dropped with its runtime.
struct ConnectAttempt<S>(Arc<Connector<S>>);

impl<S> ConnectAttempt<S> {
    async fn run(self) {
        let outcome = (self.0.connect)().await;
        let mut state = self.0.state.lock();
        match outcome {
            Ok(store) => {
                // Only one attempt runs at a time.
                let _ = self.0.store.set(store);
                state.failure = None;
            }
            Err(error) => state.failure = Some(error),
        }
    }
}

impl<S> Drop for ConnectAttempt<S> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.connecting = false;
    }
}

impl<S: ReadCache> ReadCache for LazyStore<S> {
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        self.with(|store| store.look(key))
    }

    fn keep<'a>(
        &'a self,
        key: &'a RecordKey,
        copy: &'a Bytes,
        left: Duration,
    ) -> StoreFuture<'a, ()> {
        self.with(|store| store.keep(key, copy, left))
    }

    fn forget<'a>(&'a self, key: &'a RecordKey, owner: Option<&'a Owner>) -> StoreFuture<'a, ()> {
        self.with(|store| store.forget(key, owner))
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        self.with(|store| store.poll(key))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        self.with(|store| store.watch(key))
    }

    fn max_record_bytes(&self) -> Option<usize> {
        self.get().and_then(S::max_record_bytes)
    }

    fn is_shared(&self) -> bool {
        // A store without a connection may turn out to be shared.
        self.get().is_none_or(S::is_shared)
    }

    fn warnings(&self) -> Vec<String> {
        self.get().map(S::warnings).unwrap_or_default()
    }
}

impl<S: fmt::Debug> fmt::Debug for LazyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyStore")
            .field(&self.0.store.get())
            .finish()
    }
}
