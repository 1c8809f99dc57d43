//! One idempotent operation on a store in Redis, with its body counted.

mod patience;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_harness::RedisServer;
use idem_runtime::store::author::{ClaimRequest, Owner};
use idem_runtime::store::redis::{RedisStore, RedisStoreBuilder};
use idem_runtime::store::{RecordKey, Store, StoreErrorKind};
use idem_runtime::{
    __private::KeyBuilder,
    Classify, Context, Engine, EngineBuilder, Error, Observer, OnRunning,
    key::Operation,
    observe::{Event, EventKind},
};
use serde::{Deserialize, Serialize};

pub use self::patience::{
    PATIENCE, cluster_is_up, connect, connected, engine, happened, patient, patiently, persistent,
    proxied, started, until,
};
pub use self::verdict::{
    assert_contains, assert_discreet, assert_no_marker, assert_no_store, assert_refused,
    assert_refused_by_store, assert_starts, assert_store_says, assert_unavailable,
    assert_unreachable, chain, refused,
};
use crate::events::Events;

pub const PASSWORD: &str = "password-marker";
const KEY: &str = "key-marker";
const SCOPE: &str = "scope-marker";
const PAYLOAD: &str = "payload-marker";
const ANSWER: &str = "answer-marker";

/// Text of users and operators that no message or key contains.
pub const MARKERS: [&str; 5] = [PASSWORD, KEY, SCOPE, PAYLOAD, ANSWER];

/// An ordinary claim, for a minute.
pub fn asks(owner: Owner) -> ClaimRequest {
    ClaimRequest::new(owner, Duration::from_mins(1), Duration::from_mins(2))
}

/// Deadline of a hasty shop: long enough for an undisturbed call, on a machine that has been
/// stopped for a second or two.
pub const HASTE: Duration = Duration::from_secs(3);

/// Allowance of a call beyond its deadline on a busy machine.
pub const SLACK: Duration = Duration::from_secs(10);

