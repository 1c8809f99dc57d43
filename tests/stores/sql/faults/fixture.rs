//! One idempotent operation on a SQL store, with its effects counted.

use std::collections::HashMap;
use std::str::FromStr as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_runtime::store::author::{ClaimReply, Owner};
use idem_runtime::store::sql::{Backend, SqlStore, SqlStoreBuilder, Sqlite, SqliteStore};
use idem_runtime::store::{RecordKey, Store, StoreError, StoreErrorKind};
use idem_runtime::{
    __private::KeyBuilder, Context, Engine, EngineBuilder, ErrorKind, OnRunning, key::Operation,
};
use idem_tests::claims::unhurried;
use idem_tests::events::Events;
use idem_tests::shop::{Failure, MARKERS, PATIENCE, asks, assert_discreet, patiently, persistent};
use sqlx::sqlite::SqliteConnectOptions;

use crate::database::{Database, Served, Server, TestDatabase};

/// The deadlines of a hasty fixture: long enough for a call without obstacles.
pub(crate) const HASTE: Duration = Duration::from_secs(3);

/// An engine on a store. Every refusal that it returns is searched for text that does not belong there.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) events: Events,
    effects: Arc<Mutex<HashMap<String, usize>>>,
}

impl Fixture {
    /// A fixture with a lease of a minute. Duplicates of running calls wait. Its deadlines suit a busy machine.
    pub(crate) fn on<B: Backend>(store: &SqlStore<B>) -> Self {
        Self::with(store, |engine| engine)
    }

    /// A fixture with short deadlines.
    pub(crate) fn hasty<B: Backend>(store: &SqlStore<B>) -> Self {
        Self::with(store, |engine| {
            engine.claim_deadline(HASTE).complete_deadline(HASTE)
        })
    }

    pub(crate) fn with<B: Backend>(
        store: &SqlStore<B>,
        settings: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let events = Events::default();
        let builder = persistent(Engine::builder(store.clone()))
            .prefix("fixture")
            .lease(Duration::from_mins(1))
            .on_running(OnRunning::Wait(PATIENCE))
            .observer(events.clone());
        Self {
            engine: settings(builder).build().unwrap(),
            events,
            effects: Arc::default(),
        }
    }

    /// Another engine on another store. Its effects count as this one's.
    #[must_use]
    pub(crate) fn beside<B: Backend>(&self, store: &SqlStore<B>) -> Self {
        self.beside_with(store, |engine| engine)
    }

    /// The same, with settings.
    #[must_use]
    pub(crate) fn beside_with<B: Backend>(
        &self,
        store: &SqlStore<B>,
        settings: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let effects = Arc::clone(&self.effects);
        Self {
            effects,
            ..Self::with(store, settings)
        }
    }

    /// Calls with a body that succeeds at once.
    pub(crate) async fn pay(&self, key: &str) -> Result<String, Failure> {
        self.pay_by(key, async |_| Ok(())).await
    }

    /// Calls with a body that does this, and then has its effect.
    pub(crate) async fn pay_by<F>(&self, key: &str, body: F) -> Result<String, Failure>
    where
        F: AsyncFnOnce(Context) -> Result<(), Failure>,
    {
        let [_, marked_key, scope, payload, answer] = MARKERS;
        let call = self.engine.operation("fixture.pay").scope(scope);
        let call = call.key(&(marked_key, key)).fingerprint(payload);
        let outcome = call
            .run(async |context: Context| {
                body(context).await?;
                let mut effects = self.effects.lock().unwrap();
                let effect = effects.entry(key.to_owned()).or_default();
                *effect += 1;
                Ok(format!("{answer} {key} {effect}"))
            })
            .await;
        if let Err(Failure::Idem(error)) = &outcome {
            assert_discreet(error);
        }
        outcome
    }

    /// How often the body of this key had its effect.
    pub(crate) fn effects(&self, key: &str) -> usize {
        self.effects.lock().unwrap().get(key).copied().unwrap_or(0)
    }

    /// How often any body had its effect.
    pub(crate) fn all_effects(&self) -> usize {
        self.effects.lock().unwrap().values().sum()
    }
}

