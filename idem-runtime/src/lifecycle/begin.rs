//! Begins a call: it gets the claim, an answer, or a refusal.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::env::backoff::Backoff;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::CallName;
use crate::identity::fingerprint::Fingerprint;
use crate::lifecycle::acquire::Asked;
use crate::lifecycle::claim::{Claim, granted};
use crate::lifecycle::core::Core;
use crate::lifecycle::in_flight::Entered;
use crate::lifecycle::interpret::refusal;
use crate::lifecycle::reconcile::pending::PendingReconcile;
use crate::lifecycle::remote_wait::Running;
use crate::lifecycle::run_limit::{Gate, RunPermit, over_quota};
use crate::lifecycle::start::{Answered, Pending, Start};
use crate::lifecycle::unacked_claim::UnackedClaim;
use crate::local::cache::{Life, Permit};
use crate::local::singleflight::{Follower, Join, Leader, SharedOutcome};
use crate::policy::EffectivePolicy;
use crate::record::transition::{ClaimReply, ClaimRequest, Needs};
use crate::record::{Fence, Owner, Record, State};

/// A granted claim.
struct Grant {
    request: ClaimRequest,
    /// Pending, or reconciling.
    state: State,
    fence: Fence,
    attempts: u16,
    /// As in [`ClaimReply::Granted`].
    fresh: bool,
    sent: Duration,
    leader: Option<Leader>,
}

/// A reply of the store that answers nothing.
enum Led {
    Granted(Grant),
    /// No body runs and no answer is stored, and the request could not claim.
    Vacant(Option<Leader>),
    /// The body runs in another process, with this much of its lease left.
    Elsewhere(Option<Leader>, Duration),
    /// There is no record, and the request could not begin one.
    Absent(Option<Leader>),
}

/// A call that waits for its claim, or for the answer of another call.
pub(crate) struct Begin {
    entered: Entered,
    name: CallName,
    fingerprint: Fingerprint,
    policy: EffectivePolicy,
    expired: bool,
    /// The moment at which it begins.
    now: Duration,
    waited: bool,
    /// The right to cache the store's answer.
    permit: Option<Permit>,
    /// Back-off between the claims of a call that waits alone.
    backoff: Option<Backoff>,
    gate: Option<Box<Gate>>,
    /// The place of its body among the running ones, from before the claim.
    place: Option<Box<RunPermit>>,
    /// Its own name and fingerprint during the lookup under the former ones. That lookup begins nothing.
    own: Option<Box<(CallName, Fingerprint)>>,
}

impl Begin {
    pub(crate) fn new(
        entered: Entered,
        name: CallName,
        (fingerprint, expired): (Fingerprint, bool),
        policy: EffectivePolicy,
        now: Duration,
        (permit, gate): (Option<Permit>, Option<Box<Gate>>),
    ) -> Self {
        Self {
            now,
            entered,
            name,
            fingerprint,
            policy,
            expired,
            waited: false,
            permit,
            backoff: None,
            gate,
            place: None,
            own: None,
        }
    }

    /// Looks the record up under this name first.
    pub(crate) fn formerly(mut self, former: Option<Box<(CallName, Fingerprint)>>) -> Self {
        self.own = former;
        self.swap_names();
        self
    }

    fn swap_names(&mut self) {
        if let Some(other) = &mut self.own {
            std::mem::swap(&mut self.name, &mut other.0);
            std::mem::swap(&mut self.fingerprint, &mut other.1);
        }
    }

    /// Continues under the call's own name.
    fn leave_former(&mut self) {
        self.swap_names();
        self.own = None;
    }

    fn core(&self) -> &Arc<Core> {
        self.entered.core()
    }

    /// Until when it waits for an answer.
    fn patience(&self) -> Duration {
        self.now + self.policy.wait()
    }

    /// Claims the key, waits for its answer, or returns an error.
    pub(crate) fn run(mut self) -> Pending {
        Box::pin(async move {
            let reached = self.ask().await;
            if self.own.is_some() {
                match &reached {
                    ControlFlow::Break(Err(error))
                        if matches!(error.kind(), ErrorKind::StoreUnavailable) =>
                    {
                        self.leave_former();
                    }
                    _ => self.core().tell(&self.name.key, EventKind::FormerDigestKey),
                }
            }
            match reached {
                ControlFlow::Continue(grant) => Ok(self.claim(grant)),
                ControlFlow::Break(Ok(stored)) => Ok(Start::Replay(stored)),
                ControlFlow::Break(Err(error)) => {
                    // A call whose token has expired must not run its body at all.
                    let is_outage = error.is_outage() && !self.expired;
                    let error = error.outage(is_outage);
                    let place = self.place.take();
                    let (core, gate) = (self.core(), self.gate.as_deref());
                    let place = || place.map_or_else(|| core.place(gate), |place| Ok(Some(place)));
                    core.not_begun(&self.name, &self.policy, error, place)
                }
            }
        })
    }

