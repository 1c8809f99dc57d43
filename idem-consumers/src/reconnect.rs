//! The loop of a source that connects again by itself.

use std::error::Error;
use std::time::Duration;

use tokio::time::sleep;

use crate::delivery::BrokerError;
use crate::source_events::SourceEvents;

/// The pauses between two attempts to reach a broker that is away.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A source that receives messages over a connection that may be lost.
pub(super) trait Reconnect: Send {
    type Delivery;

    fn events(&self) -> &SourceEvents;

    /// The next message that was received.
    fn received(&mut self) -> Option<Self::Delivery>;

    /// Receives messages, over a new connection where there is none.
    fn receive(&mut self) -> impl Future<Output = Result<(), ReceiveError>> + Send;
}

pub(super) enum ReceiveError {
    /// The broker refuses, and would refuse again.
    Lasting(BrokerError),
    /// The broker is away.
    Passing(BrokerError),
    /// The broker is away or the subscription gone; the next attempt tells.
    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    Unclear,
}

impl ReceiveError {
    #[cfg(feature = "nats")]
    pub(super) fn lasting(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Lasting(BrokerError::new(error))
    }

    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    pub(super) fn passing(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Passing(BrokerError::new(error))
    }

    pub(super) fn new(lasts: bool, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let of = if lasts { Self::Lasting } else { Self::Passing };
        of(BrokerError::new(error))
    }
}

/// The next message. A broker that is away is tried again until it refuses.
pub(super) async fn next<R: Reconnect>(source: &mut R) -> Result<Option<R::Delivery>, BrokerError> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        if let Some(delivery) = source.received() {
            return Ok(Some(delivery));
        }
        match source.receive().await {
            Ok(()) => {
                pause = SHORTEST_PAUSE;
                continue;
            }
            Err(ReceiveError::Lasting(error)) => return Err(error),
            Err(ReceiveError::Passing(error)) => source.events().broker_lost(error),
            #[cfg(any(feature = "nats", feature = "rabbitmq"))]
            Err(ReceiveError::Unclear) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
