//! Settlement of a claim: completes or releases it, by the end of its body.
//!
//! In this order: the ends of a body, each of which decides between completion and release; how an ending looks; its
//! sending, also without the caller; and the result of a call whose own answer does not count.

use std::borrow::Cow;
use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::call::answer::replay;
use crate::call::background_thread::{Unstored, contained};
use crate::call::context::Context;
use crate::call::core::Core;
use crate::call::lease::Lease;
use crate::call::reconcile::pending::Stop;
use crate::call::refusal::{is_business_error, other_type, unanswered, unavailable, unknown};
use crate::call::step_log::StepStop;
use crate::call::steps::Steps;
use crate::env::backoff::Backoff;
use crate::env::call_end::CallOutcome;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::Operation;
use crate::local::cache::{Life, Permit};
use crate::local::singleflight::LocalLease as _;
use crate::local::singleflight::SharedOutcome;
use crate::outcome::AnyOutput;
use crate::outcome::chosen_life::ChosenLife;
use crate::outcome::codec::{Encoded, EncodedAnswer, Unencodable};
use crate::policy::{EffectivePolicy, LONG, OnCancel, OnPanic, OnUnconfirmed};
use crate::record::transition::{CompleteReply, ReleaseReply, Remains};
use crate::record::unknown_cause::Cause;
use crate::record::{
    AttemptEnd, HEADER, Header, Journal, JournalKind, OutcomeKind, Owner, Record, State,
};
use crate::store::{ReadReply, StoreErrorKind};

/// A held claim. Its lease is renewed until this is dropped.
pub(crate) struct HeldClaim {
    pub(crate) core: Arc<Core>,
    pub(crate) lease: Arc<Lease>,
}

/// How a completion ended.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The caller's own answer counts, whether or not it could be stored.
    Own,
    /// Another attempt's answer counts.
    Adopted { record: Record, left: Duration },
    /// Another attempt runs, and its answer will count.
    Overtaken(Duration),
    /// There is no answer, for this reason: another attempt's answer counts and is not read, say.
    Refused(Error),
}

/// The future that carries out an ending. Boxed: it is much larger than the body of most calls, which the caller
/// holds besides.
pub(crate) type Settling = Pin<Box<dyn Future<Output = Settled> + Send>>;

/// Least time for a reply in the background. A shorter `complete_deadline` limits the wait of the caller, not the
/// time of the store.
pub(crate) const REPLY: Duration = Duration::from_secs(2);

/// Upper bound of the time for a reply. The time doubles after each failure in the background.
const LONGEST_REPLY: Duration = Duration::from_secs(60);

/// Lower bound of the rest of a chosen life.
const LEAST_REST: Duration = Duration::from_secs(1);

/// Reason for which an answer is not stored: [`CompleteReply::Mismatch`].
const TAKEN: &str = "the record was lost, and a call with other arguments has the key";

/// How the key of an ended body is settled.
#[derive(Clone)]
pub(crate) enum Ending {
    Complete {
        finished: Finished,
        /// Whether it is sent again while another attempt holds the claim. A business error is not: the other attempt
        /// may end differently.
        is_retried_when_overtaken: bool,
    },
    /// With its end, if that is recorded.
    Release(Remains, Option<AttemptEnd>),
}

/// A finished record, as it is sent.
#[derive(Clone)]
pub(crate) struct Finished {
    outcome: OutcomeKind,
    /// How long the store keeps it.
    life: Duration,
    /// Whether the answer chose it: it runs from the first send, because it says how long the answer is valid.
    is_life_chosen: bool,
    record: Bytes,
}

impl Finished {
    /// The record with the rest of a chosen life, sent again. `None`: the record as it is.
    fn shortened(&self, elapsed: Duration) -> Option<Bytes> {
        if !self.is_life_chosen || elapsed.is_zero() {
            return None;
        }
        let mut header = Header::decode(&self.record).ok()?;
        header.retain = self.life.saturating_sub(elapsed).max(LEAST_REST);
        let mut record = self.record.to_vec();
        record[..HEADER].copy_from_slice(&header.encode());
        Some(record.into())
    }

    /// The reason of an unknown outcome.
    fn cause(&self) -> Option<Cause> {
        match self.outcome {
            OutcomeKind::Unknown => Cause::in_record(&self.record),
            _ => None,
        }
    }
}