/// Error of a body, and its class.
#[derive(Classify, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Failure {
    #[class(business)]
    Declined,
    #[class(system)]
    Down,
    /// idem's own refusal.
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl Failure {
    /// idem's own refusal. Any other error is a failure of the test.
    pub fn refused(self) -> Error {
        match self {
            Self::Idem(error) => error,
            other => panic!("the body ended with {other:?}; a refusal was expected"),
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Number of the body in its shop.
    pub run: usize,
    pub attempt: u16,
    pub fence: u64,
    /// Text that must not occur in messages.
    pub memo: String,
}

/// An engine on Redis with a prefix of its own.
///
/// Every refusal that it returns is searched for text that it must not contain.
#[derive(Clone, Debug)]
pub struct Shop {
    pub events: Events,
    store: RedisStore,
    engine: Engine,
    /// Another process: makes the calls of a body, because a body may not wait for itself.
    far: Engine,
    prefix: String,
    runs: Arc<AtomicUsize>,
}

/// Events of an additional engine, without its warnings.
#[derive(Debug)]
struct WithoutWarnings(Events);

impl Observer for WithoutWarnings {
    fn observe(&self, event: &Event<'_>) {
        if !matches!(event.kind, EventKind::Warning { .. }) {
            self.0.observe(event);
        }
    }
}

impl Shop {
    /// A shop with a lease of a minute, refusing running duplicates. Its deadlines suit a busy machine.
    pub async fn open(url: &str) -> Self {
        Self::open_with(url, patient, persistent).await
    }

    /// A shop whose engine times out on the store after [`HASTE`]. Its store times out on a reply after a quarter of
    /// that.
    pub async fn open_hasty(url: &str) -> Self {
        Self::open_with(url, |store| store.response_timeout(HASTE / 4), hasty).await
    }

    /// A shop of [`open`](Self::open), and its server.
    pub async fn alone() -> (RedisServer, Self) {
        let server = RedisServer::start();
        let shop = Self::open(&server.url()).await;
        (server, shop)
    }

    /// A shop of [`open_hasty`](Self::open_hasty), and its server.
    pub async fn alone_and_hasty() -> (RedisServer, Self) {
        let server = RedisServer::start();
        let shop = Self::open_hasty(&server.url()).await;
        (server, shop)
    }

    pub async fn open_with(
        url: &str,
        store: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
        engine: impl Fn(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let store = connected(store(RedisStore::builder(url))).await;
        Self::on(store, engine)
    }

    pub fn on(store: RedisStore, settings: impl Fn(EngineBuilder) -> EngineBuilder) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("idem:{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self::with_prefix(&prefix, store, settings)
    }

    /// A shop among the records of this prefix.
    pub fn with_prefix(
        prefix: &str,
        store: RedisStore,
        settings: impl Fn(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let events = Events::default();
        let builder = || {
            Engine::builder(store.clone())
                .prefix(prefix)
                .lease(Duration::from_mins(1))
                .on_running(OnRunning::Reject)
        };
        let engine = settings(builder().observer(events.clone()));
        // It has the same warnings, which are reported once.
        let far = settings(builder().observer(WithoutWarnings(events.clone())));
        let [engine, far] = [engine, far].map(|engine| engine.build().expect("the settings agree"));
        Self {
            events,
            store,
            engine,
            far,
            prefix: prefix.to_owned(),
            runs: Arc::default(),
        }
    }

    /// The same shop in another process.
    pub fn far(&self) -> Self {
        Self {
            engine: self.far.clone(),
            ..self.clone()
        }
    }

    /// Another hasty shop on the same records, with separate bodies and events.
    pub async fn beside_hasty(&self, url: &str) -> Self {
        let store = connected(RedisStore::builder(url).response_timeout(HASTE / 4)).await;
        Self::with_prefix(&self.prefix, store, hasty)
    }

    /// The store's refusal of another key's claim, without the engine's retries.
    pub async fn store_says(&self) -> (StoreErrorKind, String) {
        // A refused claim may have landed.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let digest = KeyBuilder::new("shop.ask", 64)
            .key(&NEXT.fetch_add(1, Ordering::Relaxed))
            .expect("a good key");
        let prefix = self.prefix.clone().into();
        let key = RecordKey::new(prefix, Operation::new("shop.ask"), digest);
        let request = asks(Owner::random());
        let error = self
            .store
            .claim(&key, &request, &crate::claims::unhurried())
            .await;
        let error = error.expect_err("the claim is refused");
        assert_discreet(&error);
        (error.kind(), error.to_string())
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Number of bodies that have begun.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Calls with a body that succeeds at once.
    pub async fn pay(&self, key: &str) -> Result<Receipt, Failure> {
        self.pay_for(key, 1, async |_| Ok(())).await
    }

    pub async fn pay_by<F>(&self, key: &str, body: F) -> Result<Receipt, Failure>
    where
        F: AsyncFnOnce(Context) -> Result<(), Failure>,
    {
        self.pay_for(key, 1, body).await
    }

    /// Calls with a body that makes this change, and succeeds.
    pub async fn pay_while<T>(
        &self,
        key: &str,
        change: impl FnOnce() -> T,
    ) -> Result<Receipt, Failure> {
        let body = async |_| {
            change();
            Ok(())
        };
        self.pay_by(key, body).await
    }

    /// Panics unless its store refuses claims as unavailable with this message.
    pub async fn says_unavailable(&self, part: &str) {
        assert_store_says(self, StoreErrorKind::Unavailable, part).await;
    }

    /// Calls with this amount as the payload.
    pub async fn pay_for<F>(&self, key: &str, amount: u32, body: F) -> Result<Receipt, Failure>
    where
        F: AsyncFnOnce(Context) -> Result<(), Failure>,
    {
        self.pay_with_memo(key, amount, ANSWER.to_owned(), body)
            .await
    }

    /// Calls with this text in the answer.
    pub async fn pay_with_memo<F>(
        &self,
        key: &str,
        amount: u32,
        memo: String,
        body: F,
    ) -> Result<Receipt, Failure>
    where
        F: AsyncFnOnce(Context) -> Result<(), Failure>,
    {
        let engine = match idem_runtime::try_context() {
            Some(_) => &self.far,
            None => &self.engine,
        };
        let call = engine.operation("shop.pay");
        let call = call.scope(SCOPE).key(&(KEY, key));
        let answer = call
            .fingerprint(&(PAYLOAD, amount))
            .run(async |context: Context| {
                let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
                let (attempt, fence) = (context.attempt(), context.fence().await?.get());
                body(context).await?;
                Ok(Receipt {
                    run,
                    attempt,
                    fence,
                    memo,
                })
            })
            .await;
        if let Err(Failure::Idem(error)) = &answer {
            assert_discreet(error);
        }
        for told in self.events.all() {
            assert_no_marker(&told);
        }
        answer
    }

    /// Ages the claims of this shop.
    pub fn advance(&self, server: &RedisServer, age: Duration) {
        server.advance(age, &format!("{}:", self.prefix));
    }
}

pub fn hasty(engine: EngineBuilder) -> EngineBuilder {
    engine.claim_deadline(HASTE).complete_deadline(HASTE)
}
