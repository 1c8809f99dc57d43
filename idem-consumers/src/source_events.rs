//! Events of a source, for the observer of its consumer's engine.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idem_runtime::__private::Lock;
use idem_runtime::Engine;
use idem_runtime::observe::{Event, EventKind};

use crate::subscription::OnLostSubscription;

/// Reports events of a [`Source`](crate::Source) to the engine's observer. Clones share state.
///
/// The default one, of a source that no consumer runs, reports nothing. No text that is given to it has a payload, a
/// password, or an id that a producer chose.
///
/// ```
/// use idem_consumers::{BrokerError, MemoryDelivery, MemoryQueue, Source, SourceEvents};
///
/// struct Reconnecting { queue: MemoryQueue, events: SourceEvents }
///
/// impl Source for Reconnecting {
///     type Delivery = MemoryDelivery;
///
///     fn report_to(&mut self, events: SourceEvents) {
///         self.events = events;
///     }
///
///     async fn next(&mut self) -> Result<Option<MemoryDelivery>, BrokerError> {
///         loop {
///             match self.queue.next().await {
///                 Ok(delivery) => {
///                     self.events.broker_regained();
///                     return Ok(delivery);
///                 }
///                 Err(error) => self.events.broker_lost(error), // then a pause that grows
///             }
///         }
///     }
/// }
/// ```
#[derive(Clone, Default)]
pub struct SourceEvents(Option<Arc<Reported>>);

struct Reported {
    engine: Engine,
    operation: Cow<'static, str>,
    subscription: String,
    /// When the broker was lost, by the engine's clock.
    lost: Lock<Option<Duration>>,
    skipped: AtomicU64,
}

impl Reported {
    fn report(&self, kind: EventKind<'_>) {
        let event = Event::new(&self.operation, kind);
        self.engine.observer().observe(&event);
    }
}

/// The source has ended. A broker that is lost then is not regained.
impl Drop for Reported {
    fn drop(&mut self) {
        let lost = self.lost.lock().take();
        if let Some(lost) = lost {
            let after = self.engine.clock().now().saturating_sub(lost);
            self.report(EventKind::BrokerLeft { after });
        }
    }
}

impl fmt::Debug for SourceEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceEvents").finish_non_exhaustive()
    }
}

impl SourceEvents {
    pub(super) fn new(
        engine: &Engine,
        operation: Cow<'static, str>,
        subscription: Option<String>,
    ) -> Self {
        let reported = Reported {
            engine: engine.clone(),
            operation,
            subscription: subscription.unwrap_or_default(),
            lost: Lock::new(None),
            skipped: AtomicU64::new(0),
        };
        let subscription = &*reported.subscription;
        reported.report(EventKind::Consuming { subscription });
        Self(Some(Arc::new(reported)))
    }

    /// Reports [`BrokerLost`](EventKind::BrokerLost), unless the broker is lost already.
    pub fn broker_lost(&self, reason: impl fmt::Display) {
        let Some(this) = &self.0 else { return };
        let is_new = {
            let mut lost = this.lost.lock();
            let is_new = lost.is_none();
            lost.get_or_insert_with(|| this.engine.clock().now());
            is_new
        };
        if is_new {
            let reason = &*reason.to_string();
            this.report(EventKind::BrokerLost { reason });
        }
    }

    /// Reports [`BrokerRegained`](EventKind::BrokerRegained), if the broker was lost.
    pub fn broker_regained(&self) {
        let Some(this) = &self.0 else { return };
        let lost = this.lost.lock().take();
        if let Some(lost) = lost {
            let after = this.engine.clock().now().saturating_sub(lost);
            this.report(EventKind::BrokerRegained { after });
        }
    }

    /// Whether the last report of the broker is that it is lost.
    #[cfg(feature = "kafka")]
    pub(super) fn is_broker_lost(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|this| this.lost.lock().is_some())
    }

    /// Reports [`SubscriptionLost`](EventKind::SubscriptionLost), with where the source continues.
    pub fn subscription_lost(&self, reason: &str, continues: OnLostSubscription) {
        let Some(this) = &self.0 else { return };
        let (subscription, continues) = (&*this.subscription, continues.as_str());
        this.report(EventKind::SubscriptionLost {
            subscription,
            reason,
            continues,
        });
    }

    /// Reports [`MessageSkipped`](EventKind::MessageSkipped): the broker delivers an unsettled message no more.
    ///
    /// `position` is the broker's name of the message, such as `1526919030474-55`; `reason` a fixed word.
    pub fn message_skipped(&self, position: &str, reason: &'static str) {
        let Some(this) = &self.0 else { return };
        this.skipped.fetch_add(1, Ordering::Relaxed);
        this.report(EventKind::MessageSkipped { position, reason });
    }

    /// The name of the subscription, or an empty text.
    pub(super) fn subscription(&self) -> &str {
        self.0.as_ref().map_or("", |this| &this.subscription)
    }

    pub(super) fn skipped(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |this| this.skipped.load(Ordering::Relaxed))
    }
}