impl Ending {
    fn is_retried_when_overtaken(&self) -> bool {
        matches!(
            self,
            Self::Complete {
                is_retried_when_overtaken: true,
                ..
            }
        )
    }

    /// Whether the caller and its duplicates get an answer.
    fn is_answer(&self) -> bool {
        matches!(self, Self::Complete { finished, .. } if finished.outcome != OutcomeKind::Unknown)
    }
}

impl HeldClaim {
    /// Renews the lease every third of it, beginning a third after `granted`.
    pub(crate) fn begin(core: Arc<Core>, lease: Arc<Lease>, granted: Duration) -> Self {
        core.background.register(&lease, granted);
        Self { core, lease }
    }

    pub(super) fn policy(&self) -> &EffectivePolicy {
        &self.lease.policy
    }

    pub(crate) fn emit(&self, kind: EventKind<'_>) {
        let (key, label) = (&self.lease.key, self.policy().label.as_ref());
        self.core.emit_labelled(key, label, kind);
    }

    /// Completes or releases the claim, by the result of the body: stores the outcome, or releases the key. The class
    /// of an error was applied by `Encoded::by_class`.
    pub(crate) fn settle(self, encoded: Encoded) -> Settling {
        let (format, lease) = (&self.core.format, &self.lease);
        let fingerprint = lease.claim().fingerprint;
        let ending = match format.seal(lease.key.digest(), fingerprint, encoded) {
            Encoded::Release(remains) => self.release_ending(remains, AttemptEnd::SystemError),
            // A kept refusal of a step would end a call that is half done.
            Encoded::Store(answer)
                if is_business_error(answer.outcome, answer.schema)
                    && lease.steps.has_refused() =>
            {
                self.release_ending(Remains::Request, AttemptEnd::SystemError)
            }
            Encoded::Store(answer) => {
                report_losses(&answer, |kind| self.emit(kind));
                if answer.outcome == OutcomeKind::Unknown {
                    self.unknown_record(answer.schema, AttemptEnd::Unknown)
                } else {
                    for step in lease.steps.unused() {
                        self.emit(EventKind::StepUnused { step: &step });
                    }
                    self.finish(answer)
                }
            }
        };
        self.send_ending(ending)
    }

    /// Settles the claim of a body that panicked.
    pub(crate) async fn settle_panicked(self) {
        self.emit(EventKind::Panicked);
        let ending = self.panic_ending();
        self.send_ending_within(Duration::ZERO, ending).await;
    }

    /// Settles the claim of a body dropped for a lost lease.
    pub(crate) fn settle_after_lost_lease(self) -> Settling {
        Box::pin(async move {
            let (core, lease) = (Arc::clone(&self.core), Arc::clone(&self.lease));
            match self.cancel_ending() {
                Some(ending) => drop(self.send_ending_within(Duration::ZERO, ending).await),
                None => drop(self),
            }
            wait_for_winner(&core, &lease).await
        })
    }

    /// Settles the claim of a body dropped unbegun or at a step.
    pub(crate) fn settle_without_body(self, stop: Box<Stop>) -> Settling {
        Box::pin(async move {
            match *stop {
                Stop::Undecided => self.settle_unknown(Cause::Undecided).await,
                Stop::Step(StepStop::Unknown) => self.settle_unknown(Cause::Step).await,
                Stop::Step(StepStop::Undecided) => {
                    let unknown = unknown_now(&self.core, &self.lease, Cause::Step);
                    // The next attempt asks the hook again.
                    match self.settle(Encoded::Release(Remains::Request)).await {
                        Settled::Own => Settled::Refused(unknown),
                        settled => settled,
                    }
                }
                Stop::Answered { record, left } => {
                    self.release_unstarted().await;
                    Settled::Adopted { record, left }
                }
                Stop::Refused(error) => {
                    self.release_unstarted().await;
                    Settled::Refused(error)
                }
            }
        })
    }

    /// Settles a claim whose outcome is unknown.
    async fn settle_unknown(self, cause: Cause) -> Settled {
        let (core, lease) = (Arc::clone(&self.core), Arc::clone(&self.lease));
        let ending = self.unknown_ending(cause);
        match self.send_ending(ending).await {
            Settled::Own => Settled::Refused(unknown_now(&core, &lease, cause)),
            settled => settled,
        }
    }

    /// Releases the key of a body that did not start.
    async fn release_unstarted(self) {
        let ending = self.uncounted_release(Remains::Nothing, None);
        self.send_ending(ending).await;
    }

