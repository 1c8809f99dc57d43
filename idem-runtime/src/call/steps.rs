//! Starts and records the steps of a body.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::call::background_thread::contained;
use crate::call::core::Core;
use crate::call::lease::{Lease, Unsent};
use crate::call::refusal::unknown;
use crate::call::step_log::{MAX_STEPS, StepStop, Unstartable};
use crate::env::backoff::Backoff;
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::StepPart;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::local::singleflight::LocalLease as _;
use crate::outcome::codec::Encoded;
use crate::outcome::stored::StoredAnswer;
use crate::policy::OnUnconfirmed;
use crate::record::journal::{EntryKind, JournalEntry, StepDigest};
use crate::record::transition::AppendReply;
use crate::record::unknown_cause::Cause;
use crate::record::{HEADER, Header, OutcomeKind, Record, State};
use crate::store::StoreError;

#[derive(Clone, Debug)]
pub(crate) struct StepIdentity {
    /// Of the call and the name of the step.
    pub(crate) digest: KeyDigest,
    /// The part of its name that operators may see.
    pub(crate) label: String,
    pub(crate) input: Fingerprint,
}

/// How an unfinished step of an earlier attempt is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// It runs again.
    Again,
    /// Its outcome is unknown.
    Unknown,
    /// Its hook is asked.
    Asked,
}

#[derive(Debug)]
pub(crate) enum StepStart {
    /// It runs, once its beginning is recorded if that is `true`.
    Run(bool),
    /// An earlier attempt has finished it.
    Replay(StoredAnswer),
    /// It is not known whether an earlier attempt had its effect.
    Unknown,
}

pub(crate) enum StepEnd {
    /// It is recorded, or there is nothing to record.
    Kept,
    /// The result was not recorded. The error has its value, if there is one.
    Unkept(Error),
}

#[derive(Clone)]
pub(crate) struct Steps {
    pub(crate) core: Arc<Core>,
    pub(crate) lease: Arc<Lease>,
}

/// How long an append waits for another one of its call. The other may belong to a step that is not polled: then both
/// are sent, and the longer journal counts.
const TURN: Duration = Duration::from_millis(50);

impl StepIdentity {
    fn short(&self) -> StepDigest {
        self.digest.half()
    }
}

impl Steps {
    /// The identity of a step in the record of its call.
    pub(crate) fn identify(
        &self,
        (label, name): (String, &KeyDigest),
        input: Option<&KeyDigest>,
    ) -> StepIdentity {
        let plain = self.lease.plain();
        let digests = self.core.digests_of(&self.lease.key, plain);
        let input = input.map_or(Fingerprint::NONE, |input| {
            let part = [*name.as_bytes(), *input.as_bytes()].concat();
            Fingerprint::from_bytes(digests.step(StepPart::Input, plain, &part).half())
        });
        StepIdentity {
            digest: digests.step(StepPart::Name, plain, name.as_bytes()),
            label,
            input,
        }
    }

    fn max_bytes(&self) -> usize {
        self.core.max_journal_bytes()
    }

    /// Decides how a step starts. Its name is then used in this attempt.
    pub(crate) fn start(
        &self,
        step: &StepIdentity,
        unfinished: Unfinished,
    ) -> Result<StepStart, Error> {
        self.held(step)?;
        if !self.core.store.keeps_journals() {
            return Err(self.unsupported(step));
        }
        let begins = unfinished != Unfinished::Again;
        let least_bytes = JournalEntry::len_with(&step.label, 0) * (1 + usize::from(begins));
        let found = (self.lease.steps).enter(step.short(), least_bytes, self.max_bytes());
        // The other side may know the request of this call from now on.
        self.lease.bind();
        let found = found.map_err(|why| self.unstartable(step, why))?;
        // Of steps that count no more none is found: see `StepLog::inherit`.
        let Some(entry) = found else {
            return Ok(StepStart::Run(begins));
        };
        if !entry.input.matches(step.input) {
            return Err(self.error(
                ErrorKind::Mismatch,
                step,
                "its input is another than that of an earlier attempt",
            ));
        }
        match (entry.kind.outcome(), unfinished) {
            (None, _) if entry.kind != EntryKind::Begun => Ok(StepStart::Run(begins)),
            (None, Unfinished::Again) => Ok(StepStart::Run(false)),
            (None | Some(OutcomeKind::Unknown), _) => Ok(StepStart::Unknown),
            (Some(OutcomeKind::Tombstone), _) => Err(self.error(
                ErrorKind::NotStored,
                step,
                "an earlier attempt finished it, and its value was too large, or its type did not write it or read it back",
            )),
            (Some(outcome), _) => {
                self.emit(EventKind::StepReplayed { step: &step.label });
                let stored = self.stored(step, (outcome, entry.schema), &entry.body);
                Ok(StepStart::Replay(stored))
            }
        }
    }

