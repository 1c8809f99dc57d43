//! How a call ends: its outcome is stored, or its key given back, whatever becomes of the caller.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::backoff::Backoff;
use crate::begin::unavailable;
use crate::claim::Stored;
use crate::clock::deadline;
use crate::engine::Core;
use crate::error::Error;
use crate::keeper::Renewal;
use crate::observer::EventKind;
use crate::operation::RecordKey;
use crate::policy::Policy;
use crate::record::{Header, OutcomeKind, State};
use crate::store::{StoreError, StoreErrorKind};
use crate::transition::{CompleteReply, ReleaseReply};

/// All that settling needs; shared with the engine's thread when the caller vanishes.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) core: Arc<Core>,
    pub(crate) key: RecordKey,
    pub(crate) header: Header,
    pub(crate) policy: Arc<Policy>,
    /// Renewing goes on until the last holder of this is gone.
    pub(crate) renewal: Arc<Renewal>,
}

/// How a completion ended.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The caller's own answer counts, whether or not it could be stored.
    Own,
    /// Another attempt's answer counts.
    Adopted(Stored),
    /// Another attempt runs, and its answer will count.
    Overtaken(Duration),
    /// Another attempt's answer counts, and it cannot be had.
    Unread(Error),
}

/// How long a reply is waited for where nobody waits for the result. A shorter
/// `complete_deadline` is about the caller's patience, not about the store.
pub(crate) const REPLY: Duration = Duration::from_secs(2);

/// What becomes of a key whose body has ended.
#[derive(Clone)]
pub(crate) enum Ending {
    Complete { outcome: OutcomeKind, record: Bytes },
    Release { count: bool },
}

impl Held {
    pub(crate) fn tell(&self, kind: EventKind<'_>) {
        self.core.tell(&self.key, kind);
    }

    /// The header of the finished record.
    pub(crate) fn done(&self, outcome: OutcomeKind, schema: u32) -> Header {
        let retain = match outcome {
            OutcomeKind::Error => self.policy.error_ttl(),
            _ => self.policy.ttl,
        };
        Header {
            state: State::Done { outcome, schema },
            retain,
            ..self.header
        }
    }

    /// Carries the ending out. What has no reply within `complete_deadline`, or when the caller is
    /// dropped, goes on on the engine's thread.
    pub(crate) async fn finish(self, ending: Ending) -> Settled {
        self.renewal.settle();
        let handover = HandOver(Some((self.clone(), ending.clone())));
        let silence = self.core.limits.complete_deadline;
        let settled = match &ending {
            Ending::Complete { outcome, record } => {
                let patience = Some(self.policy.wait());
                self.complete(*outcome, record, silence, patience).await
            }
            Ending::Release { count } => self.release(*count, silence).await,
        };
        if settled.is_some() {
            handover.disarm();
        }
        settled.unwrap_or(Settled::Own)
    }