    /// Settles the claim of a dropped caller on the background thread.
    pub(crate) fn abandon(self) {
        if let Some(ending) = self.cancel_ending() {
            self.lease.mark_body_ended();
            drop(EndingGuard::new(self, ending));
        } else if self.lease.steps.is_unsent() {
            let core = Arc::clone(&self.core);
            core.background.spawn_awaited(async move {
                let lasts = self.lease.lasts();
                self.send_steps(self.core.clock.now() + lasts).await;
            });
        }
    }

    fn finished_header(&self, outcome: OutcomeKind, schema: u32, life: ChosenLife) -> Header {
        Header {
            state: State::Done { outcome, schema },
            retain: self.policy().life_of(outcome, life),
            ..self.lease.claim()
        }
    }

    /// The ending that releases the key in good order.
    pub(crate) fn release_ending(&self, remains: Remains, end: AttemptEnd) -> Ending {
        if self.policy().counts_releases() {
            Ending::Release(Remains::Attempt, Some(end))
        } else {
            self.uncounted_release(remains, Some(end))
        }
    }

    /// The ending that releases the key without counting the attempt.
    fn uncounted_release(&self, remains: Remains, end: Option<AttemptEnd>) -> Ending {
        let remains = if self.lease.is_bound() {
            remains.max(Remains::Request)
        } else {
            remains
        };
        Ending::Release(remains, end)
    }

    /// Adds the end of this attempt and the label to a journal.
    fn record_attempt(&self, journal: Journal, end: AttemptEnd) -> Journal {
        let claim = self.lease.claim();
        match &self.core.recorder {
            Some(recorder) if matches!(claim.state, State::Pending { .. }) => {
                let attempt = recorder.attempt(&claim, end, self.core.clock.calendar());
                let attempt = attempt.entry();
                // A journal that the store would refuse to read is not written.
                let fits = |journal: &Journal| self.core.takes_journal(journal);
                let labelled = (self.policy().label.as_ref())
                    // A journal is appended to: the first label stays.
                    .filter(|_| !journal.has_label())
                    .map(|label| journal.with(&label.entry()).with(&attempt));
                let with = labelled.filter(&fits);
                let with = with.unwrap_or_else(|| journal.with(&attempt));
                if fits(&with) { with } else { journal }
            }
            _ => journal,
        }
    }

    /// Finishes the record of an answer, with the attempts before it.
    fn finish(&self, answer: EncodedAnswer) -> Ending {
        let EncodedAnswer {
            outcome,
            schema,
            mut record,
            life,
            ..
        } = answer;
        let header = self.finished_header(outcome, schema, life);
        let mut attempts = self.lease.steps.attempts();
        if !attempts.is_empty() {
            let end = match outcome {
                OutcomeKind::Error => AttemptEnd::BusinessError,
                OutcomeKind::Tombstone => AttemptEnd::NotStored,
                _ => AttemptEnd::Value,
            };
            attempts = self.record_attempt(attempts, end);
        }
        let max_bytes = self.core.store.max_record_bytes();
        Record::append_attempts(&mut record, header, &attempts, max_bytes);
        Ending::Complete {
            finished: Finished {
                outcome,
                life: header.retain,
                is_life_chosen: header.retain != self.policy().life_of(outcome, ChosenLife::Open),
                record: record.into(),
            },
            is_retried_when_overtaken: !is_business_error(outcome, schema),
        }
    }

    /// The tombstone of an answer that the store takes no longer: its limit was lowered after the answer was encoded.
    ///
    /// The store would refuse the answer at each attempt, and the body would run again after the lease.
    fn too_large(&self, finished: &Finished) -> Option<Finished> {
        let max_bytes = self.core.store.max_record_bytes()?;
        let is_answer = matches!(finished.outcome, OutcomeKind::Value | OutcomeKind::Error);
        if !is_answer || finished.record.len() <= max_bytes {
            return None;
        }
        let State::Done { outcome, schema } = Header::decode(&finished.record).ok()?.state else {
            return None;
        };
        let lost = Unencodable::TooLarge { max_bytes };
        let Encoded::Store(answer) = Encoded::not_stored((outcome, schema), lost) else {
            return None;
        };
        report_losses(&answer, |kind| self.emit(kind));
        match self.finish(answer) {
            Ending::Complete { finished, .. } => Some(finished),
            Ending::Release(..) => None,
        }
    }

