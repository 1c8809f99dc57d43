//! Claims the key of a call, or follows another call of this process, until an answer or a refusal.
//!
//! `ClaimOrFollow::follow` is the wait with its deadline; `wait_for_remote` that for a body of another process.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::call::acquire::{TimedReply, UnackedClaim};
use crate::call::claim::Claim;
use crate::call::core::Core;
use crate::call::interpret::refusal;
use crate::call::lease::Grant;
use crate::call::reconcile::pending::PendingReconcile;
use crate::call::remote_wait::Running;
use crate::call::run_limit::{RunPermit, over_quota};
use crate::call::start::{Answered, CallRequest, Entered, Pending, Reply, Start};
use crate::env::backoff::Backoff;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::CallName;
use crate::local::cache::{Life, Permit};
use crate::local::singleflight::{Follower, Join, Leader, SharedOutcome};
use crate::record::transition::{ClaimReply, ClaimRequest, Needs};
use crate::record::{Owner, Record, State};

/// A reply of the store without an answer.
enum NoAnswer {
    Granted(Grant),
    /// No body runs and no answer is stored, and the request could not claim.
    Vacant,
    /// The body runs in another process, with this much of its lease left.
    Elsewhere(Duration),
    /// There is no record, and the request could not begin one.
    Absent,
}

/// A call that waits for its claim, or for the answer of another call.
pub(crate) struct ClaimOrFollow {
    entered: Entered,
    /// Its former name is taken once there is no record under it.
    call: CallRequest,
    /// The moment at which it begins.
    now: Duration,
    waited: bool,
    /// For how long; measured where an observer wants to know of calls.
    waited_for: Duration,
    /// The right to cache the store's answer.
    cache_permit: Option<Permit>,
    /// Back-off between the claims of a call that waits alone.
    backoff: Option<Backoff>,
    /// The permit to run its body, where the number of running bodies is limited; taken before the claim.
    run_permit: Option<Box<RunPermit>>,
}

impl ClaimOrFollow {
    pub(crate) fn new(
        entered: Entered,
        call: CallRequest,
        now: Duration,
        cache_permit: Option<Permit>,
    ) -> Self {
        Self {
            entered,
            call,
            now,
            waited: false,
            waited_for: Duration::ZERO,
            cache_permit,
            backoff: None,
            run_permit: None,
        }
    }

    /// The name under which it claims: the former one, until there is no record under that.
    fn name(&self) -> &CallName {
        self.call.former.as_deref().unwrap_or(&self.call.name)
    }

    fn core(&self) -> &Arc<Core> {
        self.entered.core()
    }

    /// The moment until which it waits for an answer.
    fn wait_deadline(&self) -> Duration {
        self.now + self.call.policy.wait()
    }

    /// The beginning of a wait, where an observer wants to know of it.
    fn wait_begins(&self) -> Option<Duration> {
        let core = self.core();
        core.wants.any().then(|| core.clock.now())
    }

    fn wait_ends(&mut self, began: Option<Duration>) {
        if let Some(began) = began {
            self.waited_for += self.core().clock.now().saturating_sub(began);
        }
    }

    /// Claims the key, waits for its answer, or returns an error.
    pub(crate) fn run(mut self) -> Pending {
        Box::pin(async move {
            let result = self.claim_or_follow().await;
            if self.call.former.is_some() {
                match &result {
                    ControlFlow::Break(Err(error))
                        if matches!(error.kind(), ErrorKind::StoreUnavailable) =>
                    {
                        self.call.former = None;
                    }
                    _ => self
                        .core()
                        .emit(&self.name().key, EventKind::FormerDigestKey),
                }
            }
            let waited = self.waited_for;
            let start = match result {
                ControlFlow::Continue(grant) => Ok(self.claim(grant)),
                ControlFlow::Break(Ok(stored)) => Ok(Start::Replay(stored)),
                ControlFlow::Break(Err(error)) => {
                    // A call whose token has expired must not run its body at all.
                    let is_outage = error.is_outage() && !self.call.expired;
                    let error = error.outage(is_outage);
                    let run_permit = self.run_permit.take();
                    let (core, gate) = (self.core(), self.call.gate.as_deref());
                    let run_permit =
                        || run_permit.map_or_else(|| core.take_run_permit(gate), |it| Ok(Some(it)));
                    core.not_begun(self.name(), &self.call.policy, error, run_permit)
                }
            };
            Reply { start, waited }
        })
    }

