//! How a call begins: it gets the claim, an answer, or a refusal.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::backoff::Backoff;
use crate::claim::{Claim, Stored, granted};
use crate::clock::deadline;
use crate::engine::Core;
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::KeyDigest;
use crate::observer::{Event, EventKind};
use crate::operation::{Operation, RecordKey};
use crate::orphan::Orphan;
use crate::policy::{OnDuplicate, Policy};
use crate::record::{OutcomeKind, Owner, Record, State};
use crate::store::{StoreError, StoreErrorKind};
use crate::transition::{ClaimReply, ClaimRequest};

/// One call, ready to ask for its claim.
pub(crate) struct Ask {
    pub(crate) operation: Operation,
    pub(crate) digest: KeyDigest,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) policy: Policy,
}

/// What asking led to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Begun {
    /// The body is yours to run.
    Claimed(Claim),
    /// It was done before; this is the answer.
    Done(Stored),
}

impl Core {
    pub(crate) fn tell(&self, key: &RecordKey, kind: EventKind<'_>) {
        self.observer.observe(&Event {
            operation: key.operation().as_str(),
            key: Some(key.digest()),
            kind,
        });
    }

    /// Claims the key, waits for its answer, or says why neither is to be had.
    pub(crate) async fn begin(self: &Arc<Self>, ask: Ask) -> Result<Begun, Error> {
        let key = RecordKey::new(Arc::clone(&self.prefix), ask.operation, ask.digest);
        let begun = self.claim(&key, ask.fingerprint, ask.policy).await;
        if let Err(error) = &begun {
            self.tell(&key, EventKind::Refused { error });
        }
        begun
    }

    async fn claim(
        self: &Arc<Self>,
        key: &RecordKey,
        fingerprint: Fingerprint,
        policy: Policy,
    ) -> Result<Begun, Error> {
        let operation = key.operation();
        let refuse = |kind| Err(Error::new(kind, operation.clone()));
        if let Err(error) = self.keeper.start() {
            let detail = format!("the thread that renews leases cannot be started: {error}");
            return Err(Error::new(ErrorKind::StoreUnavailable, operation.clone()).detail(detail));
        }
        let clock = &*self.clock;
        let request = ClaimRequest {
            owner: Owner::random(),
            fingerprint,
            lease: policy.lease,
            retain: policy.retain(),
            max_attempts: policy.max_attempts,
            reconciles: false,
        };
        let mut backoff = Backoff::new(&request.owner);
        let mut orphan = Orphan::new(self, key, request.owner);
        let started = clock.now();
        let patience = started + policy.wait();
        let mut silent_until = started + self.limits.claim_deadline;
        let (mut waited, mut failure, mut late) = (false, None, false);
        loop {
            let sent = clock.now();
            if sent >= silent_until
                && let Some(error) = failure
            {
                return Err(unavailable(operation, error));
            }
            orphan.arm();
            let reply = deadline(clock, silent_until, self.store.claim(key, &request)).await;
            let reply = match reply {
                Ok(Ok(reply)) => {
                    orphan.disarm();
                    reply
                }
                Ok(Err(error)) => {
                    let now = clock.now();
                    if !error.is_transient() || now >= silent_until {
                        return Err(unavailable(operation, error));
                    }
                    let pause = backoff.retry().min(silent_until.saturating_sub(now));
                    clock.sleep_until(now + pause).await;
                    failure = Some(error);
                    continue;
                }
                Err(_) => {
                    // What the store said before it fell silent says more than the silence.
                    return Err(failure.map_or_else(
                        || self.silent(operation),
                        |error| unavailable(operation, error),
                    ));
                }
            };
            return match reply {
                // Nobody knows whose the claim is by now. Asking again tells, and renews it.
                ClaimReply::Granted { .. } if clock.now() >= sent + policy.lease => {
                    orphan.arm();
                    if late && clock.now() >= silent_until {
                        return Err(slow(operation));
                    }
                    if !late {
                        late = true;
                        silent_until = clock.now() + self.limits.claim_deadline;
                    }
                    continue;
                }
                ClaimReply::Granted { fence, attempt } => {
                    let header = granted(request.owner, fence, attempt, &policy, fingerprint);
                    let claim = Claim::new(self, key.clone(), header, policy, sent);
                    Ok(Begun::Claimed(claim))
                }
                ClaimReply::Running { lease_left } => {
                    let now = clock.now();
                    if now >= patience {
                        let retry_after = lease_left;
                        refuse(ErrorKind::Running { retry_after })
                    } else {
                        waited = true;
                        let pause = backoff
                            .poll()
                            .min(lease_left)
                            .min(patience.saturating_sub(now));
                        clock.sleep_until(now + pause).await;
                        silent_until = clock.now() + self.limits.claim_deadline;
                        failure = None;
                        continue;
                    }
                }
                ClaimReply::Done { record, left } => {
                    self.answer(key, record, left, policy.on_duplicate, waited)
                }
                // Not asked for yet.
                ClaimReply::Reconcile { .. } => refuse(ErrorKind::UnknownRecord),
                ClaimReply::Mismatch => refuse(ErrorKind::Mismatch),
                ClaimReply::Exhausted { attempts } => {
                    let attempts = attempts.into();
                    refuse(ErrorKind::Exhausted { attempts })
                }
                ClaimReply::Unreadable(error) => {
                    Err(Error::new(ErrorKind::UnknownRecord, operation.clone()).because(error))
                }
            };
        }
    }