    /// The ending of an attempt of unknown effect.
    pub(super) fn unknown_ending(&self, cause: Cause) -> Ending {
        let end = match cause {
            Cause::Cancelled => AttemptEnd::Cancelled,
            Cause::Panicked => AttemptEnd::Panicked,
            _ => AttemptEnd::Unknown,
        };
        self.unknown_record(cause.code(), end)
    }

    /// The same, with the code of the cause. The record keeps the steps.
    fn unknown_record(&self, code: u32, end: AttemptEnd) -> Ending {
        let (journal, _) = self.lease.steps.journal();
        let journal = self.record_attempt(journal, end);
        let mut header = self.finished_header(OutcomeKind::Unknown, code, ChosenLife::Open);
        if code == Cause::Streaming.code() {
            // The record takes the place of a claim: it must not expire before the stream ends, because otherwise
            // another body starts beside it.
            let stream = self.lease.run_left() + self.lease.lasts();
            let bookkeeping = self.policy().retain();
            header.retain = header.retain.max(bookkeeping).max(stream);
        }
        Ending::Complete {
            finished: Finished {
                outcome: OutcomeKind::Unknown,
                life: header.retain,
                is_life_chosen: false,
                record: Record::with_journal(header, &journal).into_bytes(),
            },
            is_retried_when_overtaken: true,
        }
    }

    fn panic_ending(&self) -> Ending {
        match self.policy().on_panic() {
            OnPanic::Release => Ending::Release(Remains::Attempt, Some(AttemptEnd::Panicked)),
            OnPanic::Unknown => self.unknown_ending(Cause::Panicked),
        }
    }

    /// The ending of a key whose body was dropped half-way; `None`: its lease lapses.
    fn cancel_ending(&self) -> Option<Ending> {
        // Nothing was found out and nothing was run: the outcome is as unknown as before, and the key need not wait for
        // the end of its lease.
        if let State::Reconciling { .. } = self.lease.claim().state {
            return Some(Ending::Release(Remains::Request, None));
        }
        match self.policy().on_cancel() {
            OnCancel::Hold => None,
            // Half of the effect may have happened.
            OnCancel::Release => Some(self.release_ending(Remains::Request, AttemptEnd::Cancelled)),
            OnCancel::Unknown => Some(self.unknown_ending(Cause::Cancelled)),
        }
    }

    /// Sends the ending, as [`send_ending_within`](Self::send_ending_within), with the wait of a duplicate.
    pub(crate) fn send_ending(self, ending: Ending) -> Settling {
        let wait = self.policy().wait();
        self.send_ending_within(wait, ending)
    }

    /// Sends the ending. Without a reply within `complete_deadline`, or when the caller is dropped, it continues
    /// on the engine's thread. An overtaken call waits for `wait` for the answer that counts.
    fn send_ending_within(self, wait: Duration, ending: Ending) -> Settling {
        self.lease.mark_body_ended();
        let mut guard = EndingGuard::new(self, ending);
        Box::pin(async move {
            let Some((held, ending)) = &guard.ending else {
                return Settled::Own;
            };
            let first = held.core.clock.now();
            guard.first = Some(first);
            let reply_time = held.core.limits.complete_deadline;
            let settled = match ending {
                Ending::Complete { finished, .. } => {
                    held.complete(finished, (first, reply_time), wait, true)
                        .await
                }
                Ending::Release(remains, end) => {
                    held.send_release(*remains, *end, reply_time).await
                }
            };
            match settled {
                // Storing continues, also of an answer that is not returned.
                None if ending.is_answer() && !held.may_return_unconfirmed() => {
                    Settled::Refused(held.unconfirmed(None))
                }
                None => Settled::Own,
                // The successor may still crash or release the key. Then a stored success saves a third run, and a
                // stored unknown outcome prevents one.
                Some(settled @ Settled::Overtaken(_)) if ending.is_retried_when_overtaken() => {
                    settled
                }
                Some(settled) => {
                    guard.disarm();
                    settled
                }
            }
        })
    }

    /// Whether a caller may get an unconfirmed answer.
    pub(super) fn may_return_unconfirmed(&self) -> bool {
        match self.policy().on_unconfirmed() {
            OnUnconfirmed::Return => true,
            // Until the lease lapses by the local clock, no other attempt can have been granted the key.
            OnUnconfirmed::WithinLease => !self.lease.remaining().is_zero(),
            OnUnconfirmed::Fail => false,
        }
    }