    /// Moves the call into its claim, which a shutdown then waits for.
    fn claim(self, mut grant: Grant) -> Start {
        let (call, core) = (self.call, self.entered.core());
        let name = call.former.map_or(call.name, |former| *former);
        let reconcile = (grant.reconciles.take()).map(|claim| PendingReconcile::new(core, claim));
        let claim = self
            .entered
            .arrive(|core| Claim::new(core, name, call.policy, grant));
        Start::Run(claim.with_run_permit(self.run_permit), reconcile)
    }

    /// Leads and claims, or follows, until this call has a grant or an answer.
    async fn claim_or_follow(&mut self) -> ControlFlow<Answered, Grant> {
        let mut now = self.now;
        loop {
            let core = self.core();
            // A late reply is requested once more.
            let within = core.limits.claim_deadline * 2;
            let (digest, fingerprint) = (self.name().key.digest(), self.name().fingerprint);
            let mut leader = match core.flights.join(digest, fingerprint, now, within) {
                Join::Lead(leader) => Some(leader),
                Join::Follow(follower, lease_left) if now < self.wait_deadline() => {
                    // A call that waits runs nothing.
                    self.run_permit = None;
                    // Boxed, as every long wait: most calls do not wait.
                    let began = self.wait_begins();
                    let answered = Box::pin(self.follow(follower, lease_left)).await;
                    self.wait_ends(began);
                    if let Some(answered) = answered {
                        return ControlFlow::Break(answered);
                    }
                    now = self.core().clock.now();
                    continue;
                }
                // No leader to follow, or the wait budget is spent: query the store.
                Join::Follow(..) | Join::Alone => None,
            };
            let lease_left = match self.claim_or_read(&mut leader, &mut now).await? {
                NoAnswer::Granted(grant) => return ControlFlow::Continue(grant),
                NoAnswer::Absent if self.call.former.is_some() => {
                    if let Some(leader) = leader {
                        leader.notify(|| Some(SharedOutcome::Absent));
                    }
                    self.call.former = None;
                    now = self.core().clock.now();
                    continue;
                }
                NoAnswer::Absent | NoAnswer::Vacant => None,
                NoAnswer::Elsewhere(lease_left) => Some(lease_left),
            };
            // A call that waits runs nothing.
            self.run_permit = None;
            let began = self.wait_begins();
            let answered = Box::pin(self.wait_for_remote(leader, lease_left, now)).await;
            self.wait_ends(began);
            if let Some(answered) = answered {
                return ControlFlow::Break(answered);
            }
            now = self.core().clock.now();
        }
    }

    /// Sends the claim. At a limit or with a quota, it first sends a request that claims and writes nothing: a stored
    /// answer is replayed, and a running body is waited for, whatever the limits are.
    async fn claim_or_read(
        &mut self,
        leader: &mut Option<Leader>,
        now: &mut Duration,
    ) -> ControlFlow<Answered, NoAnswer> {
        let mut reads_only = !self.may_claim();
        loop {
            let request = self.request(reads_only);
            let reply = {
                let (core, key) = (self.core(), &self.name().key);
                let mut unacked = UnackedClaim::new(core, key, request.owner);
                core.send_claim(key, &request, &mut unacked, *now).await
            };
            match self.share_reply(leader, request, reply)? {
                // After the former name the call continues under its own, where an answer may be stored.
                NoAnswer::Absent if self.call.former.is_some() => {
                    return ControlFlow::Continue(NoAnswer::Absent);
                }
                NoAnswer::Vacant | NoAnswer::Absent if reads_only => {
                    *now = self.core().clock.now();
                    if let Err(error) = self.check_limits() {
                        return ControlFlow::Break(Err(self.share_refusal(
                            leader.as_ref(),
                            error,
                            *now,
                        )));
                    }
                }
                no_answer => return ControlFlow::Continue(no_answer),
            }
            reads_only = false;
        }
    }

    /// Takes a permit to run. Returns whether the call may claim without reading the record first.
    fn may_claim(&mut self) -> bool {
        // An expired token starts nothing.
        if self.call.expired {
            return true;
        }
        // The call may have a permit from before it left its former name.
        if self.run_permit.is_none() {
            match self.core().take_run_permit(self.call.gate.as_deref()) {
                Ok(permit) => self.run_permit = permit,
                Err(_) => return false,
            }
        }
        let gate = self.call.gate.as_ref();
        gate.is_none_or(|gate| gate.quota.is_none())
    }

