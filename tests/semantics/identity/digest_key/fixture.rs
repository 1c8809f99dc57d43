//! Engines on one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use idem_harness::TestDir;
use idem_runtime::store::Store;
use idem_runtime::{CallBuilder, Classify, Engine, EngineBuilder, Error, ErrorKind};
use idem_tests::events::Events;
use idem_tests::fixture::Classified;
use serde::{Deserialize, Serialize};

pub(crate) use crate::identity::stores::{Kind, patiently};
use crate::identity::stores::{number, open};

/// The secrets before and after a change.
pub(crate) const OLD: [u8; 32] = [3; 32];
pub(crate) const NEW: [u8; 32] = [4; 32];
pub(crate) const OPERATION: &str = "cards.charge";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Classify)]
pub(crate) enum ChargeError {
    #[class(system)]
    Down,
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for ChargeError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

/// Which run of a body it was.
pub(crate) type Answer = Result<u32, ChargeError>;

/// Why idem refused a call.
pub(crate) fn refusal(answer: Answer) -> ErrorKind {
    match answer {
        Err(ChargeError::Idem(error)) => error.kind().clone(),
        other => panic!("idem did not refuse: {other:?}"),
    }
}

#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) prefix: String,
    pub(crate) events: Events,
    /// Bodies that ran.
    runs: Arc<AtomicU32>,
    _dir: Option<TestDir>,
}

impl Fixture {
    pub(crate) async fn new(kind: Kind) -> Self {
        let (store, dir) = open(kind).await;
        Self {
            _dir: dir,
            ..Self::on(store)
        }
    }

    pub(crate) fn on(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            prefix: format!("cards-{}", number()),
            events: Events::default(),
            runs: Arc::default(),
            _dir: None,
        }
    }

    /// The engine of a process with this secret, or with none.
    pub(crate) fn engine(&self, secret: Option<[u8; 32]>) -> Engine {
        let builder = Engine::builder(Arc::clone(&self.store)).prefix(self.prefix.clone());
        let mut builder = builder.observer(self.events.clone());
        if let Some(secret) = secret {
            builder = builder.digest_key(secret);
        }
        builder.build().expect("the settings are right")
    }

    /// The engine of a process after a change of the secret.
    pub(crate) fn engine_after(
        &self,
        former: Option<[u8; 32]>,
        secret: Option<[u8; 32]>,
    ) -> Engine {
        let builder = self.after(former, secret);
        builder.build().expect("the settings are right")
    }

    pub(crate) fn after(
        &self,
        former: Option<[u8; 32]>,
        secret: Option<[u8; 32]>,
    ) -> EngineBuilder {
        let builder = Engine::builder(Arc::clone(&self.store)).prefix(self.prefix.clone());
        let builder = builder.observer(self.events.clone());
        let builder = match secret {
            Some(secret) => builder.digest_key(secret),
            None => builder,
        };
        match former {
            Some(secret) => builder.former_digest_key(secret),
            None => builder.formerly_without_digest_key(),
        }
    }

    pub(crate) fn call(engine: &Engine, card: &str, cents: u64) -> CallBuilder<Classified> {
        engine.operation(OPERATION).key(card).fingerprint(&cents)
    }

    /// A charge that succeeds, if it runs.
    pub(crate) async fn charge(&self, engine: &Engine, card: &str, cents: u64) -> Answer {
        self.charged(Self::call(engine, card, cents), Ok(())).await
    }

    /// A charge that ends like this, if it runs.
    pub(crate) async fn charged(
        &self,
        call: CallBuilder<Classified>,
        end: Result<(), ChargeError>,
    ) -> Answer {
        let run = self.run();
        patiently("a charge", call.run(|_| async move { end.map(|()| run()) })).await
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Counts a body.
    pub(crate) fn run(&self) -> impl FnOnce() -> u32 + Send + use<> {
        let runs = Arc::clone(&self.runs);
        move || runs.fetch_add(1, Ordering::SeqCst) + 1
    }
}
