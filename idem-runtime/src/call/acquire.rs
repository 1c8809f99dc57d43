//! Claims a key, or follows another call of this process.
//!
//! In this order: `acquire` claims under the former name of a call, if it has one, and then under its own;
//! `ClaimOrFollow` is the way of a call under one name, which leads and claims, or follows; `UnackedClaim` sends the
//! claim until it has a reply; then the reply is shared with the followers, or the call waits for a body of another
//! process.

use std::future::{Future, ready};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::call::admission::{
    AdmittedCall, CallRequest, Entered, Unleased, not_begun, take_run_permit,
};
use crate::call::answer::{Answered, answer};
use crate::call::claim::Claim;
use crate::call::core::Core;
use crate::call::lease::ClaimGrant;
use crate::call::reconcile::pending::PendingReconcile;
use crate::call::refusal::{refusal, unavailable, unknown};
use crate::call::remote_wait::{RemoteWait, Running};
use crate::call::run_limit::{Gate, RunPermit, over_quota};
use crate::env::backoff::Backoff;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::CallName;
use crate::identity::operation::{Operation, RecordKey};
use crate::local::cache::{Life, Permit};
use crate::local::singleflight::{Follower, Join, Leader, SharedOutcome};
use crate::outcome::stored::StoredAnswer;
use crate::policy::EffectivePolicy;
use crate::record::transition::{ClaimReply, ClaimRequest, Needs, ReleaseReply, Remains};
use crate::record::{Owner, Record, State};
use crate::store::{Admission, Reach, ReadReply, StoreError};

/// The future of a call that queries the store. Boxed: it is much larger than the body of most calls, which the
/// caller holds besides.
pub(crate) type Acquiring = Pin<Box<dyn Future<Output = Acquisition> + Send>>;

/// The reply of the store, or of another call.
pub(crate) struct Acquisition {
    pub(crate) start: Result<Start, Error>,
    /// The time for which the call waited for the body of another; zero where no observer wants to know of calls.
    pub(crate) waited: Duration,
}

/// The start of a call after the reply of the store.
pub(crate) enum Start {
    /// The call runs the body, after its reconcile hook if any.
    Run(Claim, Option<PendingReconcile>),
    /// It runs the body without protection.
    Unprotected(Box<Unleased>),
    /// It has its answer.
    Replay(StoredAnswer),
}

/// A call before its claim or its answer.
struct AcquiringCall {
    entered: Entered,
    policy: EffectivePolicy,
    /// As in [`CallRequest`].
    expired: bool,
    gate: Option<Box<Gate>>,
    /// When it began, by the engine's clock.
    began: Duration,
    waited: bool,
    /// For how long; measured where an observer wants to know of calls.
    waited_for: Duration,
    /// The right to cache the store's answer.
    cache_permit: Option<Permit>,
    /// Back-off between the claims of a call that waits alone.
    backoff: Option<Backoff>,
    /// Permit of the run limits, if there are any; taken before the claim.
    run_permit: Option<Box<RunPermit>>,
}