    /// Checks limits and quota. The call has found no answer and no running body.
    fn check_limits(&mut self) -> Result<(), Error> {
        if self.run_permit.is_none() {
            // Tried again: a replay may have had the last permit, for no longer than this read took.
            let permit = self.core().take_run_permit(self.call.gate.as_deref());
            self.run_permit = permit.map_err(|full| full.error(self.name().key.operation()))?;
        }
        // The quota is checked once.
        let quota = self.call.gate.as_mut().and_then(|gate| gate.quota.take());
        let granted = quota.map_or(Ok(()), |quota| quota());
        granted.map_err(|retry_after| over_quota(self.name().key.operation(), retry_after))
    }

    /// Waits for the outcome of another call of this process, until the wait deadline. `None`: join again.
    async fn follow(
        &mut self,
        mut follower: Follower,
        lease_left: Option<Duration>,
    ) -> Option<Answered> {
        self.waited = true;
        let (clock, wait_deadline) = (&*self.core().clock, self.wait_deadline());
        let moment = lease_left.map_or(wait_deadline, |left| wait_deadline.min(clock.now() + left));
        match deadline(clock, moment, pin!(follower.outcome())).await {
            Ok(None) => None,
            Ok(Some(SharedOutcome::Absent)) => {
                self.call.former = None;
                None
            }
            Ok(Some(outcome)) if !outcome.is_for(self.now) => None,
            Ok(Some(SharedOutcome::Refused {
                error,
                max_attempts,
                ..
            })) => {
                // As with an unknown outcome, below.
                let may_differ = match error.kind() {
                    ErrorKind::Exhausted { .. } => self.call.policy.reconciles,
                    // The other call may be of another function than this one.
                    ErrorKind::WrongType => true,
                    // A body of this engine makes this call, or a permit is free by now.
                    ErrorKind::TooManyRunning => self
                        .core()
                        .take_run_permit(self.call.gate.as_deref())
                        .is_ok(),
                    ErrorKind::QuotaExceeded => {
                        let gate = self.call.gate.as_ref();
                        gate.is_none_or(|gate| gate.quota.is_none())
                    }
                    _ => false,
                };
                let same = max_attempts == self.call.policy.max_attempts() && !may_differ;
                same.then_some(Err(error))
            }
            Ok(Some(SharedOutcome::Done {
                record,
                left,
                at,
                hook_ran,
                dated,
                ..
            })) => {
                if self.call.policy.dated() && !dated {
                    return None;
                }
                let left = left.saturating_sub(clock.now().saturating_sub(at));
                // This call can reconcile, which the other could not.
                if self.call.policy.reconciles && !hook_ran && record.header.is_unknown(left) {
                    return None;
                }
                Some(self.replay(record, left))
            }
            // Most likely renewed in the meantime, which joining again shows.
            Err(_) if clock.now() < wait_deadline => None,
            Err(_) => {
                let left = (self.core().flights).lease_left(self.name().key.digest(), clock.now());
                let retry_after = left.unwrap_or(self.call.policy.lease());
                let kind = ErrorKind::Running { retry_after };
                Some(Err(Error::new(kind, self.name().key.operation().clone())))
            }
        }
    }

    fn replay(&self, record: Record, left: Duration) -> Answered {
        let key = &self.name().key;
        (self.core()).answer(key, record, left, &self.call.policy, self.waited, false)
    }

    /// The request of this call; with `reads_only` it claims and writes nothing.
    fn request(&self, reads_only: bool) -> ClaimRequest {
        let policy = &self.call.policy;
        let needs = match self.call.former {
            // Its owner has no claim, so it is granted nothing.
            _ if self.call.expired || reads_only => Needs::Verdict,
            Some(_) => Needs::Record,
            None => Needs::Nothing,
        };
        let (core, name) = (self.core(), self.name());
        ClaimRequest {
            max_attempts: policy.max_attempts(),
            reconciles: policy.reconciles && !reads_only,
            needs,
            dated: policy.dated(),
            records_attempts: core.recorder.is_some(),
            ..policy.claim_request(core.new_owner(&name.key), name.fingerprint)
        }
    }

