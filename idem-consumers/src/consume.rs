//! The loop of a consumer: receive, handle, settle, and stop in an orderly way.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::time::Duration;

use idem_runtime::__private::unwind;
use idem_runtime::key::KeyDigest;
use idem_runtime::observe::{Event, EventKind};
use idem_runtime::{Engine, Error};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::delivery::{BrokerError, Delivery, Source};
use crate::source_events::SourceEvents;
use crate::verdict::{DeadLetterReason, Verdict};

/// The time that a broker may take for a verdict. A settlement that hangs would keep its place for good.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// Handles deliveries until the source ends or `shutdown` is ready. Then waits for running handlers.
pub(super) async fn consume<S, F>(
    (mut source, events): (S, SourceEvents),
    handle: impl Fn(S::Delivery) -> F,
    concurrency: NonZeroUsize,
    drain: Duration,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, ConsumerError>
where
    S: Source,
    F: Future<Output = End> + Send + 'static,
{
    let mut handlers = JoinSet::new();
    let mut summary = Summary::default();
    let mut shutdown = pin!(shutdown);
    let mut is_source_whole = true;
    let failed = |error: BrokerError| ConsumerError::Source(error.of(events.subscription()));
    let mut end = 'consuming: loop {
        let received = {
            let mut next = pin!(async { source.next().await });
            let mut next = pin!(unwind(next.as_mut()));
            loop {
                tokio::select! {
                    biased;
                    () = &mut shutdown => break 'consuming Ok(()),
                    Some(ended) = handlers.join_next() => if let Err(error) = summary.add(ended) {
                        break 'consuming Err(error);
                    },
                    received = &mut next, if handlers.len() < concurrency.get() => break received,
                }
            }
        };
        match received {
            Ok(Ok(Some(delivery))) => {
                handlers.spawn(handle(delivery));
            }
            Ok(Ok(None)) => break Ok(()),
            Ok(Err(error)) => break Err(failed(error)),
            Err(_panic) => {
                is_source_whole = false;
                break Err(failed(BrokerError::new(
                    "the source of the deliveries panicked",
                )));
            }
        }
    };
    let given_back = async {
        if is_source_whole {
            // After a panic the broker delivers received messages again.
            let _ = unwind(pin!(source.give_back())).await;
        }
    };
    let drained = async {
        while let Some(ended) = handlers.join_next().await {
            let added = summary.add(ended);
            end = std::mem::replace(&mut end, Ok(())).and(added);
        }
    };
    if timeout(drain, async { tokio::join!(given_back, drained) })
        .await
        .is_err()
    {
        handlers.abort_all();
        while let Some(ended) = handlers.join_next().await {
            if ended.as_ref().is_err_and(JoinError::is_cancelled) {
                summary.abandoned += 1;
            } else {
                end = end.and(summary.add(ended));
            }
        }
    }
    summary.skipped = events.skipped();
    end.map(|()| summary)
}

/// The verdict on a message, and what led to it.
pub(super) struct Decided {
    pub(super) verdict: Verdict,
    /// Why the consumer stops, with the verdict [`Stop`](Verdict::Stop).
    stops: Option<ConsumerError>,
    /// The error behind a dead letter, without content of the message.
    cause: Cow<'static, str>,
    /// The digest of the message's key; `None` if it has none, or is no dead letter.
    pub(super) key: Option<KeyDigest>,
}