    /// Moves the call into its claim, which a shutdown then waits for.
    fn claim(self, grant: Grant) -> Start {
        let Grant {
            request,
            state,
            fence,
            attempts,
            fresh,
            sent,
            leader,
        } = grant;
        let Self {
            entered,
            name,
            policy,
            place,
            ..
        } = self;
        let header = granted(&request, state, fence, attempts);
        let reconcile = match state {
            State::Reconciling { .. } => Some(PendingReconcile::new(entered.core(), request)),
            _ => None,
        };
        let claim =
            entered.arrive(|core| Claim::new(core, name, header, fresh, policy, sent, leader));
        let claim = claim.in_place(place);
        match reconcile {
            Some(reconcile) => Start::Reconcile(claim, reconcile),
            None => Start::Run(claim),
        }
    }

    async fn ask(&mut self) -> ControlFlow<Answered, Grant> {
        let mut now = self.now;
        loop {
            let core = self.core();
            // A late reply is requested once more.
            let within = core.limits.claim_deadline * 2;
            let (flights, digest) = (&core.flights, self.name.key.digest());
            let leader = match flights.join(digest, self.fingerprint, now, within) {
                Join::Lead(leader) => Some(leader),
                Join::Follow(follower, lease_left) if now < self.patience() => {
                    // A call that waits runs nothing.
                    self.place = None;
                    // Boxed, as every long wait: most calls do not wait.
                    let answered = Box::pin(self.follow(follower, lease_left)).await;
                    if let Some(answered) = answered {
                        return ControlFlow::Break(answered);
                    }
                    now = self.core().clock.now();
                    continue;
                }
                // No leader to follow, or the wait budget is spent: query the store.
                Join::Follow(..) | Join::Alone => None,
            };
            let led = self.claim_or_look(leader, &mut now).await?;
            let (leader, lease_left) = match led {
                Led::Granted(grant) => return ControlFlow::Continue(grant),
                Led::Absent(leader) if self.own.is_some() => {
                    if let Some(leader) = leader {
                        leader.land(|| Some(SharedOutcome::Absent));
                    }
                    self.leave_former();
                    now = self.core().clock.now();
                    continue;
                }
                Led::Absent(leader) | Led::Vacant(leader) => (leader, None),
                Led::Elsewhere(leader, lease_left) => (leader, Some(lease_left)),
            };
            // A call that waits runs nothing.
            self.place = None;
            if let Some(answered) = Box::pin(self.wait(leader, lease_left, now)).await {
                return ControlFlow::Break(answered);
            }
            now = self.core().clock.now();
        }
    }

    /// Sends the claim. At a limit or with a quota, a request goes first that claims and writes nothing: a stored
    /// answer is replayed, and a running body is waited for, whatever the limits are.
    async fn claim_or_look(
        &mut self,
        mut leader: Option<Leader>,
        now: &mut Duration,
    ) -> ControlFlow<Answered, Led> {
        let mut looks = !self.may_claim();
        loop {
            let request = self.request(looks);
            let asked = {
                let (core, key) = (self.core(), &self.name.key);
                let mut unacked = UnackedClaim::new(core, key, request.owner);
                core.ask(key, &request, &mut unacked, *now).await
            };
            leader = match self.led(leader, request, asked)? {
                // After the former name the call continues under its own, where an answer may be stored.
                led @ Led::Absent(_) if self.own.is_some() => return ControlFlow::Continue(led),
                Led::Vacant(leader) | Led::Absent(leader) if looks => {
                    *now = self.core().clock.now();
                    match self.pass() {
                        Ok(()) => leader,
                        Err(error) => {
                            return ControlFlow::Break(Err(self.refused(leader, error, *now)));
                        }
                    }
                }
                led => return ControlFlow::Continue(led),
            };
            looks = false;
        }
    }