/// A record key that no fixture uses.
pub(crate) fn elsewhere(number: u64) -> RecordKey {
    of_operation("elsewhere", number)
}

pub(crate) fn of_operation(operation: &'static str, number: u64) -> RecordKey {
    let digest = KeyBuilder::new(operation, 64).key(&number).unwrap();
    RecordKey::new("fixture".into(), Operation::new(operation), digest)
}

/// Claims without the engine's retries.
pub(crate) async fn claim<B: Backend>(store: &SqlStore<B>) -> Result<ClaimReply, StoreError> {
    claim_of(store, u64::MAX).await
}

/// The same, of the key of this number.
pub(crate) async fn claim_of<B: Backend>(
    store: &SqlStore<B>,
    number: u64,
) -> Result<ClaimReply, StoreError> {
    let request = asks(Owner::random());
    store
        .claim(&elsewhere(number), &request, &unhurried())
        .await
}

/// Panics unless the error is of this kind, complete and not confidential.
#[track_caller]
pub(crate) fn assert_says<T: std::fmt::Debug>(
    outcome: Result<T, StoreError>,
    kind: StoreErrorKind,
    parts: &[&str],
) {
    let error = outcome.expect_err("the store refuses");
    assert_discreet(&error);
    let message = error.to_string();
    assert_eq!(error.kind(), kind, "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// Panics unless a call was refused with a retryable error: its store is unavailable.
#[track_caller]
pub(crate) fn assert_retryable(outcome: Result<String, Failure>) {
    let error = outcome.expect_err("the store is not to be had").refused();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable, "{error}");
    assert!(error.is_retryable(), "{error}");
}

/// Panics unless a call was refused by a store that needs repair.
#[track_caller]
pub(crate) fn assert_permanent(outcome: Result<String, Failure>) {
    let error = outcome.expect_err("the store refuses").refused();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable, "{error}");
    assert!(!error.is_retryable(), "{error}");
}

/// A store with its table. Its deadlines suit a busy machine.
pub(crate) async fn open<B: Database>(url: &str) -> SqlStore<B> {
    open_with(url, |builder| builder).await
}

/// A database, and a store with its table.
pub(crate) async fn opened<B: Database>() -> (TestDatabase, SqlStore<B>) {
    let test_database = TestDatabase::new::<B>();
    let store = open(&test_database.url).await;
    (test_database, store)
}

/// A server, and a store with its table.
pub(crate) async fn served<B: Server>() -> (Served, SqlStore<B>) {
    let server = B::serve(&[]);
    let store = open(&server.url()).await;
    (server, store)
}

/// A store with its table, and with settings.
pub(crate) fn open_with<B: Database>(
    url: &str,
    settings: impl FnOnce(SqlStoreBuilder<B>) -> SqlStoreBuilder<B>,
) -> impl Future<Output = SqlStore<B>> {
    let builder = settings(SqlStore::builder(url).response_timeout(PATIENCE));
    async move {
        let store = builder.connect().await.unwrap();
        store.migrate().await.unwrap();
        store
    }
}

/// A store with the response time-out `soon`, on an existing table. A busy machine may delay its first connection.
pub(crate) async fn open_hasty<B: Database>(url: &str, soon: Duration) -> SqlStore<B> {
    open::<B>(url).await;
    let connecting = async {
        loop {
            let builder = SqlStore::builder(url).response_timeout(soon);
            match builder.connect().await {
                Ok(store) => return store,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    };
    patiently("the store connects", connecting).await
}

/// A store whose file can hardly grow: by so many pages.
pub(crate) async fn that_cannot_grow(test_database: &TestDatabase, by: u32) -> SqliteStore {
    drop(open::<Sqlite>(&test_database.url).await);
    let pages = test_database.sql("PRAGMA page_count").await;
    let most = pages.parse::<u32>().unwrap() + by;
    // The limit is set per connection, and lasts as long as the connection.
    let options = SqliteConnectOptions::from_str(&test_database.url).unwrap();
    let options = options.pragma("max_page_count", most.to_string());
    let store = SqliteStore::builder(options).response_timeout(PATIENCE);
    store.connect().await.unwrap()
}
