//! Adapters that hang or panic, and what a consumer does then.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_consumers::{
    BrokerError, Consumer, ConsumerError, Delivery, Raw, Source, Summary, Verdict,
};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Context, Engine, Error, Policy};
use idem_tests::events::Events;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

/// What an adapter does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    NextPanics,
    ExtendPanics,
    SettleHangs,
    SettlePanics,
}

/// Delivers these ids, of which the first has the fault; panics or waits after the last.
#[derive(Debug)]
struct Faulty {
    ids: Vec<&'static str>,
    fault: Fault,
    verdicts: Verdicts,
    closed: Option<oneshot::Sender<()>>,
}

/// The verdicts that were taken.
type Verdicts = Arc<Mutex<Vec<(&'static str, Verdict)>>>;

#[derive(Debug)]
struct Held {
    id: &'static str,
    fault: Fault,
    verdicts: Verdicts,
}

impl Source for Faulty {
    type Delivery = Held;

    async fn next(&mut self) -> Result<Option<Held>, BrokerError> {
        if self.ids.is_empty() {
            assert_ne!(self.fault, Fault::NextPanics, "as the test wants it");
            return Ok(None);
        }
        let first = std::mem::replace(&mut self.fault, Fault::Nothing);
        if first == Fault::NextPanics {
            self.fault = first;
        }
        Ok(Some(Held {
            id: self.ids.remove(0),
            fault: first,
            verdicts: Arc::clone(&self.verdicts),
        }))
    }

    async fn give_back(mut self) {
        if let Some(closed) = self.closed.take() {
            closed.send(()).unwrap();
        }
    }
}

impl Delivery for Held {
    fn id(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(self.id))
    }

    fn attempt(&self) -> Option<u32> {
        None
    }

    fn payload(&self) -> &[u8] {
        b""
    }

    async fn extend(&self, _: Duration) -> Result<(), BrokerError> {
        assert_ne!(self.fault, Fault::ExtendPanics, "as the test wants it");
        Ok(())
    }

    async fn settle(self, verdict: Verdict) -> Result<(), BrokerError> {
        assert_ne!(self.fault, Fault::SettlePanics, "as the test wants it");
        if self.fault == Fault::SettleHangs {
            std::future::pending::<()>().await;
        }
        self.verdicts.lock().unwrap().push((self.id, verdict));
        Ok(())
    }
}

/// Consumes one message after the other, with a handler of 10 s under a lease of 3 s.
async fn consume(
    ids: &[&'static str],
    fault: Fault,
) -> (
    Result<Summary, ConsumerError>,
    Vec<(&'static str, Verdict)>,
    u32,
) {
    let (verdicts, bodies) = (Verdicts::default(), Arc::new(Mutex::new(0)));
    let events = Events::default();
    let source = Faulty {
        ids: ids.to_owned(),
        fault,
        verdicts: Arc::clone(&verdicts),
        closed: None,
    };
    let handler = {
        let bodies = Arc::clone(&bodies);
        move |_: Raw, _: Context| {
            let bodies = Arc::clone(&bodies);
            async move {
                sleep(Duration::from_secs(10)).await;
                *bodies.lock().unwrap() += 1;
                Ok::<(), Error>(())
            }
        }
    };
    // Its leases lapse by no clock of the machine: time is that of tokio, which is paused.
    let engine = Engine::builder(MemoryStore::new()).clock(ManualClock::new());
    let engine = engine.observer(events.clone());
    let end = Consumer::new(engine.build().unwrap(), "bills.collect")
        .concurrency(1)
        .policy(Policy::new().lease(Duration::from_secs(3)))
        .run(source, handler);
    let end = end.await;
    if let Ok(summary) = &end {
        let unsettled = events.count("unsettled") as u64;
        assert_eq!(unsettled, summary.unsettled, "{:?}", events.all());
    }
    let (verdicts, bodies) = (verdicts.lock().unwrap().clone(), *bodies.lock().unwrap());
    (end, verdicts, bodies)
}

const ACKNOWLEDGED: Verdict = Verdict::Acknowledge;

#[tokio::test(start_paused = true)]
async fn a_settlement_that_hangs_or_panics_keeps_no_other_message_waiting() {
    for fault in [Fault::SettleHangs, Fault::SettlePanics] {
        let (end, verdicts, bodies) = consume(&["m-1", "m-2"], fault).await;
        let summary = end.unwrap();
        assert_eq!(
            (summary.acknowledged, summary.unsettled),
            (1, 1),
            "{fault:?}"
        );
        assert_eq!((&*verdicts, bodies), (&[("m-2", ACKNOWLEDGED)][..], 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_is_no_end_of_the_messages() {
    let (end, verdicts, bodies) = consume(&["m-1"], Fault::NextPanics).await;
    assert!(matches!(end, Err(ConsumerError::Source(_))), "{end:?}");
    assert_eq!((&*verdicts, bodies), (&[("m-1", ACKNOWLEDGED)][..], 1));
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_panics_drops_no_body() {
    let (end, verdicts, bodies) = consume(&["m-1"], Fault::ExtendPanics).await;
    assert_eq!(end.unwrap().acknowledged, 1);
    assert_eq!((&*verdicts, bodies), (&[("m-1", ACKNOWLEDGED)][..], 1));
}

/// The consumer stops before it takes the first delivery.
#[tokio::test(start_paused = true)]
async fn a_delivery_that_no_handler_has_begun_is_given_back_at_shutdown() {
    let (verdicts, begun) = (Verdicts::default(), Arc::new(Notify::new()));
    let (sender, closed) = oneshot::channel();
    let source = Faulty {
        ids: vec!["m-1", "m-2", "m-3"],
        fault: Fault::Nothing,
        verdicts: Arc::clone(&verdicts),
        closed: Some(sender),
    };
    let handler = {
        let begun = Arc::clone(&begun);
        move |_: Raw, _: Context| {
            begun.notify_one();
            async {
                sleep(Duration::from_secs(10)).await;
                Ok::<(), Error>(())
            }
        }
    };
    let consumer = Consumer::new(Engine::new(MemoryStore::new()), "bills.collect");
    // The source has delivered the next one by the time that the first handler begins.
    let shutdown = async move { begun.notified().await };
    let end = consumer.run_until(source, handler, shutdown).await;
    let summary = end.unwrap();
    closed.await.expect("the source was closed");
    let taken = verdicts.lock().unwrap().clone();
    let given_back = taken.iter().filter(|(_, it)| *it == Verdict::Stop).count();
    assert_eq!(summary.retried, given_back as u64, "{taken:?}");
    assert_eq!(summary.acknowledged, (taken.len() - given_back) as u64);
    assert!(given_back > 0, "{taken:?}");
}