    /// Sends the completion until it has a reply; `None` if the store was silent for `silence`, or
    /// refuses and a caller waits.
    ///
    /// While another attempt holds the claim, a caller waits for its answer with `patience`, by
    /// sending the completion again: never a claim, so an overtaken caller cannot start a third run.
    /// Without `patience` nobody waits: this is the background, where even a refusal may be mended
    /// before the answer is given up.
    async fn complete(
        &self,
        outcome: OutcomeKind,
        record: &Bytes,
        silence: Duration,
        patience: Option<Duration>,
    ) -> Option<Settled> {
        let clock = &*self.core.clock;
        let caller = patience.is_some();
        let patience = clock.now() + patience.unwrap_or_default();
        let mut silent_until = clock.now() + silence;
        let mut overtaken = None;
        let mut backoff = Backoff::new(&self.header.owner);
        loop {
            let attempt = clock.now() + self.core.limits.complete_deadline.max(REPLY);
            let reply = self.core.store.complete(&self.key, record);
            let reply = match deadline(clock, attempt.min(silent_until), reply).await {
                Ok(Ok(reply)) => reply,
                Ok(Err(error)) if error.kind() == StoreErrorKind::TooLarge => {
                    let operation = self.key.operation();
                    return Some(Settled::Unread(unavailable(operation, error)));
                }
                failure => {
                    let error = failure.ok().and_then(Result::err);
                    let refused = error.as_ref().is_some_and(|error| !error.is_transient());
                    let now = clock.now();
                    if now >= silent_until || (refused && caller) {
                        if overtaken.is_none() {
                            self.unsaved_yet(error.as_ref(), caller);
                        }
                        return overtaken.map(Settled::Overtaken);
                    }
                    let pause = backoff.retry().min(silent_until.saturating_sub(now));
                    clock.sleep_until(now + pause).await;
                    continue;
                }
            };
            match reply {
                CompleteReply::Stored { late } => {
                    self.tell(EventKind::Completed { outcome, late });
                    return Some(Settled::Own);
                }
                CompleteReply::Adopted { record, left } => {
                    self.tell(EventKind::Adopted);
                    let stored = Stored::new(&self.core, &self.key, record, left, true);
                    return Some(Settled::Adopted(stored));
                }
                CompleteReply::Superseded { lease_left } => {
                    let now = clock.now();
                    if now >= patience {
                        return Some(Settled::Overtaken(lease_left));
                    }
                    overtaken = Some(lease_left);
                    silent_until = now + silence;
                    let pause = match lease_left {
                        Duration::ZERO => backoff.poll(),
                        left => backoff.poll().min(left),
                    };
                    let pause = pause.min(patience.saturating_sub(now));
                    clock.sleep_until(now + pause).await;
                }
                CompleteReply::Mismatch => {
                    return Some(self.unsaved(
                        "the record was lost, and a call with other arguments has the key",
                    ));
                }
                CompleteReply::Unreadable(error) => {
                    return Some(self.unsaved(&error.to_string()));
                }
            }
        }
    }

    fn unsaved_yet(&self, error: Option<&StoreError>, caller: bool) {
        let why = error.map_or("the store did not answer in time".into(), |error| {
            Cow::Owned(error.to_string())
        });
        let next = if caller {
            "storing goes on in the background"
        } else {
            "storing is given up"
        };
        self.unsaved(&format!("{why}; {next}"));
    }

    fn unsaved(&self, reason: &str) -> Settled {
        self.tell(EventKind::Unsaved { reason });
        Settled::Own
    }

    /// Sends the release until it has a reply or its deadline is over; then the lease lapses.
    async fn release(&self, count: bool, silence: Duration) -> Option<Settled> {
        let clock = &*self.core.clock;
        let moment = clock.now() + silence;
        let mut backoff = Backoff::new(&self.header.owner);
        loop {
            let reply = self
                .core
                .store
                .release(&self.key, &self.header.owner, count);
            match deadline(clock, moment, reply).await {
                Ok(Ok(reply)) => {
                    if reply == ReleaseReply::Released {
                        self.tell(EventKind::Released { counted: count });
                    }
                    return Some(Settled::Own);
                }
                Ok(Err(error)) if !error.is_transient() => return Some(Settled::Own),
                Ok(Err(_)) => {
                    let now = clock.now();
                    if now >= moment {
                        return None;
                    }
                    clock.sleep_until((now + backoff.retry()).min(moment)).await;
                }
                Err(_) => return None,
            }
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("key", &self.key)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// Hands an ending to the engine's thread if the caller is dropped, or does not get to its end.
struct HandOver(Option<(Held, Ending)>);

impl HandOver {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        let Some((held, ending)) = self.0.take() else {
            return;
        };
        let core = Arc::clone(&held.core);
        core.keeper.hand_over(async move {
            match ending {
                Ending::Complete { outcome, record } => {
                    let silence = held.policy.lease.max(Duration::from_mins(1));
                    held.complete(outcome, &record, silence, None).await;
                }
                Ending::Release { count } => {
                    held.release(count, held.policy.lease).await;
                }
            }
        });
    }
}