    /// `reason`: why the store will not keep the answer, if it will not.
    pub(super) fn unconfirmed(&self, reason: Option<&str>) -> Error {
        let detail = match (reason, self.policy().on_unconfirmed()) {
            (Some(reason), _) => Cow::Owned(format!("it is not stored: {reason}")),
            (None, OnUnconfirmed::Fail) => {
                "the store did not confirm it in time, and `on_unconfirmed = fail`".into()
            }
            (None, _) => "the store did not confirm it before the lease was over".into(),
        };
        self.lease.key.error(ErrorKind::Unconfirmed).detail(detail)
    }

    /// Sends the completion until it has a reply; `None` after `reply_time` without one, or on a refusal while a caller
    /// waits. `first`: when the ending was sent first, maybe by the caller before. `caller`: the caller sends it, not the
    /// background thread.
    ///
    /// While another attempt holds the claim, the completion is repeated to wait for the answer of that attempt: never
    /// a claim, so an overtaken caller cannot start a third run. In the background even a refusal is retried, because
    /// its cause may be mended before the answer is given up.
    pub(super) async fn complete(
        &self,
        finished: &Finished,
        (first, reply_time): (Duration, Duration),
        wait: Duration,
        caller: bool,
    ) -> Option<Settled> {
        let clock = &*self.core.clock;
        let mut now = if caller { first } else { clock.now() };
        let wait = now + wait;
        let mut reply_deadline = now + reply_time;
        let mut turn = None;
        let mut reply_within = self.core.limits.complete_deadline.max(REPLY);
        let mut overtaken = None;
        let key = &self.lease.key;
        let mut backoff = Backoff::new(&self.lease.claim().owner);
        let (mut tombstone, mut reason) = (None, None);
        loop {
            let finished = tombstone.as_ref().unwrap_or(finished);
            // The record may live since the first send.
            let (sent, permit) = (now, self.core.cache_permit(key));
            let attempt = now + reply_within;
            let claim = Header {
                journal: self.lease.steps.known_kind(),
                ..self.lease.claim()
            };
            let reply = {
                // A panic in the background would otherwise end the storing of an answer that the caller has.
                let store = &self.core.store;
                let shortened = finished.shortened(sent.saturating_sub(first));
                let record = shortened.as_ref().unwrap_or(&finished.record);
                let reply = contained(|| store.complete(key, Some(&claim), record));
                deadline(clock, attempt.min(reply_deadline), pin!(reply)).await
            };
            let reply = match reply {
                Ok(Ok(reply)) => reply,
                Ok(Err(error)) if error.kind() == StoreErrorKind::TooLarge => {
                    let operation = key.operation();
                    return Some(Settled::Refused(unavailable(operation, error)));
                }
                failure => {
                    now = clock.now();
                    // The store learns of a lowered limit when it connects for the answer.
                    if let Some(shorter) = self.too_large(finished) {
                        tombstone = Some(shorter);
                        continue;
                    }
                    // A block of its own, because otherwise the future holds the error across the pause.
                    {
                        let error = failure.ok().and_then(Result::err);
                        let refused = error.as_ref().is_some_and(|error| !error.is_transient());
                        // The deadline cuts the last attempt short: an earlier one has the reason.
                        if let Some(error) = error {
                            reason = Some(error.to_string());
                        }
                        if now >= reply_deadline || (refused && caller) {
                            if overtaken.is_none() {
                                self.emit_not_stored_yet(reason.as_deref(), caller);
                            }
                            return overtaken.map(Settled::Overtaken);
                        }
                    }
                    if caller {
                        let pause = backoff.retry().min(reply_deadline.saturating_sub(now));
                        clock.sleep_until(now + pause).await;
                    } else {
                        let background = &self.core.background;
                        background.record_failure();
                        // With more time for the reply, a completion in a queue of the store keeps its place there.
                        reply_within = (reply_within * 2).min(LONGEST_REPLY);
                        drop(turn.take());
                        turn = background.retry_turn(&mut backoff).await;
                    }
                    now = clock.now();
                    continue;
                }
            };
            self.core.outage.record_reply(sent);
            if !caller {
                self.core.background.record_reply();
                drop(turn.take());
            }
            match reply {
                CompleteReply::Stored { late } => {
                    self.after_stored(finished, (sent, first, late), permit);
                    return Some(Settled::Own);
                }
                CompleteReply::Adopted { record, left } => {
                    return Some(self.adopt(record, (left, sent), permit));
                }
                CompleteReply::Superseded { lease_left } => {
                    now = clock.now();
                    if now >= wait {
                        return Some(Settled::Overtaken(lease_left));
                    }
                    overtaken = Some(lease_left);
                    reply_deadline = now + reply_time;
                    let pause = match lease_left {
                        Duration::ZERO => backoff.poll(),
                        left => backoff.poll().min(left),
                    };
                    let pause = pause.min(wait.saturating_sub(now));
                    clock.sleep_until(now + pause).await;
                    now = clock.now();
                }
                CompleteReply::Mismatch => return Some(self.unsaved(finished, TAKEN)),
                CompleteReply::Unreadable(error) => {
                    return Some(self.unsaved(finished, &error.to_string()));
                }
            }
        }
    }

