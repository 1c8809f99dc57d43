//! A source whose deliveries misbehave, around another one.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_consumers::{BrokerError, Delivery, Source, SourceEvents, Verdict};

use super::desk::LEASE;

/// The fault of a source, or of its first delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The source panics after its first delivery.
    NextPanics,
    ExtendPanics,
    /// Each delivery is extended twice before it is settled.
    Extended,
    SettleHangs,
    SettlePanics,
    /// The verdict does not reach the broker.
    LosesVerdict,
}

/// What became of the deliveries.
#[derive(Debug, Default)]
pub(crate) struct Settlements {
    verdicts: Mutex<Vec<(String, Verdict)>>,
    pub(crate) source_gave_back: AtomicBool,
}

impl Settlements {
    /// The ids and the verdicts that the broker took, in their order.
    pub(crate) fn verdicts(&self) -> Vec<(String, Verdict)> {
        self.verdicts.lock().unwrap().clone()
    }
}

pub(crate) struct Adapter<S> {
    source: S,
    fault: Fault,
    /// Changes the broker's count of deliveries.
    attempt: fn(u32) -> Option<u32>,
    begun: bool,
    pub(crate) settlements: Arc<Settlements>,
}

pub(crate) struct Adapted<D> {
    delivery: D,
    fault: Fault,
    attempt: fn(u32) -> Option<u32>,
    settlements: Arc<Settlements>,
}

impl<S> Adapter<S> {
    pub(crate) fn new(source: S, fault: Fault) -> Self {
        Self {
            source,
            fault,
            attempt: Some,
            begun: false,
            settlements: Arc::default(),
        }
    }

    pub(crate) fn attempt(mut self, attempt: fn(u32) -> Option<u32>) -> Self {
        self.attempt = attempt;
        self
    }
}

impl<S: Source> Source for Adapter<S> {
    type Delivery = Adapted<S::Delivery>;

    fn report_to(&mut self, events: SourceEvents) {
        self.source.report_to(events);
    }

    async fn next(&mut self) -> Result<Option<Self::Delivery>, BrokerError> {
        let is_first = !std::mem::replace(&mut self.begun, true);
        assert!(is_first || self.fault != Fault::NextPanics, "as planned");
        let has_fault = is_first || self.fault == Fault::Extended;
        Ok(self.source.next().await?.map(|delivery| Adapted {
            delivery,
            fault: if has_fault { self.fault } else { Fault::None },
            attempt: self.attempt,
            settlements: Arc::clone(&self.settlements),
        }))
    }

    async fn give_back(self) {
        self.source.give_back().await;
        let gave_back = &self.settlements.source_gave_back;
        gave_back.store(true, Ordering::Relaxed);
    }
}

impl<D: Delivery> Delivery for Adapted<D> {
    fn id(&self) -> Option<Cow<'_, str>> {
        self.delivery.id()
    }

    fn attempt(&self) -> Option<u32> {
        self.delivery.attempt().and_then(self.attempt)
    }

    fn payload(&self) -> &[u8] {
        self.delivery.payload()
    }

    async fn extend(&self, time: Duration) -> Result<(), BrokerError> {
        assert_ne!(self.fault, Fault::ExtendPanics, "as planned");
        self.delivery.extend(time).await
    }

    async fn settle(self, verdict: Verdict) -> Result<(), BrokerError> {
        let id = self.id().unwrap_or_default().into_owned();
        match self.fault {
            Fault::SettlePanics => panic!("as planned"),
            Fault::SettleHangs => std::future::pending().await,
            Fault::LosesVerdict => {
                self.delivery.settle(Verdict::Stop).await?;
                return Err(BrokerError::new("the connection is closed"));
            }
            Fault::Extended => {
                for _ in 0..2 {
                    // After an error a consumer goes on.
                    let _ = self.extend(LEASE).await;
                }
            }
            _ => {}
        }
        self.delivery.settle(verdict).await?;
        self.settlements
            .verdicts
            .lock()
            .unwrap()
            .push((id, verdict));
        Ok(())
    }
}
