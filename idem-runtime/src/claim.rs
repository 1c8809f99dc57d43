//! A granted claim, from the moment it is granted until its outcome is settled.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::answer::{Encoded, Replay};
use crate::backoff::Backoff;
use crate::clock::{Elapsed, deadline};
use crate::context::Context;
use crate::engine::Core;
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::keeper::{Lease, Renewal};
use crate::observer::EventKind;
use crate::operation::RecordKey;
use crate::policy::Policy;
use crate::record::{Fence, HEADER, Header, OutcomeKind, Owner, Record, State};
use crate::store::{StoreError, StoreErrorKind};
use crate::transition::{CompleteReply, ReleaseReply, RenewReply};

/// The right to run a body, and the duty to say how it ended.
///
/// Its lease is renewed until it is completed, released or dropped. Dropped, it lapses with its
/// lease and stays counted as an attempt, because a body that stopped half-way may have had its
/// effect.
#[derive(Debug)]
#[must_use = "a claim that is dropped blocks its key until its lease is over"]
pub struct Claim {
    held: Option<Held>,
}

/// All that settling needs; shared with the engine's thread when the caller vanishes.
#[derive(Clone)]
struct Held {
    core: Arc<Core>,
    key: RecordKey,
    header: Header,
    policy: Arc<Policy>,
    /// Renewing goes on until the last holder of this is gone.
    renewal: Arc<Renewal>,
}

/// How a completion ended.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The caller's own answer counts, whether or not it could be stored.
    Own,
    /// Another attempt's answer counts.
    Adopted(Record),
    /// Another attempt runs, and its answer will count.
    Overtaken(Duration),
    /// Another attempt's answer counts, and it cannot be had.
    Unread(Error),
}

/// How [`Claim::complete`] ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Completion {
    /// The answer is stored, or is being stored in the background; it is the one to return.
    Own,
    /// Another attempt stored its answer first, and that is the one to return.
    Adopted(Stored),
}

/// A stored answer.
#[derive(Clone, Debug)]
pub struct Stored {
    pub(crate) operation: crate::Operation,
    pub(crate) record: Record,
    pub(crate) left: Duration,
}

impl Stored {
    /// What is stored: a value, or a business error.
    #[must_use]
    pub fn outcome(&self) -> OutcomeKind {
        match self.record.header.state {
            State::Done { outcome, .. } => outcome,
            // Only done records become `Stored`.
            _ => OutcomeKind::Unknown,
        }
    }

    /// How long ago it was stored.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.record.header.age(self.left)
    }

    /// Reads the answer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Undecodable`] if it is not a `T`.
    pub fn decode<T: Replay>(&self) -> Result<T, Error> {
        T::read(self.record.body()).map_err(|undecodable| {
            Error::new(ErrorKind::Undecodable, self.operation.clone())
                .detail(format!("at byte {}", undecodable.at))
        })
    }
}

impl Claim {
    pub(crate) fn new(
        core: &Arc<Core>,
        key: RecordKey,
        header: Header,
        policy: Policy,
        sent: Duration,
    ) -> Self {
        let lease = Lease {
            key: key.clone(),
            claim: header,
            lasts: policy.lease,
            give_up: sent + policy.max_run,
        };
        let renewal = core.keeper.register(lease, sent);
        let held = Held {
            core: Arc::clone(core),
            key,
            header,
            policy: Arc::new(policy),
            renewal: Arc::new(renewal),
        };
        held.tell(EventKind::Claimed {
            attempt: header.attempts,
            fence: header.fence,
        });
        Self { held: Some(held) }
    }

    fn held(&self) -> &Held {
        // Taken only by the methods that consume the claim.
        self.held
            .as_ref()
            .expect("a claim is held until it is settled")
    }

    pub(crate) fn key(&self) -> &RecordKey {
        &self.held().key
    }