    /// Reports that another attempt's answer counts, and passes it to cache and followers.
    fn adopt(
        &self,
        record: Record,
        (left, sent): (Duration, Duration),
        permit: Option<Permit>,
    ) -> Settled {
        self.lease.mark_settled();
        self.emit(EventKind::Adopted);
        self.cache_answer(permit, &record, left, sent);
        self.notify_followers(|| Some(record.clone()), left, sent);
        Settled::Adopted { record, left }
    }

    /// Reports a stored outcome, and passes it to cache and followers. The record may live since the `first` send.
    fn after_stored(
        &self,
        finished: &Finished,
        (sent, first, late): (Duration, Duration, bool),
        permit: Option<Permit>,
    ) {
        let Finished {
            outcome,
            life,
            ref record,
            ..
        } = *finished;
        let cause = finished.cause();
        if cause == Some(Cause::Streaming) {
            // The answer is on its way; the event of its end follows.
            self.lease.extend_unclaimed();
        } else {
            self.lease.mark_settled();
            self.emit(EventKind::Completed {
                outcome,
                late,
                cause: cause.map(Cause::as_str),
            });
        }
        let left = life.saturating_sub(sent.saturating_sub(first));
        let stored = || Record::decode(record.clone()).ok();
        if !late
            && permit.is_some()
            && let Some(record) = stored()
            && !record.header.fingerprint.is_none()
        {
            self.cache_answer(permit, &record, left, sent);
        }
        self.notify_followers(stored, left, sent);
    }

    /// Caches an answer for later calls of this process.
    fn cache_answer(
        &self,
        permit: Option<Permit>,
        record: &Record,
        left: Duration,
        sent: Duration,
    ) {
        let life = Life {
            left,
            sent,
            dated: true,
        };
        self.core
            .cache_answer(permit, &self.lease.key, record, life);
    }

    /// Passes a stored answer to the waiting calls of this process.
    fn notify_followers(
        &self,
        record: impl FnOnce() -> Option<Record>,
        left: Duration,
        sent: Duration,
    ) {
        self.lease.notify_followers(|| {
            let record = record()?;
            Some(SharedOutcome::Done {
                record,
                sent,
                left,
                at: self.core.clock.now(),
                hook_ran: matches!(self.lease.claim().state, State::Reconciling { .. }),
                dated: true,
            })
        });
    }

    fn emit_not_stored_yet(&self, reason: Option<&str>, caller: bool) {
        let why = reason.unwrap_or("the store did not answer in time");
        let next = if caller {
            "storing goes on in the background"
        } else {
            "storing is given up"
        };
        self.emit_unsaved(&format!("{why}; {next}"));
    }

    fn emit_unsaved(&self, reason: &str) {
        self.emit(EventKind::Unsaved { reason });
    }

    /// Reports an outcome that the store will not keep.
    fn unsaved(&self, finished: &Finished, reason: &str) -> Settled {
        self.emit_unsaved(reason);
        // A caller gets no answer for an unknown outcome, unless that is streamed.
        let is_answer = match finished.cause() {
            Some(cause) => cause == Cause::Streaming,
            None => finished.outcome != OutcomeKind::Unknown,
        };
        if !is_answer || self.may_return_unconfirmed() {
            Settled::Own
        } else {
            Settled::Refused(self.unconfirmed(Some(reason)))
        }
    }

