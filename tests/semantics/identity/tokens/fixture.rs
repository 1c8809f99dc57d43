//! A shop whose orders are named by tokens, and two processes' worth of engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use idem_harness::TestDir;
use idem_runtime::clock::{Clock, Sleep, SystemClock};
use idem_runtime::{CallBuilder, Classify, Engine, EngineBuilder, Error, token::TokenIssuer};
use idem_tests::events::Events;
use idem_tests::faulty::Faulty;
use idem_tests::fixture::Classified;
use serde::{Deserialize, Serialize};

pub(crate) use crate::identity::stores::{Kind, PATIENCE, patiently};
use crate::identity::stores::{number, open};

/// The life of a token.
pub(crate) const LIFE: Duration = Duration::from_mins(5);
pub(crate) const SECRET: [u8; 32] = [7; 32];
pub(crate) const OPERATION: &str = "orders.submit";
pub(crate) const ANN: &str = "ann";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Classify)]
pub(crate) enum OrderError {
    #[class(business)]
    SoldOut,
    #[class(system)]
    Down,
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

/// The number of the order.
pub(crate) type Answer = Result<u32, OrderError>;

/// What idem refused a call with.
pub(crate) fn refusal(answer: Answer) -> Error {
    match answer {
        Err(OrderError::Idem(error)) => error,
        other => panic!("idem did not refuse: {other:?}"),
    }
}

/// The machine's clock, with a calendar that can be turned: nothing but tokens looks at that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendar(Arc<AtomicU64>);

impl Calendar {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_secs(), Ordering::SeqCst);
    }
}

impl Clock for Calendar {
    fn now(&self) -> Duration {
        SystemClock.now()
    }

    fn calendar(&self) -> SystemTime {
        SystemClock.calendar() + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, moment: Duration) -> Sleep {
        SystemClock.sleep_until(moment)
    }
}

#[derive(Debug)]
pub(crate) struct Fixture {
    /// Two engines, as in two processes.
    pub(crate) near: Engine,
    pub(crate) far: Engine,
    /// Bodies that ran.
    pub(crate) runs: Arc<AtomicU32>,
    pub(crate) events: Events,
    /// What both ask, and can be made to fail.
    pub(crate) store: Faulty,
    _dir: Option<TestDir>,
}

impl Fixture {
    /// With the machine's clock.
    pub(crate) async fn new(kind: Kind) -> Self {
        Self::with(kind, SystemClock, |engine| engine).await
    }

    /// With a calendar that a test turns.
    pub(crate) async fn with_calendar(kind: Kind) -> (Self, Calendar) {
        let calendar = Calendar::default();
        (
            Self::with(kind, calendar.clone(), |engine| engine).await,
            calendar,
        )
    }

    pub(crate) async fn with(
        kind: Kind,
        clock: impl Clock + Clone,
        settings: impl Fn(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let (store, dir) = open(kind).await;
        let store = Faulty::over(store);
        let events = Events::default();
        let prefix = format!("tokens-{}", number());
        let [near, far] = [(); 2].map(|()| {
            let builder = Engine::builder(store.clone()).prefix(prefix.clone());
            let builder = builder.clock(clock.clone()).observer(events.clone());
            let builder = builder.tokens(TokenIssuer::new(SECRET).life(LIFE));
            settings(builder).build().expect("the settings are right")
        });
        Self {
            near,
            far,
            runs: Arc::default(),
            events,
            store,
            _dir: dir,
        }
    }

    /// A token for Ann.
    pub(crate) fn token(&self) -> String {
        let token = self.near.issue_token(OPERATION, ANN);
        token.expect("the engine has an issuer")
    }

    pub(crate) fn call(&self, token: &str) -> CallBuilder<Classified> {
        self.near.operation(OPERATION).token(token, ANN)
    }

    pub(crate) fn call_far(&self, token: &str) -> CallBuilder<Classified> {
        self.far.operation(OPERATION).token(token, ANN)
    }

    /// An order that succeeds, if it runs.
    pub(crate) async fn order(&self, call: CallBuilder<Classified>) -> Answer {
        self.order_that(call, Ok(())).await
    }

    /// An order that ends like this, if it runs.
    pub(crate) async fn order_that(
        &self,
        call: CallBuilder<Classified>,
        end: Result<(), OrderError>,
    ) -> Answer {
        let runs = Arc::clone(&self.runs);
        let body = async move {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            end.map(|()| run)
        };
        call.run(|_| body).await
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}
