//! An engine that is observed, on a memory store.

use idem_runtime::clock::ManualClock;
use idem_runtime::observe::{MetricsObserver, TracingObserver};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{CallBuilder, Engine, EngineBuilder, Error};
use idem_tests::events::Events;
use idem_tests::faulty::Faulty;
use idem_tests::fixture::Classified;
use idem_tests::payment::{PayError, Receipt};

use crate::seen::{All, Seen, all};

pub(crate) type Answer = Result<Receipt, PayError>;

/// An engine that is observed, and the operation of its test.
pub(crate) struct Shop {
    pub(crate) engine: Engine,
    pub(crate) clock: ManualClock,
    pub(crate) store: Faulty,
    pub(crate) events: Events,
    pub(crate) all: &'static All,
    pub(crate) operation: &'static str,
}

impl Shop {
    pub(crate) fn new(operation: &'static str) -> Self {
        Self::with(operation, |engine| engine)
    }

    pub(crate) fn with(
        operation: &'static str,
        set: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let all = all();
        let (clock, events) = (ManualClock::new(), Events::default());
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let store = Faulty::new(store);
        let engine = Engine::builder(store.clone()).clock(clock.clone());
        let observers = (MetricsObserver::new(), TracingObserver, events.clone());
        let engine = set(engine.observer(observers)).build().unwrap();
        Self {
            engine,
            clock,
            store,
            events,
            all,
            operation,
        }
    }

    pub(crate) fn pay(&self) -> CallBuilder<Classified> {
        self.engine.operation(self.operation).key(&7)
    }

    /// Waits until so many calls have been seen, all of them closed.
    pub(crate) async fn closed(&self, calls: usize) -> Vec<Seen> {
        let is_so = |seen: &[Seen]| {
            let spans = seen.iter().filter(|span| span.name == "idem.call");
            let closed = spans.clone().filter(|span| span.is_closed).count();
            closed == calls && spans.count() == calls
        };
        let mut seen = self.all.wait(self.operation, is_so).await;
        seen.retain(|span| span.name == "idem.call");
        seen
    }

    /// The calls that the exporter counts with this outcome and result.
    pub(crate) fn calls(&self, outcome: &str, result: &str) -> f64 {
        let (outcome, result) = (
            format!("outcome=\"{outcome}\""),
            format!("result=\"{result}\""),
        );
        self.metric("idem_calls_total", &[&outcome, &result])
    }

    /// The sum of a metric of the operation, with these labels.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let operation = format!("operation=\"{}\"", self.operation);
        self.all.metric(name, &[labels, &[&operation]].concat())
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is what bodies return")]
pub(crate) fn receipt(run: u32) -> Answer {
    Ok(Receipt { run })
}

pub(crate) fn never() -> Answer {
    unreachable!("this body must not run")
}

pub(crate) fn refusal(answer: Answer) -> Error {
    match answer {
        Err(PayError::Idem(error)) => error,
        other => panic!("idem did not refuse: {other:?}"),
    }
}

/// The outcome and the result of a span.
pub(crate) fn end(span: &Seen) -> (&str, &str) {
    (span.field("idem.outcome"), span.field("idem.result"))
}
