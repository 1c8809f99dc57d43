//! How a call begins: it gets the claim, an answer, or a refusal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::busy::{Entered, Unleased};
use crate::cache::{Found, Life, Permit};
use crate::claim::{Claim, granted};
use crate::clock::deadline;
use crate::context::{is_held, is_inside};
use crate::engine::{Core, Protection};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::flight::{Follower, Join, Landing, Ticket};
use crate::key::KeyDigest;
use crate::meaning::refusal;
use crate::observer::{Event, EventKind};
use crate::operation::{Operation, RecordKey};
use crate::orphan::Orphan;
use crate::policy::{OnOutage, Policy};
use crate::reconcile::Riddle;
use crate::record::{Owner, Record, State};
use crate::stored::Stored;
use crate::transition::{ClaimReply, ClaimRequest};

/// One call, ready to ask for its claim.
pub(crate) struct Ask {
    pub(crate) operation: Operation,
    pub(crate) digest: KeyDigest,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) policy: Policy,
    /// Its token has: it gets what is there, and starts nothing.
    pub(crate) expired: bool,
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

/// What a call does.
pub(crate) enum Start {
    /// It runs the body.
    Run(Claim),
    /// It finds out about an earlier attempt first.
    Reconcile(Claim, Riddle),
    /// It runs the body without protection.
    Unprotected(Unleased),
    /// It has its answer.
    Done(Stored),
}

/// A call that waits for its claim, or for another's answer.
struct Begin<'a> {
    core: &'a Arc<Core>,
    key: &'a RecordKey,
    fingerprint: Fingerprint,
    policy: Policy,
    expired: bool,
    /// Until when it waits for an answer.
    patience: Duration,
    waited: bool,
    /// The right to keep the answer that the store gives.
    permit: Option<Permit>,
    /// Between the claims of a call that waits alone.
    backoff: Option<Backoff>,
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
    pub(crate) async fn begin(self: &Arc<Self>, ask: Ask) -> Result<Start, Error> {
        let Ask {
            operation,
            digest,
            fingerprint,
            policy,
            expired,
        } = ask;
        let key = RecordKey::new(Arc::clone(&self.prefix), operation, digest);
        let (on_outage, max_run) = (policy.on_outage, policy.max_run);
        // Counted before the look at `closing`, so that a shutdown either sees this call or stops it.
        let _entered = Entered::new(self);
        let begun = self.admit(&key, fingerprint, policy, expired).await;
        match begun {
            Err(error)
                if on_outage == OnOutage::Run && *error.kind() == ErrorKind::StoreUnavailable =>
            {
                self.tell(
                    &key,
                    EventKind::Unprotected {
                        reason: &error.to_string(),
                    },
                );
                Ok(Start::Unprotected(Unleased::new(self, key, max_run)))
            }
            Err(error) => {
                self.tell(&key, EventKind::Refused { error: &error });
                Err(error)
            }
            begun => begun,
        }
    }

    /// Whether a call is to be protected.
    ///
    /// # Errors
    ///
    /// It is not to run at all.
    pub(crate) fn lets_in(&self, key: &RecordKey) -> Result<bool, Error> {
        let operation = key.operation();
        if is_held(self.id, key) {
            return Err(Error::new(ErrorKind::Reentered, operation.clone()));
        }
        // What runs already may finish, with all that it calls.
        if self.closing.load(Ordering::SeqCst) && !is_inside() {
            return Err(Error::new(ErrorKind::ShuttingDown, operation.clone()));
        }
        match &self.protection {
            Protection::On => Ok(true),
            Protection::Off(reason) => {
                self.tell(key, EventKind::Unprotected { reason });
                Ok(false)
            }
            Protection::Refused => Err(Error::new(ErrorKind::NoEngine, operation.clone())
                .detail("`Engine::disabled` has no effect in a release build")),
        }
    }

    async fn admit(
        self: &Arc<Self>,
        key: &RecordKey,
        fingerprint: Fingerprint,
        policy: Policy,
        expired: bool,
    ) -> Result<Start, Error> {
        let operation = key.operation();
        if !self.lets_in(key)? {
            let key = key.clone();
            let call = Unleased::new(self, key, policy.max_run);
            return Ok(Start::Unprotected(call));
        }
        if let Err(error) = self.keeper.start() {
            let detail = format!("the thread that renews leases cannot be started: {error}");
            return Err(Error::new(ErrorKind::StoreUnavailable, operation.clone()).detail(detail));
        }
        let now = self.clock.now();
        let permit = match self.recall(key, fingerprint, &policy, now) {
            Found::Answer { record, left } => {
                let stored = self.answer(key, record, left, policy.on_duplicate, false, true)?;
                return Ok(Start::Done(stored));
            }
            Found::Nothing(permit) => permit,
        };
        let patience = now + policy.wait();
        let begin = Begin {
            core: self,
            key,
            fingerprint,
            policy,
            expired,
            patience,
            waited: false,
            permit,
            backoff: None,
        };
        begin.run().await
    }
}

