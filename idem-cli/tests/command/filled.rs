//! A store with a record in each state.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::__private::{DEFAULT_MAX_KEY_BYTES, KeyBuilder};
use idem_runtime::claim::Acquired;
use idem_runtime::key::{Operation, ToKey};
use idem_runtime::store::author::{Admission, ClaimReply, ClaimRequest, Header, Owner, State};
use idem_runtime::store::redis::{RedisStore, RedisStoreBuilder};
use idem_runtime::store::sql::{Backend, SqlStore};
use idem_runtime::store::{OutcomeKind, RecordKey, Store};
use idem_runtime::{Class, Classify, Engine, Error, Observer, step};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::command::{Ran, idem_with};

pub(crate) const PREFIX: &str = "shop";
pub(crate) const PAY: &str = "payments.pay";
pub(crate) const REFUND: &str = "payments.refund";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) number: String,
    pub(crate) cents: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum PayError {
    Declined {
        reason: String,
    },
    NoReply,
    Down,
    #[serde(skip)]
    Idem(ErrorText),
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct ErrorText(pub(crate) String);

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Idem(ErrorText(error.to_string()))
    }
}

impl Classify for PayError {
    fn class(&self) -> Class {
        match self {
            Self::Declined { .. } => Class::Business,
            Self::NoReply => Class::Unknown,
            Self::Down | Self::Idem(_) => Class::System,
        }
    }
}

/// Time limits of stores and engines for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn redis(store: RedisStoreBuilder) -> RedisStore {
    let store = store.connect_timeout(PATIENCE).response_timeout(PATIENCE);
    store.connect().await.unwrap()
}

pub(crate) async fn sql<B: Backend>(url: String) -> SqlStore<B> {
    let store = SqlStore::builder(url).response_timeout(PATIENCE);
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// An engine, as another process has one.
pub(crate) fn engine(store: &Arc<dyn Store>) -> Engine {
    let engine = Engine::builder(Arc::clone(store)).prefix(PREFIX);
    let engine = engine.claim_deadline(PATIENCE).complete_deadline(PATIENCE);
    // Released records live as long as a lease, and are looked at to the end.
    let engine = engine.lease(Duration::from_secs(900));
    let silent = Vec::<Arc<dyn Observer>>::new();
    engine.observer(silent).build().unwrap()
}

/// A store, and the way to it for the command.
pub(crate) struct Site {
    pub(crate) url: String,
    /// Further variables of the command.
    variables: Vec<(&'static str, String)>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Engine,
}

impl Site {
    pub(crate) fn new(url: String, store: Arc<dyn Store>) -> Self {
        let engine = engine(&store);
        let variables = vec![("IDEM_OPERATOR", "Zoë".to_owned())];
        Self {
            url,
            variables,
            store,
            engine,
        }
    }

    pub(crate) fn with(mut self, variables: &[(&'static str, &str)]) -> Self {
        let variables = variables.iter();
        self.variables
            .extend(variables.map(|&(name, value)| (name, value.to_owned())));
        self
    }

    #[track_caller]
    pub(crate) fn done(&self, line: impl AsRef<str>) -> String {
        self.idem(line).done()
    }

    /// Asserts that the run succeeds and that its output has this text.
    #[track_caller]
    pub(crate) fn shows(&self, line: impl AsRef<str>, part: &str) {
        let text = self.done(line);
        assert!(text.contains(part), "{part}: {text}");
    }

    #[track_caller]
    pub(crate) fn json(&self, line: impl AsRef<str>) -> Value {
        self.idem(format!("{} --json", line.as_ref())).json()
    }

    pub(crate) fn idem(&self, line: impl AsRef<str>) -> Ran {
        let mut variables = vec![("IDEM_STORE", &*self.url), ("IDEM_PREFIX", PREFIX)];
        let further = self.variables.iter();
        variables.extend(further.map(|(name, value)| (*name, &**value)));
        idem_with(&variables, line.as_ref())
    }

    /// The answer of a call.
    pub(crate) async fn pay<K: ToKey + ?Sized>(
        &self,
        key: &K,
        body: Result<Receipt, PayError>,
    ) -> Result<Receipt, PayError> {
        let call = self.engine.operation(PAY).key(key);
        call.run(|_| async move { body }).await
    }

    /// A claim whose process is gone, with a lease that is over. Its key, and the header of a value that comes late.
    pub(crate) async fn abandon<K: ToKey + ?Sized>(
        &self,
        operation: &str,
        key: &K,
    ) -> (RecordKey, Header) {
        let digest = KeyBuilder::new(operation, DEFAULT_MAX_KEY_BYTES)
            .key(key)
            .unwrap();
        let key = RecordKey::new(PREFIX.into(), Operation::new(operation.to_owned()), digest);
        let lease = Duration::from_millis(1);
        let request = ClaimRequest::new(Owner::random(), lease, Duration::from_secs(86_400));
        let reply = self
            .store
            .claim(&key, &request, &Admission::new(Duration::from_secs(60)))
            .await
            .unwrap();
        let ClaimReply::Granted { fence, .. } = reply else {
            panic!("{reply:?}");
        };
        let value = State::Done {
            outcome: OutcomeKind::Value,
            schema: 0,
        };
        let mut header = Header::new(value, request.owner, fence, request.retain);
        header.attempts = 1;
        (key, header)
    }

    /// Records of `payments.pay` in each state; the returned guard holds the claim of order `o-run`.
    pub(crate) async fn fill(&self) -> Acquired {
        self.pay("o-1", Ok(receipt("r-1"))).await.unwrap();
        let declined = PayError::Declined {
            reason: "no money".to_owned(),
        };
        self.pay("o-2", Err(declined)).await.unwrap_err();
        self.pay("o-3", Err(PayError::NoReply)).await.unwrap_err();
        self.pay(&("m-1", 7_u32), Err(PayError::NoReply))
            .await
            .unwrap_err();
        self.pay("o-5", Err(PayError::NoReply)).await.unwrap_err();
        self.abandon(PAY, "o-gone").await;
        let scoped = self.engine.operation(PAY).scope(&"tenant-7").key("o-1");
        let scoped = scoped.run(|_| async { Err::<Receipt, _>(PayError::NoReply) });
        scoped.await.unwrap_err();
        let stepped = self.engine.operation(PAY).key("o-steps").run(|_| async {
            let charged = step("charge", async |_| Ok::<_, PayError>(receipt("r-9"))).await;
            charged.and(Err::<Receipt, _>(PayError::Down))
        });
        stepped.await.unwrap_err();
        let refund = self.engine.operation(REFUND).key("o-1");
        let refunded = refund.run(|_| async { Ok::<_, PayError>(receipt("r-1")) });
        refunded.await.unwrap();
        let held = self.engine.operation(PAY).key("o-run");
        held.begin().await.unwrap()
    }
}

pub(crate) fn receipt(number: &str) -> Receipt {
    Receipt {
        number: number.to_owned(),
        cents: 1_250,
    }
}