    /// Sends steps that have ended and whose results the store lacks: the record that is released keeps them.
    async fn send_steps(&self, moment: Duration) {
        if self.lease.steps.is_unsent() {
            let steps = Steps {
                core: Arc::clone(&self.core),
                lease: Arc::clone(&self.lease),
            };
            // Without them, the next attempt runs the steps again, as after a crash.
            let _ = steps.append_until(moment, steps.lease.steps.len()).await;
        }
    }

    /// Sends the release until a reply or its deadline; then the lease lapses.
    async fn send_release(
        &self,
        remains: Remains,
        end: Option<AttemptEnd>,
        reply_time: Duration,
    ) -> Option<Settled> {
        let (key, store) = (&self.lease.key, &self.core.store);
        let owner = self.lease.claim().owner;
        let moment = self.core.clock.now() + reply_time;
        let mut backoff = Backoff::new(&owner);
        // The record's journal is replaced, even by nothing: a step may have begun without an effect.
        let released = self.lease.steps.released();
        let replaces = released.is_some();
        let mut journal = released.unwrap_or_default();
        // Attempts alone are not worth a record that the server has forgotten.
        let mut writes_again = journal.kind() == JournalKind::Steps;
        if let Some(end) = end {
            journal = self.record_attempt(journal, end);
        }
        let journals = (replaces || !journal.is_empty()).then_some((&journal, None));
        let release = || contained(|| store.release(key, &owner, remains, journals));
        loop {
            match self.core.retry_until(moment, &mut backoff, release).await {
                // The server has forgotten the record. Within the lease no other attempt has begun, and the next one is
                // to find the steps.
                Ok(ReleaseReply::Absent)
                    if mem::take(&mut writes_again) && !self.lease.remaining().is_zero() =>
                {
                    self.lease.steps.unconfirm();
                    // Boxed: it is larger than the rest, and seldom needed.
                    Box::pin(self.send_steps(moment)).await;
                }
                Ok(reply) => {
                    match reply {
                        ReleaseReply::Released => self.emit(EventKind::Released {
                            counted: remains.counts(),
                        }),
                        // No record refuses a renewal in transit.
                        ReleaseReply::Absent if journal.kind() != JournalKind::Steps => {
                            self.lease.mark_settled();
                        }
                        _ => {}
                    }
                    return Some(Settled::Own);
                }
                Err(Some(error)) if !error.is_transient() => {
                    let message =
                        format!("the key is not released, and its lease has to lapse: {error}");
                    self.emit(EventKind::Warning { message: &message });
                    return Some(Settled::Own);
                }
                Err(_) => return None,
            }
        }
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        self.core.background.unregister(&self.lease);
        self.core.left();
        // A call that waited for this claim without an answer queries the store.
        self.lease.wake_followers();
    }
}

debug_fields!(HeldClaim { lease });