impl Begin<'_> {
    async fn run(mut self) -> Result<Start, Error> {
        loop {
            let (flights, now) = (&self.core.flights, self.core.clock.now());
            // A reply that came late is asked for once more.
            let within = self.core.limits.claim_deadline * 2;
            let ticket = match flights.join(self.key.digest(), self.fingerprint, now, within) {
                Join::Lead(ticket) => Some(ticket),
                Join::Follow(follower, lease_left) if self.core.clock.now() < self.patience => {
                    match self.follow(follower, lease_left).await {
                        Some(start) => return start,
                        None => continue,
                    }
                }
                // Nobody to wait with, or no time to: the store says what it has to say.
                Join::Follow(..) | Join::Alone => None,
            };
            if let Some(start) = self.lead(ticket).await {
                return start;
            }
        }
    }

    /// Waits for what another call of this process finds out. `None`: ask again.
    async fn follow(
        &mut self,
        mut follower: Follower,
        lease_left: Option<Duration>,
    ) -> Option<Result<Start, Error>> {
        self.waited = true;
        let clock = &*self.core.clock;
        let moment = lease_left.map_or(self.patience, |left| self.patience.min(clock.now() + left));
        match deadline(clock, moment, follower.landing()).await {
            Ok(None) => None,
            Ok(Some(Landing::Refused {
                error,
                max_attempts,
            })) => {
                // As with an unknown outcome, below.
                let can_find_out =
                    self.policy.reconciles && matches!(error.kind(), ErrorKind::Exhausted { .. });
                let same = max_attempts == self.policy.max_attempts && !can_find_out;
                same.then_some(Err(error))
            }
            Ok(Some(Landing::Done {
                record,
                left,
                at,
                asked,
            })) => {
                let left = left.saturating_sub(clock.now().saturating_sub(at));
                // This call can find out what the other could not.
                if self.policy.reconciles && !asked && record.header.is_unknown(left) {
                    return None;
                }
                Some(self.done(record, left))
            }
            // Renewed in the meantime, most likely: joining again tells.
            Err(_) if clock.now() < self.patience => None,
            Err(_) => {
                let left = (self.core.flights).lease_left(self.key.digest(), clock.now());
                let retry_after = left.unwrap_or(self.policy.lease);
                let kind = ErrorKind::Running { retry_after };
                Some(Err(Error::new(kind, self.key.operation().clone())))
            }
        }
    }

    fn done(&self, record: Record, left: Duration) -> Result<Start, Error> {
        let on_duplicate = self.policy.on_duplicate;
        let stored =
            (self.core).answer(self.key, record, left, on_duplicate, self.waited, false)?;
        Ok(Start::Done(stored))
    }

    /// Asks the store. `None`: the body runs elsewhere, and this call has waited.
    async fn lead(&mut self, ticket: Option<Ticket>) -> Option<Result<Start, Error>> {
        let (core, key) = (self.core, self.key);
        let operation = key.operation();
        let request = ClaimRequest {
            owner: Owner::random(),
            fingerprint: self.fingerprint,
            lease: self.policy.lease,
            retain: self.policy.retain(),
            max_attempts: self.policy.max_attempts,
            reconciles: self.policy.reconciles,
            // Of an owner that nobody knows: it is granted nothing.
            starts: self.expired,
            dated: self.policy.dated(),
        };
        let mut orphan = Orphan::new(core, key, request.owner);
        let asked = match core.ask(key, &request, &mut orphan).await {
            Ok(asked) => asked,
            Err(error) => return Some(Err(self.refused(ticket, error))),
        };
        let lease = request.lease;
        Some(match asked.reply {
            ClaimReply::Granted { fence, attempt } => {
                let header = granted(&request, State::Pending { lease }, fence, attempt);
                let policy = self.policy.clone();
                let claim = Claim::new(core, key.clone(), header, policy, asked.sent, ticket);
                Ok(Start::Run(claim))
            }
            ClaimReply::Reconcile { fence, attempts } => {
                let header = granted(&request, State::Reconciling { lease }, fence, attempts);
                let policy = self.policy.clone();
                let claim = Claim::new(core, key.clone(), header, policy, asked.sent, ticket);
                Ok(Start::Reconcile(claim, Riddle::new(core, request)))
            }
            ClaimReply::Running { lease_left } if self.expired && lease_left.is_zero() => {
                let error = core.expired(key).await?;
                Err(self.refused(ticket, error))
            }
            ClaimReply::Running { lease_left } => {
                if core.clock.now() >= self.patience {
                    let retry_after = lease_left;
                    Err(Error::new(
                        ErrorKind::Running { retry_after },
                        operation.clone(),
                    ))
                } else {
                    return self.wait(ticket, lease_left).await;
                }
            }
            ClaimReply::Done { record, left } => {
                let life = Life {
                    left,
                    sent: asked.sent,
                    dated: request.dated,
                };
                core.remember(self.permit, key, &record, life);
                if let Some(ticket) = ticket {
                    let (record, at) = (record.clone(), core.clock.now());
                    ticket.land(Landing::Done {
                        record,
                        left,
                        at,
                        asked: false,
                    });
                }
                self.done(record, left)
            }
            reply => Err(self.refused(ticket, refusal(operation, &reply))),
        })
    }

    /// Whoever waited gets the same refusal.
    fn refused(&self, ticket: Option<Ticket>, error: Error) -> Error {
        if let Some(ticket) = ticket {
            ticket.land(Landing::Refused {
                error: error.clone(),
                max_attempts: self.policy.max_attempts,
            });
        }
        error
    }

    /// Waits, with everybody else in this process, until the body that runs elsewhere has ended.
    async fn wait(
        &mut self,
        ticket: Option<Ticket>,
        lease_left: Duration,
    ) -> Option<Result<Start, Error>> {
        let core = self.core;
        if let Some(ticket) = ticket {
            let follower = core.watch_over(self.key, self.fingerprint, lease_left, ticket)?;
            return self.follow(follower, None).await;
        }
        // Another request has the key in this process, and this one is its like: the fingerprints
        // differ but match, because one of them compares nothing. Rare, so it just asks again.
        self.waited = true;
        let backoff = self
            .backoff
            .get_or_insert_with(|| Backoff::new(&Owner::random()));
        let pause = lease_left.min(backoff.poll());
        let moment = (core.clock.now() + pause).min(self.patience);
        core.clock.sleep_until(moment).await;
        None
    }
}