impl Decided {
    pub(super) fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            stops: None,
            cause: Cow::Borrowed(""),
            key: None,
        }
    }

    pub(super) fn dead(reason: DeadLetterReason, cause: impl Into<Cow<'static, str>>) -> Self {
        Self {
            cause: cause.into(),
            ..Self::of(Verdict::DeadLetter(reason))
        }
    }

    pub(super) fn refused(error: Error) -> Self {
        let verdict = Verdict::of(&error);
        Self {
            cause: error.to_string().into(),
            stops: (verdict == Verdict::Stop).then_some(ConsumerError::Refused(error)),
            ..Self::of(verdict)
        }
    }

    /// Stops the consumer, whatever the message is.
    #[cfg(feature = "_sql")]
    pub(super) fn stop(error: ConsumerError) -> Self {
        Self {
            stops: Some(error),
            ..Self::of(Verdict::Stop)
        }
    }

    /// Tells the broker.
    pub(super) async fn settle<D: Delivery>(self, delivery: D) -> End {
        let verdict = self.verdict;
        let settled = pin!(async { delivery.settle(verdict).await });
        let settled = match timeout(SETTLED_WITHIN, unwind(settled)).await {
            Ok(Ok(settled)) => settled,
            Ok(Err(_panic)) => Err(BrokerError::new("the adapter panicked")),
            Err(_) => Err(BrokerError::new("the broker did not reply in time")),
        };
        End {
            decided: self,
            settled,
        }
    }
}

/// The end of one delivery.
pub(super) struct End {
    decided: Decided,
    settled: Result<(), BrokerError>,
}

impl End {
    /// Notifies the engine's observer of a dead letter or a refused verdict.
    pub(super) fn observed_by(self, engine: &Engine, operation: &str) -> Self {
        let event = |kind| {
            let mut event = Event::new(operation, kind);
            event.key = self.decided.key.as_ref();
            engine.observer().observe(&event);
        };
        match (&self.settled, self.decided.verdict) {
            (Err(error), _) => {
                let reason = &*error.to_string();
                event(EventKind::Unsettled { reason });
            }
            (Ok(()), Verdict::DeadLetter(reason)) => {
                let (reason, cause) = (reason.as_str(), &*self.decided.cause);
                event(EventKind::DeadLetter { reason, cause });
            }
            _ => {}
        }
        self
    }
}

/// Counts of a consumer's verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The number of deliveries that were acknowledged.
    pub acknowledged: u64,
    /// The number of deliveries that were given back.
    pub retried: u64,
    /// The number of deliveries that became dead letters.
    pub dead_letters: u64,
    /// The number of verdicts that the broker did not take. Their messages are delivered again.
    pub unsettled: u64,
    /// The number of handlers dropped after [`Consumer::drain`](crate::Consumer::drain).
    pub abandoned: u64,
    /// The number of unsettled messages that the broker has removed.
    pub skipped: u64,
}

impl Summary {
    fn add(&mut self, end: Result<End, JoinError>) -> Result<(), ConsumerError> {
        // An adapter panicked: its delivery is dropped, and the message delivered again.
        let Ok(End { decided, settled }) = end else {
            self.unsettled += 1;
            return Ok(());
        };
        match settled {
            Err(_) => self.unsettled += 1,
            Ok(()) => match decided.verdict {
                Verdict::Acknowledge => self.acknowledged += 1,
                Verdict::DeadLetter(_) => self.dead_letters += 1,
                Verdict::Retry(_) | Verdict::Stop => self.retried += 1,
            },
        }
        decided.stops.map_or(Ok(()), Err)
    }
}

/// Why a consumer stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The source failed for good.
    Source(BrokerError),
    /// A call was refused, and every other one would be: the store refuses, or a setting is out of range. The message
    /// was given back.
    Refused(Error),
    /// The pool of [`Consumer::in_tx`](crate::Consumer) gives no connection, and will give none: it is closed, or its
    /// options are wrong. The message was given back.
    Pool(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for ConsumerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source(_) => "the broker gives no more messages; find out why, and start the consumer again",
            Self::Pool(_) => "the consumer's pool gives no connection; find out why, and start the consumer again",
            Self::Refused(_) => "a call was refused as every other would be; mend the cause, and start the consumer again",
        })
    }
}

impl std::error::Error for ConsumerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Source(error) => error,
            Self::Refused(error) => error,
            Self::Pool(error) => &**error,
        })
    }
}
