//! Consumers in this process, of any broker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use idem_consumers::{
    BrokerError, Consumer, ConsumerError, Delivery, MessageId, Raw, Source, Summary,
};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Classify, Context, Engine, Policy};
use idem_tests::brokers::Broker;
use idem_tests::events::Events;
use idem_tests::shop::patiently;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The lease, and the time after which a broker delivers again.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// The error of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Classify, Deserialize, Serialize)]
pub(crate) enum BillError {
    #[class(business)]
    NoSuchAccount,
    /// It is not stored, because it cannot be read.
    #[class(business)]
    NoSuchBill {
        #[serde(skip_serializing)]
        number: u8,
    },
    #[class(system)]
    BankDown,
    #[class(unknown)]
    TimedOut,
}

/// The ids of these numbers.
pub(crate) fn ids(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    let numbers = numbers.into_iter();
    numbers.map(|number| format!("m-{number}")).collect()
}

pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let polling = async {
        while !is_so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    patiently(what, polling).await;
}

pub(crate) async fn until_settled<B: Broker>(broker: &B) {
    until("every message is settled", async || {
        broker.unsettled().await == 0
    })
    .await;
}

pub(crate) async fn source<B: Broker>(broker: &B) -> B::Source {
    B::source(&broker.url(), LEASE).await.unwrap()
}

pub(crate) async fn next<S: Source>(source: &mut S) -> S::Delivery {
    let next = patiently("a delivery", source.next()).await;
    next.unwrap().unwrap()
}

pub(crate) async fn error<S: Source<Delivery: std::fmt::Debug>>(source: &mut S) -> BrokerError {
    patiently("an error", source.next()).await.unwrap_err()
}

/// Bodies of which these wait until the gate is open.
pub(crate) fn gated(
    holds: fn(&str) -> bool,
) -> (
    watch::Sender<bool>,
    impl Fn(String) -> BoxFuture<'static, Result<(), BillError>> + Clone,
) {
    let (gate, open) = watch::channel(false);
    let body = move |id: String| {
        let mut open = open.clone();
        async move {
            if holds(&id) {
                open.wait_for(|open| *open).await.unwrap();
            }
            Ok(())
        }
        .boxed()
    };
    (gate, body)
}

/// Consumers of one store, until they are stopped, and their counts.
pub(crate) struct Desk {
    store: MemoryStore,
    /// In place of the system's.
    clock: Option<ManualClock>,
    pub(crate) events: Events,
    bodies: Arc<Mutex<BTreeMap<String, u32>>>,
    deliveries: Arc<Mutex<u32>>,
    running: JoinSet<Result<Summary, ConsumerError>>,
    stop: watch::Sender<bool>,
}

impl Desk {
    /// No lease lapses in its store: a second body would be the fault of a stalled machine.
    pub(crate) fn new() -> Self {
        Self {
            store: MemoryStore::builder().clock(ManualClock::new()).build(),
            clock: None,
            events: Events::default(),
            bodies: Arc::default(),
            deliveries: Arc::default(),
            running: JoinSet::new(),
            stop: watch::Sender::new(false),
        }
    }

    pub(crate) fn at(clock: &ManualClock) -> Self {
        Self {
            clock: Some(clock.clone()),
            ..Self::new()
        }
    }

    /// A consumer of this desk's store, which counts deliveries.
    pub(crate) fn consumer<D: Delivery>(&self) -> Consumer<impl Fn(&D) -> Option<String> + use<D>> {
        let deliveries = Arc::clone(&self.deliveries);
        let mut engine = Engine::builder(self.store.clone()).observer(self.events.clone());
        if let Some(clock) = &self.clock {
            engine = engine.clock(clock.clone());
        }
        Consumer::new(engine.build().unwrap(), "bills.collect")
            .policy(Policy::new().lease(LEASE))
            .dead_letter_after(3)
            .retry_after(Duration::from_millis(10))
            .id(move |delivery: &D| {
                *deliveries.lock().unwrap() += 1;
                delivery.id().map(std::borrow::Cow::into_owned)
            })
    }

    /// Others of the same store, and of this desk's count of bodies.
    pub(crate) fn another(&self) -> Self {
        Self {
            store: self.store.clone(),
            bodies: Arc::clone(&self.bodies),
            ..Self::new()
        }
    }

    /// Starts consumers whose bodies are counted, and then run this one.
    pub(crate) async fn open<B: Broker, F>(
        &mut self,
        broker: &B,
        consumers: usize,
        body: impl Fn(String) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), BillError>> + Send + 'static,
    {
        for _ in 0..consumers {
            let source = source(broker).await;
            self.run(self.consumer(), source, body.clone());
        }
    }

    /// Starts a consumer whose bodies are counted, and then run this one.
    pub(crate) fn run<S: Source, I: MessageId<S::Delivery>, F>(
        &mut self,
        consumer: Consumer<I>,
        source: S,
        body: impl Fn(String) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), BillError>> + Send + 'static,
    {
        let bodies = Arc::clone(&self.bodies);
        let handler = move |message: Raw, _: Context| {
            let text = String::from_utf8(message.0).unwrap();
            *bodies.lock().unwrap().entry(text.clone()).or_default() += 1;
            body(text)
        };
        let mut stopped = self.stop.subscribe();
        let stopped = async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        self.running
            .spawn(async move { consumer.run_until(source, handler, stopped).await });
    }

    /// The number of bodies of each payload.
    pub(crate) fn bodies(&self) -> BTreeMap<String, u32> {
        self.bodies.lock().unwrap().clone()
    }

    pub(crate) fn deliveries(&self) -> u32 {
        *self.deliveries.lock().unwrap()
    }

    pub(crate) fn assert_one_body_for_each_of(&self, ids: usize) {
        let bodies = self.bodies();
        assert_eq!((bodies.len(), bodies.values().max()), (ids, Some(&1)));
    }

    pub(crate) async fn close(&mut self) -> Vec<Summary> {
        self.stop.send_replace(true);
        let running = std::mem::take(&mut self.running);
        let ended = patiently("the consumers stop", running.join_all()).await;
        ended.into_iter().map(Result::unwrap).collect()
    }

    /// How a consumer ends that is not stopped: a stop at the same moment would hide its error.
    pub(crate) async fn end(&mut self) -> Result<Summary, ConsumerError> {
        let ended = patiently("a consumer ends", self.running.join_next()).await;
        ended.unwrap().unwrap()
    }
}