/// Reports an answer that is not stored as its body gave it.
pub(super) fn report_losses(answer: &EncodedAnswer, emit: impl Fn(EventKind<'_>)) {
    if let Some(lost) = answer.lost {
        let reason = &lost.to_string();
        emit(EventKind::Unsaved { reason });
    }
    if answer.life == ChosenLife::Panicked {
        let message = ChosenLife::PANICKED;
        emit(EventKind::Warning { message });
    }
}

/// Drop guard that moves an ending to the background thread.
pub(super) struct EndingGuard {
    ending: Option<(HeldClaim, Ending)>,
    unstored: Option<Unstored>,
    /// When the caller has sent it first.
    first: Option<Duration>,
}

impl EndingGuard {
    pub(super) fn new(held: HeldClaim, ending: Ending) -> Self {
        let unstored = ending
            .is_answer()
            .then(|| held.core.background.count_unstored());
        Self {
            ending: Some((held, ending)),
            unstored,
            first: None,
        }
    }

    fn disarm(mut self) {
        self.ending = None;
    }
}

impl Drop for EndingGuard {
    fn drop(&mut self) {
        let Some((held, ending)) = self.ending.take() else {
            return;
        };
        let core = Arc::clone(&held.core);
        let retried = ending.is_retried_when_overtaken();
        let (unstored, first) = (self.unstored.take(), self.first);
        core.background.spawn_awaited(async move {
            match ending {
                Ending::Complete { finished, .. } => {
                    // Another body may contradict an answer that is not stored: storing it is given up when it would
                    // have expired, and not before.
                    let life = finished.life.clamp(Duration::from_secs(60), LONG);
                    let reply_time = held.lease.lasts().max(life);
                    let wait = if retried { reply_time } else { Duration::ZERO };
                    let first = first.unwrap_or_else(|| held.core.clock.now());
                    held.complete(&finished, (first, reply_time), wait, false)
                        .await;
                }
                Ending::Release(remains, end) => {
                    held.send_release(remains, end, held.lease.lasts()).await;
                }
            }
            drop(unstored);
        });
    }
}

/// Waits for the answer of the attempt that took over the key. It polls by reading, never by claiming, because there is
/// no body any more.
async fn wait_for_winner(core: &Arc<Core>, lease: &Lease) -> Settled {
    let clock = &*core.clock;
    let until = clock.now() + lease.policy.wait();
    let mut backoff = Backoff::new(&Owner::random());
    loop {
        let now = clock.now();
        let moment = now + core.limits.claim_deadline;
        let found = deadline(clock, moment, pin!(core.read(&lease.key))).await;
        let mut refused = Settled::Own;
        if let Ok(Ok(ReadReply::Found { record, left })) = found {
            // The record was lost, and a call with other arguments has the key: its answer is not this call's.
            if !record.header.fingerprint.matches(lease.claim().fingerprint) {
                return Settled::Own;
            }
            if let State::Done { .. } = record.header.state {
                return Settled::Adopted { record, left };
            }
            let lease_left = record.header.lease_left(left);
            if record.header.owner == lease.claim().owner {
                refused = Settled::Refused(cancelled(lease.key.operation(), lease_left));
                let is_final = match record.header.state {
                    // Released: the next call runs.
                    State::Released => true,
                    // Held: no call can take it before the lease ends.
                    State::Pending { .. } if lease.policy.on_cancel() == OnCancel::Hold => {
                        now + lease_left >= until
                    }
                    // The store does not have the outcome yet.
                    _ => false,
                };
                if is_final {
                    return refused;
                }
            } else if !lease_left.is_zero() {
                refused = Settled::Overtaken(lease_left);
            }
        }
        if now >= until {
            return refused;
        }
        let pause = backoff.poll().min(until.saturating_sub(now));
        clock.sleep_until(now + pause).await;
    }
}

/// Replaces the call's output by the answer that counts. Returns the outcome of the call.
pub(super) fn adopt(
    core: &Core,
    output: &mut dyn AnyOutput,
    context: &Context,
    settled: Settled,
) -> CallOutcome {
    let operation = context.operation();
    let max_run = |lease: &Arc<Lease>| lease.policy.max_run();
    let max_run = context.lease().map_or(Duration::ZERO, max_run);
    let refused = match settled {
        Settled::Adopted { record, left } => match record.header.state {
            State::Done {
                outcome: OutcomeKind::Value | OutcomeKind::Error,
                ..
            } => {
                let is_ours = |lease: &Arc<Lease>| lease.policy.reads(&record);
                if !context.lease().is_none_or(is_ours) {
                    let error = other_type(operation).detail(
                        "this body ran, and another attempt, of a function with answers of another type, has answered the \
                         key: give each function its own `op`",
                    );
                    let refused = CallOutcome::refused(&error);
                    output.refuse(error);
                    return refused;
                }
                let stored = core.stored((operation, context.key()), record, left, true);
                return replay(core, output, &stored, CallOutcome::Adopted);
            }
            _ => unanswered(operation, &record, left, core.clock.calendar(), max_run),
        },
        Settled::Refused(error) => error,
        Settled::Overtaken(retry_after) => operation
            .error(ErrorKind::Running { retry_after })
            .detail("another attempt took the key over, and its answer will count"),
        Settled::Own => cancelled(operation, Duration::ZERO),
    };
    let outcome = CallOutcome::refused(&refused);
    output.refuse(refused);
    outcome
}

/// The error of a dropped body without a successor.
fn cancelled(operation: &Operation, retry_after: Duration) -> Error {
    operation.error(ErrorKind::Running { retry_after }).detail(
        "it was this one: its lease was lost, and its body was cancelled for that, as \
             `on_lease_lost = cancel` requires",
    )
}

fn unknown_now(core: &Core, lease: &Lease, cause: Cause) -> Error {
    let (operation, attempt) = (lease.key.operation(), lease.claim().attempts);
    let age = (core.clock.calendar(), Duration::ZERO);
    unknown(operation, attempt, Some(cause), age)
}
