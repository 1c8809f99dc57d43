//! A granted claim, from the moment it is granted until its outcome is settled.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::answer::{Body, Encoded, Format, How, Replay, Undecodable};
use crate::clock::{Elapsed, deadline};
use crate::context::Context;
use crate::engine::Core;
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::keeper::Lease;
use crate::key::KeyDigest;
use crate::observer::EventKind;
use crate::operation::RecordKey;
use crate::policy::Policy;
use crate::record::{Fence, HEADER, Header, OutcomeKind, Owner, Record, State};
use crate::settle::{Ending, Held, REPLY, Settled};
use crate::transition::RenewReply;

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

/// How [`Claim::complete`] ended.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is read at once"
)]
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
    digest: KeyDigest,
    format: Arc<Format>,
    pub(crate) record: Record,
    pub(crate) left: Duration,
    /// Whether its caller was under way when it was stored.
    pub(crate) waited: bool,
}

impl Stored {
    pub(crate) fn new(
        core: &Core,
        key: &RecordKey,
        record: Record,
        left: Duration,
        waited: bool,
    ) -> Self {
        Self {
            operation: key.operation().clone(),
            digest: *key.digest(),
            format: Arc::clone(&core.format),
            record,
            left,
            waited,
        }
    }

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
        let value = self.open().and_then(|body| T::read(&body));
        let mut value = value.map_err(|undecodable| {
            Error::new(ErrorKind::Undecodable, self.operation.clone())
                .detail(undecodable.to_string())
        })?;
        value.come_about(self.how(), self.record.header.attempts, self.age());
        Ok(value)
    }

    pub(crate) fn open(&self) -> Result<Body<'_>, Undecodable> {
        self.format.open(&self.digest, &self.record)
    }

    pub(crate) fn how(&self) -> How {
        if self.waited {
            How::Waited
        } else {
            How::Replayed
        }
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
        let encoded = Encoded::value(value, &self.held().core.format);
        match self.settle(encoded).await {
            Settled::Own => Ok(Completion::Own),
            Settled::Adopted(stored) => Ok(Completion::Adopted(stored)),
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
        let ending = match held.core.format.seal(held.key.digest(), encoded) {
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