    /// Takes a place among the running bodies. Returns whether the call may claim without reading the record first.
    fn may_claim(&mut self) -> bool {
        // An expired token starts nothing.
        if self.expired {
            return true;
        }
        // The place may be held from before the call left its former name.
        if self.place.is_none() {
            match self.core().place(self.gate.as_deref()) {
                Ok(place) => self.place = place,
                Err(_) => return false,
            }
        }
        let gate = self.gate.as_ref();
        gate.is_none_or(|gate| gate.quota.is_none())
    }

    /// Checks limits and quota. The call has found no answer and no running body.
    fn pass(&mut self) -> Result<(), Error> {
        if self.place.is_none() {
            // Tried again: a replay may have held the last place, for no longer than this read took.
            let place = self.core().place(self.gate.as_deref());
            self.place = place.map_err(|full| full.error(self.name.key.operation()))?;
        }
        // The quota is checked once.
        let quota = self.gate.as_mut().and_then(|gate| gate.quota.take());
        let granted = quota.map_or(Ok(()), |quota| quota());
        granted.map_err(|retry_after| over_quota(self.name.key.operation(), retry_after))
    }

    /// Waits for the outcome of another call of this process. `None`: join again.
    async fn follow(
        &mut self,
        mut follower: Follower,
        lease_left: Option<Duration>,
    ) -> Option<Answered> {
        self.waited = true;
        let (clock, patience) = (&*self.core().clock, self.patience());
        let moment = lease_left.map_or(patience, |left| patience.min(clock.now() + left));
        match deadline(clock, moment, pin!(follower.landing())).await {
            Ok(None) => None,
            Ok(Some(SharedOutcome::Absent)) => {
                self.leave_former();
                None
            }
            Ok(Some(landing)) if !landing.is_for(self.now) => None,
            Ok(Some(SharedOutcome::Refused {
                error,
                max_attempts,
                ..
            })) => {
                // As with an unknown outcome, below.
                let may_differ = match error.kind() {
                    ErrorKind::Exhausted { .. } => self.policy.reconciles,
                    // The other call may be of another function than this one.
                    ErrorKind::WrongType => true,
                    // A body of this engine makes this call, or a place is free by now.
                    ErrorKind::TooManyRunning => self.core().place(self.gate.as_deref()).is_ok(),
                    ErrorKind::QuotaExceeded => {
                        let gate = self.gate.as_ref();
                        gate.is_none_or(|gate| gate.quota.is_none())
                    }
                    _ => false,
                };
                let same = max_attempts == self.policy.max_attempts() && !may_differ;
                same.then_some(Err(error))
            }
            Ok(Some(SharedOutcome::Done {
                record,
                left,
                at,
                asked,
                dated,
                ..
            })) => {
                if self.policy.dated() && !dated {
                    return None;
                }
                let left = left.saturating_sub(clock.now().saturating_sub(at));
                // This call can reconcile, which the other could not.
                if self.policy.reconciles && !asked && record.header.is_unknown(left) {
                    return None;
                }
                Some(self.done(record, left))
            }
            // Most likely renewed in the meantime, which joining again shows.
            Err(_) if clock.now() < patience => None,
            Err(_) => {
                let left = (self.core().flights).lease_left(self.name.key.digest(), clock.now());
                let retry_after = left.unwrap_or(self.policy.lease());
                let kind = ErrorKind::Running { retry_after };
                Some(Err(Error::new(kind, self.name.key.operation().clone())))
            }
        }
    }

    fn done(&self, record: Record, left: Duration) -> Answered {
        let key = &self.name.key;
        (self.core()).answer(key, record, left, &self.policy, self.waited, false)
    }

    /// The request of this call; with `looks` it claims nothing.
    fn request(&self, looks: bool) -> ClaimRequest {
        let needs = match self.own {
            // Its owner has no claim, so it is granted nothing.
            _ if self.expired || looks => Needs::Verdict,
            Some(_) => Needs::Record,
            None => Needs::Nothing,
        };
        ClaimRequest {
            owner: self.core().store.new_owner(&self.name.key),
            fingerprint: self.fingerprint,
            types: self.policy.types,
            any_type: self.policy.reads_any_type(),
            lease: self.policy.lease(),
            retain: self.policy.retain(),
            max_attempts: self.policy.max_attempts(),
            reconciles: self.policy.reconciles && !looks,
            needs,
            dated: self.policy.dated(),
        }
    }