    fn unsupported(&self, step: &StepIdentity) -> Error {
        let why = "this store keeps no steps; use another one";
        self.error(ErrorKind::Unsupported, step, why)
    }

    /// Refuses a step of a lost claim, or after the body.
    fn held(&self, step: &StepIdentity) -> Result<(), Error> {
        if self.lease.slot.body_has_ended() {
            return Err(self.outlived(step, "it was not started"));
        }
        if self.lease.is_lost() || self.lease.remaining().is_zero() {
            return Err(self.lost(step, "it was not started"));
        }
        Ok(())
    }

    /// The error of a step that the store has refused. `what` became of it.
    pub(super) fn lost(&self, step: &StepIdentity, what: &str) -> Error {
        if self.lease.slot.is_unknown_sent() {
            return self.outlived(step, what);
        }
        let retry_after = self.lease.lasts();
        let why = format!("{what}: this attempt has lost its lease, and another may run");
        self.error(ErrorKind::Running { retry_after }, step, &why)
    }

    /// The error of a step whose body has ended.
    fn outlived(&self, step: &StepIdentity, what: &str) -> Error {
        let why = format!("{what}: the body has ended, and a task that outlives it has no steps");
        self.error(ErrorKind::InvalidStep, step, &why)
    }

    fn unstartable(&self, step: &StepIdentity, why: Unstartable) -> Error {
        let (kind, why) = match why {
            Unstartable::Repeated => (
                ErrorKind::InvalidStep,
                "this attempt has had a step of this name. A step is not retried within an attempt: return its error, and \
                 the next attempt runs it. Of different steps, as in a loop, each has a name: `step((\"ship\", item.id), …)`"
                    .to_owned(),
            ),
            Unstartable::TooMany => (
                ErrorKind::InvalidStep,
                format!("a call has at most {MAX_STEPS} steps; put several effects into one, or make calls of them"),
            ),
            Unstartable::Full => (
                ErrorKind::InvalidStep,
                format!("the results of all steps of a call take at most {} bytes", self.max_bytes()),
            ),
            Unstartable::Broken(broken) => (ErrorKind::UnknownRecord, broken.to_string()),
        };
        self.error(kind, step, &why)
    }

    pub(super) fn error(&self, kind: ErrorKind, step: &StepIdentity, why: &str) -> Error {
        self.lease.steps.refused();
        let error = self.lease.key.error(kind);
        let error = error.detail(format!("step `{}`: {why}", step.label));
        // The body may discard the error.
        if error.needs_repair() {
            self.emit(EventKind::Refused { error: &error });
        }
        error
    }

    /// A result as it is stored, in the form of an answer.
    fn stored(
        &self,
        step: &StepIdentity,
        (outcome, schema): (OutcomeKind, u32),
        body: &[u8],
    ) -> StoredAnswer {
        let (state, claim) = (State::Done { outcome, schema }, self.lease.claim());
        let header = Header::new(state, claim.owner, claim.fence, Duration::ZERO);
        let record = Record::new(header, [&header.encode()[..], body].concat().into());
        let step = (self.lease.key.operation(), &step.digest);
        self.core.stored(step, record, Duration::ZERO, false)
    }

    fn emit(&self, kind: EventKind<'_>) {
        let label = self.lease.policy.label.as_ref();
        self.core.emit_labelled(&self.lease.key, label, kind);
    }

    /// Whether a result of this type may be read.
    pub(crate) fn reads(&self, stored: &StoredAnswer, [value, error]: [u32; 2]) -> bool {
        let State::Done { outcome, schema } = stored.record.header.state else {
            return false;
        };
        let expected = if outcome == OutcomeKind::Error {
            error
        } else {
            value
        };
        schema == expected || self.lease.policy.reads_any_type()
    }

    /// The error of a result that is not of the requested type.
    pub(crate) fn other_type(&self, step: &StepIdentity) -> Error {
        self.error(
            ErrorKind::WrongType,
            step,
            "an earlier attempt finished it with a result of another type; the step is not run again; if the type only \
             got another name, write `on_other_type = accept`",
        )
    }

    /// The error of a result that cannot be read.
    pub(crate) fn undecodable(&self, step: &StepIdentity, why: &str) -> Error {
        let label = &step.label;
        let why =
            format!("{why}; a value by hand is corrected by `idem reset --done {label}=JSON`");
        self.error(ErrorKind::Undecodable, step, &why)
    }