    /// Shares the store's reply with the followers: an answer or a refusal ends the call.
    fn share_reply(
        &self,
        leader: &mut Option<Leader>,
        request: ClaimRequest,
        reply: Result<TimedReply, Error>,
    ) -> ControlFlow<Answered, NoAnswer> {
        let core = self.core();
        let TimedReply { reply, sent } = match reply {
            Ok(reply) => reply,
            Err(error) => {
                let sent = core.clock.now();
                return ControlFlow::Break(Err(self.share_refusal(leader.as_ref(), error, sent)));
            }
        };
        let lease = request.lease;
        let (state, fence, attempts, fresh, journal) = match reply {
            ClaimReply::Granted {
                fence,
                attempt,
                fresh,
                journal,
            } => (State::Pending { lease }, fence, attempt, fresh, journal),
            ClaimReply::Reconcile {
                fence,
                attempts,
                journal,
            } => (
                State::Reconciling { lease },
                fence,
                attempts,
                false,
                journal,
            ),
            reply => return self.share_refused_claim(leader.as_ref(), &request, reply, sent),
        };
        let leader = leader.take().unwrap_or_else(|| {
            let (name, until) = (self.name(), core.clock.now() + lease);
            (core.flights).take_over(name.key.digest(), name.fingerprint, until)
        });
        ControlFlow::Continue(NoAnswer::Granted(Grant {
            header: request.granted(state, fence, attempts),
            fresh,
            journal,
            sent,
            leader,
            reconciles: matches!(state, State::Reconciling { .. }).then_some(request),
        }))
    }

    /// The same for a claim that was not granted.
    fn share_refused_claim(
        &self,
        leader: Option<&Leader>,
        request: &ClaimRequest,
        reply: ClaimReply,
        sent: Duration,
    ) -> ControlFlow<Answered, NoAnswer> {
        let (core, key) = (self.core(), &self.name().key);
        ControlFlow::Continue(match reply {
            ClaimReply::Absent => NoAnswer::Absent,
            ClaimReply::Running { lease_left }
                if request.needs == Needs::Verdict && lease_left.is_zero() =>
            {
                NoAnswer::Vacant
            }
            // A claim that reconciles follows, once the call has a permit for the hook.
            ClaimReply::Done { record, left }
                if self.call.policy.reconciles
                    && !request.reconciles
                    && record.header.is_unknown(left) =>
            {
                NoAnswer::Vacant
            }
            ClaimReply::Running { lease_left } => {
                if core.clock.now() >= self.wait_deadline() {
                    let retry_after = lease_left;
                    let kind = ErrorKind::Running { retry_after };
                    return ControlFlow::Break(Err(Error::new(kind, key.operation().clone())));
                }
                NoAnswer::Elsewhere(lease_left)
            }
            ClaimReply::Done { record, left } => {
                let life = Life {
                    left,
                    sent,
                    dated: request.dated,
                };
                // The cache holds answers under the calls' own names.
                let permit = self.cache_permit.filter(|_| self.call.former.is_none());
                core.cache_answer(permit, key, &record, life);
                if let Some(leader) = leader {
                    leader.notify(|| {
                        Some(SharedOutcome::Done {
                            record: record.clone(),
                            sent,
                            left,
                            at: core.clock.now(),
                            hook_ran: false,
                            dated: request.dated,
                        })
                    });
                }
                return ControlFlow::Break(self.replay(record, left));
            }
            reply => {
                let error = refusal(key.operation(), &reply);
                return ControlFlow::Break(Err(self.share_refusal(leader, error, sent)));
            }
        })
    }

    /// Notifies the followers of this call of its refusal.
    fn share_refusal(&self, leader: Option<&Leader>, error: Error, sent: Duration) -> Error {
        if let Some(leader) = leader {
            leader.notify(|| {
                Some(SharedOutcome::Refused {
                    error: error.clone(),
                    sent,
                    max_attempts: self.call.policy.max_attempts(),
                })
            });
        }
        error
    }

    /// Waits with all other calls of this process for a remote body.
    ///
    /// Without `lease_left`, the token has expired and no body runs: the error of that is returned. At `seen` the store
    /// had not been queried yet.
    async fn wait_for_remote(
        &mut self,
        leader: Option<Leader>,
        lease_left: Option<Duration>,
        seen: Duration,
    ) -> Option<Answered> {
        let core = self.core();
        let Some(lease_left) = lease_left else {
            let sent = core.clock.now();
            let error = core.expired(&self.name().key).await?;
            return Some(Err(self.share_refusal(leader.as_ref(), error, sent)));
        };
        if let Some(leader) = leader {
            let running = Running { seen, lease_left };
            let request = (self.name().fingerprint, self.call.policy.dated());
            let follower = core.start_remote_wait(&self.name().key, request, running, leader)?;
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
        let moment = (clock.now() + pause).min(self.wait_deadline());
        clock.sleep_until(moment).await;
        None
    }
}