pub(crate) fn acquire(request: CallRequest, admitted: AdmittedCall) -> Acquiring {
    let (entered, now, cache_permit) = match admitted {
        AdmittedCall::Protected {
            entered,
            now,
            cache_permit,
        } => (entered, now, cache_permit),
        AdmittedCall::Unprotected(call) => {
            return Box::pin(ready(Acquisition {
                start: Ok(Start::Unprotected(call)),
                waited: Duration::ZERO,
            }));
        }
    };
    let CallRequest {
        name,
        mut former,
        policy,
        expired,
        gate,
    } = request;
    let mut call = AcquiringCall {
        entered,
        policy,
        expired,
        gate,
        began: now,
        waited: false,
        waited_for: Duration::ZERO,
        cache_permit,
        backoff: None,
        run_permit: None,
    };
    Box::pin(async move {
        let mut now = call.began;
        let result = loop {
            let mut under = ClaimOrFollow {
                name: former.as_deref().unwrap_or(&name),
                is_former: former.is_some(),
                now,
                call: &mut call,
            };
            match under.run().await {
                ControlFlow::Continue(grant) => break ControlFlow::Continue(grant),
                ControlFlow::Break(Some(answered)) => break ControlFlow::Break(answered),
                ControlFlow::Break(None) => {}
            }
            // There is no record under its former name: it goes on under its own.
            former = None;
            now = call.entered.core().clock.now();
        };
        let name = match former {
            None => name,
            Some(_) if is_unavailable(&result) => name,
            Some(former) => {
                let core = call.entered.core();
                core.emit(&former.key, EventKind::FormerDigestKey);
                *former
            }
        };
        let waited = call.waited_for;
        let start = match result {
            ControlFlow::Continue(grant) => Ok(call.claim(name, grant)),
            ControlFlow::Break(Ok(stored)) => Ok(Start::Replay(stored)),
            ControlFlow::Break(Err(error)) => {
                // A call whose token has expired must not run its body at all.
                let is_outage = error.is_outage() && !call.expired;
                let error = error.outage(is_outage);
                let run_permit = call.run_permit.take();
                let (core, gate) = (call.entered.core(), call.gate.as_deref());
                let run_permit =
                    || run_permit.map_or_else(|| take_run_permit(core, gate), |it| Ok(Some(it)));
                not_begun(core, &name, &call.policy, error, run_permit).map(Start::Unprotected)
            }
        };
        Acquisition { start, waited }
    })
}

fn is_unavailable(result: &ControlFlow<Answered, ClaimGrant>) -> bool {
    matches!(result, ControlFlow::Break(Err(error)) if *error.kind() == ErrorKind::StoreUnavailable)
}

impl AcquiringCall {
    /// Moves the call into its claim, which a shutdown then waits for.
    fn claim(self, name: CallName, mut grant: ClaimGrant) -> Start {
        let core = self.entered.core();
        let reconcile = (grant.reconciles.take()).map(|claim| PendingReconcile::new(core, claim));
        let claim = self
            .entered
            .arrive(|core| Claim::new(core, name, self.policy, grant));
        Start::Run(claim.with_run_permit(self.run_permit), reconcile)
    }

    /// The moment until which it waits for an answer.
    fn wait_deadline(&self) -> Duration {
        self.began + self.policy.wait()
    }

    /// Start of a wait, where an observer measures calls.
    fn wait_begins(&self) -> Option<Duration> {
        let core = self.entered.core();
        core.wants.any().then(|| core.clock.now())
    }

    fn wait_ends(&mut self, began: Option<Duration>) {
        if let Some(began) = began {
            self.waited_for += self.entered.core().clock.now().saturating_sub(began);
        }
    }
}

/// A call under one of its names, before its claim or answer.
struct ClaimOrFollow<'c> {
    call: &'c mut AcquiringCall,
    name: &'c CallName,
    /// A former name: a record under it is continued, and none begun.
    is_former: bool,
    /// When it last learned that it has to claim.
    now: Duration,
}

/// A reply of the store without an answer.
enum NoAnswer {
    Granted(ClaimGrant),
    /// Nothing runs or is stored, and the request could not claim.
    Vacant,
    /// The body runs elsewhere, with this rest of its lease.
    Elsewhere(Duration),
    /// There is no record, and the request could not begin one.
    Absent,
}

/// The end of a call under one name without a grant; `None`: there is no record under its former name.
type Ended = Option<Answered>;

/// The awaited event of a call without an answer.
enum Wait {
    /// The leader of its key in this process; and the time after which it joins again.
    Local(Follower, Option<Duration>),
    /// A body of another process, seen after this moment of the clock.
    Remote {
        leader: Option<Leader>,
        /// `None`: the token has expired and no body runs.
        lease_left: Option<Duration>,
        seen: Duration,
    },
}

fn ended(answered: Answered) -> ControlFlow<Ended> {
    ControlFlow::Break(Some(answered))
}