    /// Ends the call at this step, whose outcome is unknown. Returns the error for a part of the call that is not
    /// dropped with it.
    pub(crate) fn stop(&self, step: &StepIdentity, why: StepStop) -> Error {
        self.lease.steps.stop(why);
        let (operation, attempt) = (self.lease.key.operation(), self.lease.claim().attempts);
        let age = (self.core.clock.calendar(), Duration::ZERO);
        let error = unknown(operation, attempt, Some(Cause::Step), age);
        error.detail(format!(
            "step `{}`: it was begun, and no result of it is known",
            step.label
        ))
    }

    /// The pause after which a step that ended its call is dropped.
    pub(crate) fn moment(self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let clock = Arc::clone(&self.core.clock);
        Box::pin(async move { clock.sleep_until(clock.now() + TURN).await })
    }

    /// Records that the step begins. `schema` is that of its value, with which an operator may settle it.
    pub(crate) async fn begin(self, step: StepIdentity, schema: u32) -> Result<(), Error> {
        if self.lease.steps.is_inherited(&step.short()) {
            // Its beginning stands. This attempt must still hold the claim.
            return self.renew(&step, "it was not started").await;
        }
        let end = self.add(&step, EntryKind::Begun, schema, Bytes::new());
        let mut beginning = Beginning {
            steps: &self,
            step: &step,
            is_recorded: false,
        };
        beginning.is_recorded =
            (self.send(&step, end, "it was not started").await).map(|()| true)?;
        Ok(())
    }

    /// Records the result of a step, whose values have this schema. `began`: its beginning was recorded.
    pub(crate) async fn end(
        self,
        (step, of_value): (StepIdentity, u32),
        encoded: Encoded,
        began: bool,
    ) -> StepEnd {
        let encoded = (self.core.format).seal(&step.digest, Fingerprint::NONE, encoded);
        let (kind, schema, body) = match encoded {
            // A step that an earlier attempt began stays open.
            Encoded::Release(_) if began && !self.lease.steps.is_inherited(&step.short()) => {
                (EntryKind::Void, 0, Bytes::new())
            }
            Encoded::Release(_) => return StepEnd::Kept,
            Encoded::Store(answer) => {
                if let Some(lost) = answer.lost {
                    self.emit(EventKind::Unsaved {
                        reason: &format!("step `{}`: {lost}", step.label),
                    });
                }
                let is_unknown = answer.outcome == OutcomeKind::Unknown;
                let schema = if is_unknown { of_value } else { answer.schema };
                let body = Bytes::from(answer.record).slice(HEADER..);
                (EntryKind::of_outcome(answer.outcome), schema, body)
            }
        };
        let len = self.lease.steps.len() + JournalEntry::len_with(&step.label, body.len());
        // An entry without a value always fits, because what its absence means is worse.
        let (kind, body) = if body.is_empty() || len <= self.max_bytes() {
            (kind, body)
        } else {
            self.emit(EventKind::Unsaved {
                reason: &format!(
                    "step `{}`: the results of all steps take more than {} bytes",
                    step.label,
                    self.max_bytes()
                ),
            });
            (EntryKind::Tombstone, Bytes::new())
        };
        let end = self.add(&step, kind, schema, body.clone());
        match self.send(&step, end, "its result was not kept").await {
            Ok(()) => {
                if kind != EntryKind::Void {
                    self.emit(EventKind::StepKept { step: &step.label });
                }
                StepEnd::Kept
            }
            // The next attempt takes the step for begun; the body's own error says what happened.
            Err(_) if kind == EntryKind::Void => StepEnd::Kept,
            Err(error)
                if *error.kind() == ErrorKind::StoreUnavailable
                    && self.lease.policy.on_unconfirmed() == OnUnconfirmed::Return =>
            {
                let reason = error.to_string();
                self.emit(EventKind::Unsaved { reason: &reason });
                StepEnd::Kept
            }
            Err(error) if *error.kind() == ErrorKind::StoreUnavailable => {
                let why =
                    "its effect may have happened, and the store has not confirmed its result";
                let error = self.error(ErrorKind::Unconfirmed, &step, why);
                StepEnd::Unkept(match kind {
                    EntryKind::Value => {
                        error.holding(self.stored(&step, (OutcomeKind::Value, schema), &body))
                    }
                    _ => error,
                })
            }
            Err(error) => StepEnd::Unkept(error),
        }
    }

    /// Adds a value or an error, if there is room for it. Returns the length of the journal with it.
    #[cfg(feature = "_sql")]
    pub(super) fn add_result(&self, step: &StepIdentity, encoded: Encoded) -> Option<usize> {
        let sealed = (self.core.format).seal(&step.digest, Fingerprint::NONE, encoded);
        let Encoded::Store(answer) = sealed else {
            return None;
        };
        if !matches!(answer.outcome, OutcomeKind::Value | OutcomeKind::Error) {
            return None;
        }
        let body = Bytes::from(answer.record).slice(HEADER..);
        let len = self.lease.steps.len() + JournalEntry::len_with(&step.label, body.len());
        let kind = EntryKind::of_outcome(answer.outcome);
        (len <= self.max_bytes()).then(|| self.add(step, kind, answer.schema, body))
    }