    /// Maps the store's reply to the result of this call and of its followers.
    fn led(
        &self,
        leader: Option<Leader>,
        request: ClaimRequest,
        asked: Result<Asked, Error>,
    ) -> ControlFlow<Answered, Led> {
        let (core, key) = (self.core(), &self.name.key);
        let operation = key.operation();
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => {
                let sent = core.clock.now();
                return ControlFlow::Break(Err(self.refused(leader, error, sent)));
            }
        };
        let (lease, sent) = (request.lease, asked.sent);
        let leader = leader.or_else(|| {
            let is_grant = matches!(
                asked.reply,
                ClaimReply::Granted { .. } | ClaimReply::Reconcile { .. }
            );
            let until = core.clock.now() + lease;
            is_grant.then(|| (core.flights).take_over(key.digest(), self.fingerprint, until))
        });
        ControlFlow::Continue(match asked.reply {
            ClaimReply::Granted {
                fence,
                attempt,
                fresh,
            } => Led::Granted(Grant {
                request,
                state: State::Pending { lease },
                fence,
                attempts: attempt,
                fresh,
                sent,
                leader,
            }),
            ClaimReply::Reconcile { fence, attempts } => Led::Granted(Grant {
                request,
                state: State::Reconciling { lease },
                fence,
                attempts,
                fresh: false,
                sent,
                leader,
            }),
            ClaimReply::Absent => Led::Absent(leader),
            ClaimReply::Running { lease_left }
                if request.needs == Needs::Verdict && lease_left.is_zero() =>
            {
                Led::Vacant(leader)
            }
            // A claim that reconciles follows, once the call has a place for the hook.
            ClaimReply::Done { record, left }
                if self.policy.reconciles
                    && !request.reconciles
                    && record.header.is_unknown(left) =>
            {
                Led::Vacant(leader)
            }
            ClaimReply::Running { lease_left } => {
                if core.clock.now() >= self.patience() {
                    let retry_after = lease_left;
                    let kind = ErrorKind::Running { retry_after };
                    return ControlFlow::Break(Err(Error::new(kind, operation.clone())));
                }
                Led::Elsewhere(leader, lease_left)
            }
            ClaimReply::Done { record, left } => {
                let life = Life {
                    left,
                    sent,
                    dated: request.dated,
                };
                // The cache holds answers under the calls' own names.
                let permit = self.permit.filter(|_| self.own.is_none());
                core.remember(permit, key, &record, life);
                if let Some(leader) = leader {
                    leader.land(|| {
                        Some(SharedOutcome::Done {
                            record: record.clone(),
                            sent,
                            left,
                            at: core.clock.now(),
                            asked: false,
                            dated: request.dated,
                        })
                    });
                }
                return ControlFlow::Break(self.done(record, left));
            }
            reply => {
                let error = refusal(operation, &reply);
                return ControlFlow::Break(Err(self.refused(leader, error, sent)));
            }
        })
    }

    /// Passes the refusal to the followers of this call.
    fn refused(&self, leader: Option<Leader>, error: Error, sent: Duration) -> Error {
        if let Some(leader) = leader {
            leader.land(|| {
                Some(SharedOutcome::Refused {
                    error: error.clone(),
                    sent,
                    max_attempts: self.policy.max_attempts(),
                })
            });
        }
        error
    }

    /// Waits with all other calls of this process for a remote body.
    ///
    /// Without `lease_left`, the token has expired and no body runs: the error of that is returned. At `seen` the store
    /// had not been queried yet.
    async fn wait(
        &mut self,
        leader: Option<Leader>,
        lease_left: Option<Duration>,
        seen: Duration,
    ) -> Option<Answered> {
        let core = self.core();
        let Some(lease_left) = lease_left else {
            let sent = core.clock.now();
            let error = core.expired(&self.name.key).await?;
            return Some(Err(self.refused(leader, error, sent)));
        };
        if let Some(leader) = leader {
            let running = Running { seen, lease_left };
            let asked = (self.fingerprint, self.policy.dated());
            let follower = core.watch_over(&self.name.key, asked, running, leader)?;
            return self.follow(follower, None).await;
        }
        // Another request has the key in this process. Its fingerprint differs from this one but matches, because one
        // of them compares nothing. Rare, so this call just claims again.
        self.waited = true;
        let backoff = self
            .backoff
            .get_or_insert_with(|| Backoff::new(&Owner::random()));
        let pause = lease_left.min(backoff.poll());
        let clock = &*self.core().clock;
        let moment = (clock.now() + pause).min(self.patience());
        clock.sleep_until(moment).await;
        None
    }
}