    /// The number that grows with every claim of this key.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.held().header.fence
    }

    /// Which attempt this is, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.held().header.attempts
    }

    /// What the body can ask.
    #[must_use]
    pub fn context(&self) -> Context {
        let held = self.held();
        Context::new(held.key.clone(), held.header.fence, held.header.attempts)
    }

    /// Starts the lease again now, besides the renewals that happen by themselves.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StoreUnavailable`] without a reply, [`ErrorKind::Running`] if the claim is
    /// another's by now, [`ErrorKind::UnknownRecord`] if something else stands under the key.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the lease may or may not have been renewed.
    pub async fn renew(&self) -> Result<(), Error> {
        let held = self.held();
        let operation = held.key.operation().clone();
        let (tell, told) = oneshot::channel();
        let (core, key, header) = (Arc::clone(&held.core), held.key.clone(), held.header);
        // A connection that were made here would be driven here, and every lease with it.
        held.core.keeper.hand_over(async move {
            let moment = core.clock.now() + core.limits.complete_deadline.max(REPLY);
            let reply = core.store.renew(&key, &header);
            // Whoever asked may be gone.
            let _ = tell.send(deadline(&*core.clock, moment, reply).await);
        });
        match told.await.unwrap_or(Err(Elapsed)) {
            Ok(Ok(RenewReply::Renewed | RenewReply::Reasserted)) => Ok(()),
            Ok(Ok(RenewReply::Lost)) => Err(Error::new(
                ErrorKind::Running {
                    retry_after: held.policy.lease,
                },
                operation,
            )
            .detail("the claim is another attempt's by now")),
            Ok(Ok(RenewReply::Unreadable(error))) => {
                Err(Error::new(ErrorKind::UnknownRecord, operation).because(error))
            }
            Ok(Err(error)) => {
                Err(Error::new(ErrorKind::StoreUnavailable, operation).because(error))
            }
            Err(_) => Err(Error::new(ErrorKind::StoreUnavailable, operation)
                .detail("no reply to a renewal within its deadline")),
        }
    }

    /// Stores a value as the answer.
    ///
    /// A value that cannot be stored now is stored in the background, and the observer is told; one
    /// that is too large or not serializable leaves a tombstone, so that nothing runs twice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Running`] if another attempt holds the claim by now: its answer will count.
    /// [`ErrorKind::TooLarge`] if another attempt's answer counts, and the store does not read it.
    ///
    /// # Cancel safety
    ///
    /// A completion that has begun goes on in the background when this is dropped.
    pub async fn complete<T: Replay>(self, value: &T) -> Result<Completion, Error> {
        let operation = self.held().key.operation().clone();
        let encoded = Encoded::value(value, self.held().core.limits.max_value_bytes);
        match self.settle(encoded).await {
            Settled::Own => Ok(Completion::Own),
            Settled::Adopted(record) => Ok(Completion::Adopted(Stored {
                operation,
                left: record.header.retain,
                record,
            })),
            Settled::Overtaken(retry_after) => {
                Err(Error::new(ErrorKind::Running { retry_after }, operation))
            }
            Settled::Unread(error) => Err(error),
        }
    }

    /// Gives the key back, because nothing happened: the next call runs the body. The attempt does
    /// not count.
    ///
    /// # Cancel safety
    ///
    /// A release that has begun goes on in the background when this is dropped.
    pub async fn release(mut self) {
        if let Some(held) = self.held.take() {
            held.finish(Ending::Release { count: false }).await;
        }
    }

    /// The body panicked: the key is given back, and the attempt counts.
    pub(crate) async fn panicked(mut self) {
        if let Some(held) = self.held.take() {
            held.tell(EventKind::Panicked);
            held.finish(Ending::Release { count: true }).await;
        }
    }

    /// Stores or gives back what the body's result says.
    pub(crate) async fn settle(mut self, encoded: Encoded) -> Settled {
        let Some(held) = self.held.take() else {
            return Settled::Own;
        };
        let ending = match encoded {
            Encoded::Release => Ending::Release { count: false },
            Encoded::Store {
                outcome,
                schema,
                mut record,
                lost,
            } => {
                if let Some(lost) = lost {
                    held.tell(EventKind::Unsaved {
                        reason: &lost.to_string(),
                    });
                }
                let header = held.done(outcome, schema);
                record[..HEADER].copy_from_slice(&header.encode());
                Ending::Complete {
                    outcome,
                    record: record.into(),
                }
            }
        };
        held.finish(ending).await
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            held.tell(EventKind::Dropped);
        }
    }
}

/// How long a reply is waited for where nobody waits for the result. A shorter
/// `complete_deadline` is about the caller's patience, not about the store.
const REPLY: Duration = Duration::from_secs(2);

#[derive(Clone)]
enum Ending {
    Complete { outcome: OutcomeKind, record: Bytes },
    Release { count: bool },
}

impl Held {
    fn tell(&self, kind: EventKind<'_>) {
        self.core.tell(&self.key, kind);
    }

    /// The header of the finished record.
    fn done(&self, outcome: OutcomeKind, schema: u32) -> Header {
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
    async fn finish(self, ending: Ending) -> Settled {
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
                CompleteReply::Adopted { record, .. } => {
                    self.tell(EventKind::Adopted);
                    return Some(Settled::Adopted(record));
                }
                CompleteReply::Superseded { lease_left } => {
                    let now = clock.now();
                    if now >= patience {
                        return Some(Settled::Overtaken(lease_left));
                    }
                    overtaken = Some(lease_left);
                    silent_until = now + silence;
                    let pause = backoff.poll().min(lease_left);
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

/// Gives a claim back that may have been granted without anybody having seen the reply.
pub(crate) struct Orphan {
    core: Arc<Core>,
    key: RecordKey,
    owner: Owner,
    armed: bool,
}

impl Orphan {
    pub(crate) fn new(core: &Arc<Core>, key: &RecordKey, owner: Owner) -> Self {
        Self {
            core: Arc::clone(core),
            key: key.clone(),
            owner,
            armed: false,
        }
    }

    /// A claim is under way.
    pub(crate) fn arm(&mut self) {
        self.armed = true;
    }

    /// Its reply is here.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (core, key, owner) = (Arc::clone(&self.core), self.key.clone(), self.owner);
        self.core.keeper.hand_over(async move {
            // Once: a claim that lands behind it blocks the key for one lease, never longer.
            let moment = core.clock.now() + core.limits.claim_deadline;
            let release = core.store.release(&key, &owner, false);
            if let Ok(Ok(ReleaseReply::Released)) = deadline(&*core.clock, moment, release).await {
                core.tell(&key, EventKind::Released { counted: false });
            }
        });
    }
}

/// What a granted claim's record starts with.
pub(crate) fn granted(
    owner: Owner,
    fence: Fence,
    attempt: u16,
    policy: &Policy,
    fingerprint: Fingerprint,
) -> Header {
    Header {
        state: State::Pending {
            lease: policy.lease,
        },
        owner,
        fence,
        attempts: attempt,
        retain: policy.retain(),
        fingerprint,
    }
}

/// Why a store gave no claim, for the person who reads the error.
pub(crate) fn unavailable(operation: &crate::Operation, error: StoreError) -> Error {
    let kind = match error.kind() {
        StoreErrorKind::TooLarge => ErrorKind::TooLarge,
        _ => ErrorKind::StoreUnavailable,
    };
    Error::new(kind, operation.clone()).because(error)
}