    fn add(&self, step: &StepIdentity, kind: EntryKind, schema: u32, body: Bytes) -> usize {
        self.lease.steps.add(&JournalEntry {
            kind,
            step: step.short(),
            at: self.core.clock.calendar(),
            schema,
            input: step.input,
            label: step.label.clone(),
            body,
        })
    }

    /// Renews the lease, and fails if the claim is lost.
    pub(super) async fn renew(&self, step: &StepIdentity, what: &str) -> Result<(), Error> {
        let (core, lease) = (&self.core, &self.lease);
        let renewed = (core.background).renew_now(lease, core.limits.complete_deadline);
        renewed.await.map_err(|why| self.unsent(step, what, why))
    }

    pub(super) fn unanswered(&self, step: &StepIdentity, why: &str) -> Error {
        self.error(ErrorKind::StoreUnavailable, step, why)
    }

    /// Sends the journal up to `end`, or until the step's deadline.
    pub(super) async fn send(
        &self,
        step: &StepIdentity,
        end: usize,
        what: &str,
    ) -> Result<(), Error> {
        let moment = self.core.clock.now() + self.core.limits.complete_deadline;
        let sent = self.append_until(moment, end).await;
        sent.map_err(|why| self.unsent(step, what, why))
    }

    /// The error of a step that the store has not confirmed. `what` became of the step.
    fn unsent(&self, step: &StepIdentity, what: &str, why: Unsent) -> Error {
        match why {
            Unsent::Lost => self.lost(step, what),
            Unsent::Unsupported => self.unsupported(step),
            Unsent::Unreadable(why) => self.error(ErrorKind::UnknownRecord, step, &why.to_string()),
            Unsent::Unconfirmed(Some(why)) => self.unanswered(step, &format!("{what}: {why}")),
            Unsent::Unconfirmed(None) => {
                self.unanswered(step, &format!("{what}: the store did not answer in time"))
            }
        }
    }

    /// Sends the journal up to `end`, or until the moment.
    pub(crate) async fn append_until(&self, moment: Duration, end: usize) -> Result<(), Unsent> {
        let (core, lease) = (&self.core, &self.lease);
        let turn = moment.min(core.clock.now() + TURN);
        let _turn = deadline(&*core.clock, turn, pin!(lease.steps.turn())).await;
        let mut backoff = Backoff::new(&lease.claim().owner);
        while lease.steps.known() < end {
            let reply = core.retry_until(moment, &mut backoff, || self.append());
            match reply.await.map_err(Unsent::Unconfirmed)? {
                AppendReply::Appended | AppendReply::Reasserted => {}
                AppendReply::Lost => {
                    core.background.refuse(lease);
                    return Err(Unsent::Lost);
                }
                AppendReply::Unsupported => return Err(Unsent::Unsupported),
                AppendReply::Unreadable(error) => return Err(Unsent::Unreadable(error)),
            }
        }
        Ok(())
    }

    /// Sends the journal, unless the claim is lost or settled.
    async fn append(&self) -> Result<AppendReply, StoreError> {
        let (core, lease) = (&self.core, &self.lease);
        // After the life of the answer, the claim would be written again.
        if lease.is_lost() || lease.slot.is_settled() {
            return Ok(AppendReply::Lost);
        }
        let (sent, claim) = (core.clock.now(), lease.claim());
        let (journal, known) = lease.steps.journal();
        let append = || core.store.append(&lease.key, &claim, &journal, known);
        let reply = contained(append).await;
        if let Ok(AppendReply::Reasserted) = reply
            && lease.slot.is_settled()
        {
            contained(|| lease.take_back(&*core.store, &claim.owner, true)).await?;
            return Ok(AppendReply::Lost);
        }
        if let Ok(AppendReply::Appended | AppendReply::Reasserted) = reply {
            core.outage.record_reply(sent);
            lease.renewed(sent);
            lease.steps.confirm(journal.as_bytes().len());
        }
        reply
    }
}

/// A step whose beginning is being recorded. If that fails, the store may have it all the same, and the step did not
/// start: the next append tells.
struct Beginning<'a> {
    steps: &'a Steps,
    step: &'a StepIdentity,
    is_recorded: bool,
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.steps.add(self.step, EntryKind::Void, 0, Bytes::new());
        }
    }
}