impl ClaimOrFollow<'_> {
    fn core(&self) -> &Arc<Core> {
        self.call.entered.core()
    }

    /// Leads or follows until the call has a grant or an answer.
    async fn run(&mut self) -> ControlFlow<Ended, ClaimGrant> {
        loop {
            let core = self.core();
            // A late reply is requested once more.
            let within = core.limits.claim_deadline * 2;
            let (digest, fingerprint) = (self.name.key.digest(), self.name.fingerprint);
            let mut leader = match core.flights.join(digest, fingerprint, self.now, within) {
                Join::Lead(leader) => Some(leader),
                Join::Follow(follower, lease_left) if self.now < self.call.wait_deadline() => {
                    // Boxed, as every long wait: most calls do not wait.
                    Box::pin(self.wait(Wait::Local(follower, lease_left))).await?;
                    self.now = self.core().clock.now();
                    continue;
                }
                // No leader to follow, or the wait budget is spent: query the store.
                Join::Follow(..) | Join::Alone => None,
            };
            let reply = self.claim_or_read(&mut leader).await;
            let lease_left = match reply.map_break(Some)? {
                NoAnswer::Granted(grant) => return ControlFlow::Continue(grant),
                NoAnswer::Absent if self.is_former => {
                    if let Some(leader) = leader {
                        leader.notify(|| Some(SharedOutcome::Absent));
                    }
                    return ControlFlow::Break(None);
                }
                NoAnswer::Absent | NoAnswer::Vacant => None,
                NoAnswer::Elsewhere(lease_left) => Some(lease_left),
            };
            let seen = self.now;
            let wait = Wait::Remote {
                leader,
                lease_left,
                seen,
            };
            Box::pin(self.wait(wait)).await?;
            self.now = self.core().clock.now();
        }
    }

    /// Sends the claim. At a limit or with a quota, it first sends a request that claims and writes nothing: a stored
    /// answer is replayed, and a running body is waited for, whatever the limits are.
    async fn claim_or_read(
        &mut self,
        leader: &mut Option<Leader>,
    ) -> ControlFlow<Answered, NoAnswer> {
        let mut reads_only = !self.may_claim();
        loop {
            let request = self.request(reads_only);
            let reply = {
                let (core, key) = (self.core(), &self.name.key);
                let mut claim = UnackedClaim::new(core, key, request.owner);
                claim.send(&request, self.now).await
            };
            match self.share_reply(leader, request, reply)? {
                // After the former name the call continues under its own, where an answer may be stored.
                NoAnswer::Absent if self.is_former => {
                    return ControlFlow::Continue(NoAnswer::Absent);
                }
                NoAnswer::Vacant | NoAnswer::Absent if reads_only => {
                    self.now = self.core().clock.now();
                    if let Err(error) = self.check_limits() {
                        let error = self.share_refusal(leader.as_ref(), error, self.now);
                        return ControlFlow::Break(Err(error));
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
        if self.call.run_permit.is_none() {
            match take_run_permit(self.core(), self.call.gate.as_deref()) {
                Ok(permit) => self.call.run_permit = permit,
                Err(_) => return false,
            }
        }
        let gate = self.call.gate.as_ref();
        gate.is_none_or(|gate| gate.quota.is_none())
    }

    /// Checks limits and quota. The call has found no answer and no running body.
    fn check_limits(&mut self) -> Result<(), Error> {
        if self.call.run_permit.is_none() {
            // Tried again: a replay may have had the last permit, for no longer than this read took.
            let permit = take_run_permit(self.core(), self.call.gate.as_deref());
            self.call.run_permit = permit.map_err(|full| full.error(self.name.key.operation()))?;
        }
        // The quota is checked once.
        let quota = self.call.gate.as_mut().and_then(|gate| gate.quota.take());
        let granted = quota.map_or(Ok(()), |quota| quota());
        granted.map_err(|retry_after| over_quota(self.name.key.operation(), retry_after))
    }

    /// The request of this call; with `reads_only` it claims and writes nothing.
    fn request(&self, reads_only: bool) -> ClaimRequest {
        let policy = &self.call.policy;
        let needs = match self.is_former {
            // Its owner has no claim, so it is granted nothing.
            _ if self.call.expired || reads_only => Needs::Verdict,
            true => Needs::Record,
            false => Needs::Nothing,
        };
        let (core, name) = (self.core(), self.name);
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
            let (name, until) = (self.name, core.clock.now() + lease);
            (core.flights).take_over(name.key.digest(), name.fingerprint, until)
        });
        ControlFlow::Continue(NoAnswer::Granted(ClaimGrant {
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
        let (core, key) = (self.core(), &self.name.key);
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
                if core.clock.now() >= self.call.wait_deadline() {
                    let retry_after = lease_left;
                    let kind = ErrorKind::Running { retry_after };
                    return ControlFlow::Break(Err(key.error(kind)));
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
                let permit = self.call.cache_permit.filter(|_| !self.is_former);
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

    fn replay(&self, record: Record, left: Duration) -> Answered {
        let (core, key, call) = (self.core(), &self.name.key, &*self.call);
        answer(core, key, record, left, &call.policy, call.waited, false)
    }

    /// Waits until the call has its answer, or joins again.
    async fn wait(&mut self, wait: Wait) -> ControlFlow<Ended> {
        // A call that waits runs nothing.
        self.call.run_permit = None;
        let began = self.call.wait_begins();
        let waited = match wait {
            Wait::Local(follower, lease_left) => self.follow(follower, lease_left).await,
            Wait::Remote {
                leader,
                lease_left,
                seen,
            } => self.wait_for_remote(leader, lease_left, seen).await,
        };
        self.call.wait_ends(began);
        waited
    }

    /// Waits for the outcome of another call of this process.
    async fn follow(
        &mut self,
        mut follower: Follower,
        lease_left: Option<Duration>,
    ) -> ControlFlow<Ended> {
        self.call.waited = true;
        let (clock, wait_deadline) = (&*self.core().clock, self.call.wait_deadline());
        let moment = lease_left.map_or(wait_deadline, |left| wait_deadline.min(clock.now() + left));
        match deadline(clock, moment, pin!(follower.outcome())).await {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(SharedOutcome::Absent)) => ControlFlow::Break(None),
            Ok(Some(outcome)) if !outcome.is_for(self.call.began) => ControlFlow::Continue(()),
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
                    ErrorKind::TooManyRunning => {
                        take_run_permit(self.core(), self.call.gate.as_deref()).is_ok()
                    }
                    ErrorKind::QuotaExceeded => {
                        let gate = self.call.gate.as_ref();
                        gate.is_none_or(|gate| gate.quota.is_none())
                    }
                    _ => false,
                };
                let same = max_attempts == self.call.policy.max_attempts() && !may_differ;
                if same {
                    ended(Err(error))
                } else {
                    ControlFlow::Continue(())
                }
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
                    return ControlFlow::Continue(());
                }
                let left = left.saturating_sub(clock.now().saturating_sub(at));
                // This call can reconcile, which the other could not.
                if self.call.policy.reconciles && !hook_ran && record.header.is_unknown(left) {
                    return ControlFlow::Continue(());
                }
                ended(self.replay(record, left))
            }
            // Most likely renewed in the meantime, which joining again shows.
            Err(_) if clock.now() < wait_deadline => ControlFlow::Continue(()),
            Err(_) => {
                let left = (self.core().flights).lease_left(self.name.key.digest(), clock.now());
                let retry_after = left.unwrap_or(self.call.policy.lease());
                let kind = ErrorKind::Running { retry_after };
                let error = self.name.key.error(kind);
                ended(Err(error))
            }
        }
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
    ) -> ControlFlow<Ended> {
        let core = self.core();
        let Some(lease_left) = lease_left else {
            let sent = core.clock.now();
            return match expired_token(core, &self.name.key).await {
                Some(error) => ended(Err(self.share_refusal(leader.as_ref(), error, sent))),
                None => ControlFlow::Continue(()),
            };
        };
        if let Some(leader) = leader {
            let running = Running { seen, lease_left };
            let request = (self.name.fingerprint, self.call.policy.dated());
            return match RemoteWait::start(core, &self.name.key, request, running, leader) {
                Some(follower) => self.follow(follower, None).await,
                None => ControlFlow::Continue(()),
            };
        }
        // Another request has the key in this process. Its fingerprint differs from this one but matches, because one
        // of them compares nothing. Rare, so this call just claims again.
        self.call.waited = true;
        let backoff = (self.call.backoff).get_or_insert_with(|| Backoff::new(&Owner::random()));
        let pause = lease_left.min(backoff.poll());
        let clock = &*self.core().clock;
        let moment = (clock.now() + pause).min(self.call.wait_deadline());
        clock.sleep_until(moment).await;
        ControlFlow::Continue(())
    }
}

/// The error of a call with an expired token; `None`: a record has appeared since, so the call claims again.
pub(crate) async fn expired_token(core: &Arc<Core>, key: &RecordKey) -> Option<Error> {
    let operation = key.operation();
    let found = match core.patiently(operation, || core.read(key)).await {
        Ok(ReadReply::Found { record, left }) => (record, left),
        Ok(_) => return Some(operation.error(ErrorKind::TokenExpired)),
        Err(error) => return Some(error),
    };
    let (header, left) = (found.0.header, found.1);
    match header.state {
        State::Released => Some(operation.error(ErrorKind::TokenExpired)),
        // An expired-token error would make the client request a new token, and repeat an effect that may have
        // happened.
        State::Pending { .. } | State::Reconciling { .. } if header.lapsed(left) => {
            let age = (core.clock.calendar(), header.age(left));
            let error = unknown(operation, header.attempts, None, age);
            Some(error.detail(format!(
                "attempt {} was abandoned, and its token has expired since",
                header.attempts
            )))
        }
        _ => None,
    }
}

/// A reply to a claim, with the send time of the claim.
pub(crate) struct TimedReply {
    pub(crate) reply: ClaimReply,
    /// When the claim was sent: the lease is counted from then on, not from the reply.
    pub(crate) sent: Duration,
}

/// Drop guard that releases a claim whose reply was never received.
pub(crate) struct UnackedClaim<'a> {
    core: &'a Arc<Core>,
    key: &'a RecordKey,
    owner: Owner,
    armed: bool,
    /// One of the guard's claims was sent.
    was_sent: bool,
    /// Of the claim in flight.
    admission: Admission,
}

impl<'a> UnackedClaim<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, key: &'a RecordKey, owner: Owner) -> Self {
        Self {
            core,
            key,
            owner,
            armed: false,
            was_sent: false,
            admission: Admission::new(Duration::ZERO),
        }
    }

    /// Sends the claim until it has a reply.
    ///
    /// It is retried for `claim_deadline` from `now` on, or for a part of that in an
    /// [outage](crate::call::outage).
    pub(crate) async fn send(
        &mut self,
        request: &ClaimRequest,
        now: Duration,
    ) -> Result<TimedReply, Error> {
        let (core, key) = (self.core, self.key);
        let clock = &core.clock;
        let mut backoff = Backoff::new(&request.owner);
        let mut reply_deadline = now + core.limits.claim_deadline;
        // After an error the claim is sent again until then, and once more in any case.
        let mut retry_until = now + core.outage.retry_time(now, core.limits.claim_deadline);
        let (mut failure, mut late) = (None::<Box<StoreError>>, false);
        let mut sent = now;
        loop {
            if sent >= reply_deadline
                && let Some(error) = failure
            {
                return Err(self.give_up(*error, sent));
            }
            let (reply, waited) = {
                let admission = self.arm(reply_deadline.saturating_sub(sent));
                let reply = pin!(core.store.claim(key, request, admission));
                (
                    deadline(&**clock, reply_deadline, reply).await,
                    admission.waited(),
                )
            };
            // The lease lasts from the moment at which the claim left the store's queue.
            if let Some(waited) = waited.filter(|waited| !waited.is_zero()) {
                sent = (sent + waited).min(clock.now());
            }
            let error = match reply {
                Ok(Ok(reply)) => {
                    core.outage.end();
                    let is_grant = matches!(
                        reply,
                        ClaimReply::Granted { .. } | ClaimReply::Reconcile { .. }
                    );
                    let received = if is_grant { clock.now() } else { sent };
                    core.outage.record_reply(received);
                    if received < sent + request.lease {
                        self.disarm();
                        return Ok(TimedReply { reply, sent });
                    }
                    // The claim may have lapsed, and be another owner's by now. Sending it again finds out, and renews
                    // it.
                    if late && received >= reply_deadline {
                        return Err(slow(key.operation()));
                    }
                    if !late {
                        late = true;
                        reply_deadline = received + core.limits.claim_deadline;
                        retry_until = reply_deadline;
                    }
                    sent = received;
                    continue;
                }
                Ok(Err(error)) => {
                    let now = clock.now();
                    if error.reach() == Reach::Answered {
                        core.outage.record_reply(now);
                    }
                    // The store has stated that further tries before the deadline are of no use.
                    if !error.is_transient() || error.retry_after().is_some() {
                        let is_outage = self.is_outage(Some(error.reach()), now);
                        return Err(unavailable(key.operation(), error).outage(is_outage));
                    }
                    let is_last = failure.is_some() && now >= retry_until;
                    if is_last || now >= reply_deadline {
                        return Err(self.give_up(error, now));
                    }
                    sent = now;
                    Box::new(error)
                }
                Err(_) => {
                    // An earlier error of the store explains more than its silence.
                    let error = failure.map_or_else(
                        || self.no_reply(),
                        |error| unavailable(key.operation(), *error),
                    );
                    return Err(error.outage(self.is_outage(None, clock.now())));
                }
            };
            failure = Some(error);
            let until = Some(retry_until).filter(|until| sent < *until);
            let until = until.unwrap_or(reply_deadline);
            clock.sleep_until(until.min(sent + backoff.retry())).await;
            sent = clock.now();
        }
    }

    /// Records that the store failed for all tries of a claim.
    fn give_up(&self, error: StoreError, now: Duration) -> Error {
        self.core
            .outage
            .record_failure(now, self.core.limits.claim_deadline);
        let is_outage = self.is_outage(Some(error.reach()), now);
        unavailable(self.key.operation(), error).outage(is_outage)
    }

    fn is_outage(&self, reach: Option<Reach>, now: Duration) -> bool {
        let deadline = self.core.limits.claim_deadline;
        self.core.outage.is_outage(reach, now, deadline)
    }

    fn no_reply(&self) -> Error {
        self.key.error(ErrorKind::StoreUnavailable).detail(format!(
            "no reply to a claim within {:?}",
            self.core.limits.claim_deadline
        ))
    }

    /// Arms the guard for a claim whose reply is awaited this long.
    fn arm(&mut self, time_left: Duration) -> &Admission {
        self.armed = true;
        self.was_sent |= self.admission.was_sent();
        self.admission = Admission::new(time_left);
        &self.admission
    }

    /// Notes that the claim has its reply.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for UnackedClaim<'_> {
    fn drop(&mut self) {
        // A claim that was never sent has nothing to release.
        if !self.armed || !(self.was_sent || self.admission.was_sent()) {
            return;
        }
        let (core, key, owner) = (Arc::clone(self.core), self.key.clone(), self.owner);
        self.core.background.spawn_awaited(async move {
            // Once: a claim that arrives after the release blocks the key for one lease, never longer.
            let moment = core.clock.now() + core.limits.claim_deadline;
            // Another attempt may have had the key before.
            let release = core.store.release(&key, &owner, Remains::Request, None);
            if let Ok(Ok(ReleaseReply::Released)) =
                deadline(&*core.clock, moment, pin!(release)).await
            {
                core.emit(&key, EventKind::Released { counted: false });
            }
        });
    }
}

fn slow(operation: &Operation) -> Error {
    operation
        .error(ErrorKind::StoreUnavailable)
        .detail("the store takes longer to grant the claim than its lease lasts")
}