    fn silent(&self, operation: &Operation) -> Error {
        Error::new(ErrorKind::StoreUnavailable, operation.clone()).detail(format!(
            "no reply to a claim within {:?}",
            self.limits.claim_deadline
        ))
    }

    /// What a finished record means for a duplicate.
    pub(crate) fn answer(
        &self,
        key: &RecordKey,
        record: Record,
        left: Duration,
        on_duplicate: OnDuplicate,
        waited: bool,
    ) -> Result<Begun, Error> {
        let operation = key.operation();
        let refuse = |kind| Err(Error::new(kind, operation.clone()));
        let State::Done { outcome, .. } = record.header.state else {
            return refuse(ErrorKind::UnknownRecord);
        };
        let age = record.header.age(left);
        match outcome {
            OutcomeKind::Unknown => refuse(ErrorKind::Unknown {
                since: (self.clock.calendar().checked_sub(age))
                    // A clock before 1970 is wrong, and such a time could not be serialized.
                    .map_or(SystemTime::UNIX_EPOCH, |since| {
                        since.max(SystemTime::UNIX_EPOCH)
                    }),
            }),
            _ if on_duplicate == OnDuplicate::Reject => {
                refuse(ErrorKind::Duplicate { retry_after: left })
            }
            OutcomeKind::Tombstone => refuse(ErrorKind::NotStored),
            OutcomeKind::Value | OutcomeKind::Error => {
                self.tell(
                    key,
                    EventKind::Replayed {
                        outcome,
                        age,
                        waited,
                    },
                );
                let stored = Stored::new(self, key, record, left, waited);
                Ok(Begun::Done(stored))
            }
        }
    }
}

fn slow(operation: &Operation) -> Error {
    Error::new(ErrorKind::StoreUnavailable, operation.clone())
        .detail("the store takes longer to grant the claim than its lease lasts")
}

/// Why a store gave no claim, for the person who reads the error.
pub(crate) fn unavailable(operation: &Operation, error: StoreError) -> Error {
    let kind = match error.kind() {
        StoreErrorKind::TooLarge => ErrorKind::TooLarge,
        _ => ErrorKind::StoreUnavailable,
    };
    let permanent = !error.is_transient();
    Error::new(kind, operation.clone())
        .permanent(permanent)
        .because(error)
}
