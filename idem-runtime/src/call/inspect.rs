//! Inspects a record, and settles it by hand.

pub(crate) mod steps;

#[cfg(feature = "http")]
use std::any::Any;
use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::call::core::Core;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::outcome::codec::{Encoded, EncodedAnswer, Replay};
use crate::outcome::stored::StoredAnswer;
use crate::policy::EffectivePolicy;
use crate::record::journal::StepDigest;
use crate::record::label::KeyLabel;
use crate::record::transition::{RELEASED_AT_LEAST, ReleaseReply, Remains, ResolveReply};
use crate::record::unknown_cause::Cause;
use crate::record::{
    AnswerTypes, Attempt, AttemptEnd, Fence, Header, HistoryEvent, Journal, JournalKind,
    OperatorAct, OperatorVerb, OutcomeKind, Owner, Process, Record, State,
};
use crate::store::{Listed, ReadReply};

/// A snapshot of the stored record of a call.
///
/// Made by the attribute's [`entry`](macro@crate::idempotent#entry),
/// [`CallBuilder::entry`](crate::CallBuilder::entry), or [`Engine::entry`](crate::Engine::entry) for a digest from a
/// log.
///
/// Once it is known what happened to an [unknown](EntryState::Unknown) or [abandoned](EntryState::Abandoned) call, an
/// operator settles it with [`resolve`](Self::resolve), [`resolve_error`](Self::resolve_error) or
/// [`reset`](Self::reset). They change the record only if it is unchanged since this entry was read. The record
/// remembers the change, if it has room: [`history`](Self::history), with the name of the operator and the reason that
/// [`signed`](Self::signed) adds. A body that was alive and succeeds after the change takes its traces away.
///
/// # The type of an answer
///
/// A record carries type tags of the answers of the function that claimed it last, and an answer of another type
/// is refused before anything is changed ([`ErrorKind::WrongType`]). The types are compared by name: see
/// [`Replay`]. A record whose claim did not state its types, by [`begin`](crate::CallBuilder::begin) say, takes any.
///
/// # Correcting an answer
///
/// An answer that was [given by hand](Self::is_by_hand) may be corrected, through an entry that shows it. Callers that
/// got the former answer keep it; the next section states when others get the new one. An answer of a body is never
/// replaced.
///
/// # When a change takes effect
///
/// A call of this engine that begins after the change has returned gets the record as it is then. So does a call of
/// every other engine that begins 5 ms later: simultaneous calls of one key in an engine share one request to the
/// store, and a call may get the reply to a request that was sent up to 5 ms before the call began, however long the
/// reply takes. A [local cache](crate::cache::LocalCache) of another engine may replay a withdrawn answer for longer, up to
/// its `max_age`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use idem_runtime::{Engine, Error, ErrorKind, admin::EntryState, store::memory::MemoryStore};
///
/// #[derive(Debug, PartialEq)]
/// enum PayError {
///     TimedOut,
///     Idem(Error),
/// }
///
/// impl From<Error> for PayError {
///     fn from(error: Error) -> Self {
///         Self::Idem(error)
///     }
/// }
///
/// let engine = Engine::new(MemoryStore::new());
/// let call = || engine.operation("payments.pay").key("order-7").on_error(idem_runtime::on_error::Unknown);
/// // The money may have moved: it is not moved again.
/// let first = call().run(|_| async { Err::<u64, _>(PayError::TimedOut) }).await;
/// assert_eq!(first, Err(PayError::TimedOut));
///
/// // The provider's dashboard says that it did.
/// let entry = call().entry().await?.expect("there is a record");
/// assert_eq!(entry.state(), EntryState::Unknown);
/// entry.resolve(&1_250_u64).await?;
///
/// let again: Result<u64, PayError> = call().run(|_| async { unreachable!("answered") }).await;
/// assert_eq!(again, Ok(1_250));
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[must_use = "an entry only shows what is there; resolve or reset it to change it"]
pub struct Entry {
    core: Arc<Core>,
    key: RecordKey,
    policy: EffectivePolicy,
    /// The fingerprint of the call that made this entry.
    fingerprint: Fingerprint,
    /// The digest that derived keys follow from; `None` if it is not known.
    plain: Option<KeyDigest>,
    record: Record,
    left: Duration,
    /// Whether it is of a listing, which reads headers alone.
    listed: bool,
    /// The name of the operator who changes it, and the reason.
    signature: (String, String),
    /// How the HTTP layer that made this entry stores a response.
    #[cfg(feature = "http")]
    pub(crate) rules: Option<Arc<dyn Any + Send + Sync>>,
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryState {
    /// Its body runs, or an earlier attempt is being reconciled.
    Running {
        /// The rest of the lease.
        lease_left: Duration,
    },
    /// Its body crashed or lost its lease; the next call takes over, if attempts are left.
    Abandoned,
    /// It released its key; the next call runs, if attempts are left.
    Released,
    /// It is answered, with a value or a business error.
    Answered(OutcomeKind),
    /// It is answered, but the answer could not be stored.
    NotStored,
    /// Its outcome is unknown: the effect may or may not have happened.
    Unknown,
}

impl Entry {
    /// The entry under this key, for a call with this fingerprint.
    pub(crate) async fn read(
        core: &Arc<Core>,
        key: RecordKey,
        fingerprint: Fingerprint,
        plain: Option<KeyDigest>,
        policy: &EffectivePolicy,
    ) -> Result<Option<Self>, Error> {
        let reply = core.patiently(key.operation(), || core.read(&key)).await?;
        match reply {
            ReadReply::Absent => Ok(None),
            ReadReply::Found { record, left } => {
                let policy = policy.clone();
                Ok(Some(Self {
                    fingerprint,
                    plain,
                    ..Self::new(core, key, policy, record, left)
                }))
            }
            ReadReply::Unreadable(error) => Err(key.error(ErrorKind::UnknownRecord).because(error)),
        }
    }

    /// The entry of a listed record, which has the header alone.
    pub(crate) fn listed(core: &Arc<Core>, listed: Listed) -> Self {
        let bytes = Bytes::copy_from_slice(&listed.header.encode());
        let (plain, policy) = (core.plain_of(listed.key.digest()), core.defaults.clone());
        let record = Record::new(listed.header, bytes);
        Self {
            plain,
            listed: true,
            ..Self::new(core, listed.key, policy, record, listed.left)
        }
    }

    fn new(
        core: &Arc<Core>,
        key: RecordKey,
        policy: EffectivePolicy,
        record: Record,
        left: Duration,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            key,
            policy,
            fingerprint: Fingerprint::NONE,
            plain: None,
            record,
            left,
            listed: false,
            signature: Default::default(),
            #[cfg(feature = "http")]
            rules: None,
        }
    }

    fn error(&self, kind: ErrorKind) -> Error {
        self.key.error(kind)
    }

    /// The error of a change that was refused.
    pub(crate) fn unchanged(&self, kind: ErrorKind, why: &str) -> Error {
        self.error(kind)
            .detail(format!("nothing was changed; {why}"))
    }

    /// The state of the call.
    #[must_use]
    pub fn state(&self) -> EntryState {
        let header = &self.record.header;
        let lease_left = header.lease_left(self.left);
        match header.state {
            _ if !lease_left.is_zero() => EntryState::Running { lease_left },
            State::Pending { .. } => EntryState::Abandoned,
            State::Released => EntryState::Released,
            State::Reconciling { .. } => EntryState::Unknown,
            State::Done { outcome, .. } => match outcome {
                OutcomeKind::Unknown => EntryState::Unknown,
                OutcomeKind::Tombstone => EntryState::NotStored,
                answer => EntryState::Answered(answer),
            },
        }
    }

    /// The operation of the call.
    ///
    /// For an entry that was [listed](crate::Engine::entries) on Redis it is the one in the record's name: cut to 48
    /// bytes, with `_` for characters other than letters, digits and `.:_-`.
    #[must_use]
    pub fn operation(&self) -> &str {
        self.key.operation().as_str()
    }

    /// The digest of operation, scope and key.
    ///
    /// A reader of a log can try guesses against it, unless the engine has a
    /// [digest key](crate::EngineBuilder::digest_key).
    #[must_use]
    pub fn key(&self) -> &KeyDigest {
        self.key.digest()
    }

    /// The attempts that have ended, from first to last; at most 16.
    ///
    /// They explain why a body was started more than once: see [`Attempt`]. Empty for a call that succeeded at its first
    /// attempt, for an entry of a [listing](crate::Engine::entries), and where attempts are not
    /// [recorded](crate::EngineBuilder::record_attempts).
    #[must_use]
    pub fn recorded_attempts(&self) -> Vec<Attempt> {
        self.record.journal().recorded_attempts()
    }

    /// Attempts that have ended, and acts of operators, oldest first: at most 16.
    ///
    /// Empty where [`recorded_attempts`](Self::recorded_attempts) is, unless an operator has changed the record. A
    /// [purge](Self::expire) is remembered if a call follows it within 10 seconds.
    #[must_use]
    pub fn history(&self) -> Vec<HistoryEvent> {
        HistoryEvent::all_of(&self.record.journal())
    }

    /// Signs the next change with the operator's name and a reason.
    ///
    /// The name has at most 64 bytes and the reason 256; longer texts are cut. Both are stored in plain text, for [`history`](Self::history).
    pub fn signed(mut self, operator: impl Into<String>, reason: impl Into<String>) -> Self {
        self.signature = (operator.into(), reason.into());
        self
    }

    /// The label of its key, which the caller chose: the attribute's [`label`](macro@crate::idempotent#label).
    ///
    /// An attempt that records its end adds it. So there is none for a call that succeeded at its first attempt, nor
    /// while every attempt has crashed or runs; nor for an entry of a [listing](crate::Engine::entries), which reads
    /// headers alone: where [`has_journal`](Self::has_journal), the [entry](crate::Engine::entry) of its digest has it.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        let label = KeyLabel::of(&self.record.journal())?;
        Some(label.as_str().to_owned())
    }

    /// Whether the record has a journal: [attempts](Self::recorded_attempts) that have ended, a [label](Self::label),
    /// [steps](Self::steps).
    ///
    /// Also known of an entry of a [listing](crate::Engine::entries), which shows none of these.
    #[must_use]
    pub fn has_journal(&self) -> bool {
        !self.record.header.journal.is_none()
    }

    /// The process of the last claim, if its engine [records](crate::EngineBuilder::record_attempts) attempts.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        self.record.header.owner.process()
    }

    /// The number of attempts that count.
    #[must_use]
    pub fn attempts(&self) -> u16 {
        self.record.header.attempts
    }

    /// The fencing token of the last claim.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.record.header.fence
    }

    /// Whether the body streamed its answer when the record was written: it still does, or was cut off.
    ///
    /// The outcome is [unknown](EntryState::Unknown) until the end of the stream, which is at most `max_run` away.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        let unknown = |schema| State::Done {
            outcome: OutcomeKind::Unknown,
            schema,
        };
        self.record.header.state == unknown(Cause::Streaming.code())
    }

    /// Whether an operator wrote the record: it is resolved or reset, and no attempt has changed it since.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.record.header.owner.is_by_hand()
    }

    /// The type tags of the function that claimed it last.
    #[must_use]
    pub fn types(&self) -> AnswerTypes {
        self.record.header.types
    }

    /// How long ago the record was written or its claim renewed.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.record.header.age(self.left)
    }

    /// How long the store will still keep the record; [`FOREVER`](crate::FOREVER): until it is deleted.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.record.header.remaining(self.left)
    }

    /// Whether a part of its attempts is recorded: [`steps`](Self::steps) of an entry that is not of a listing names
    /// them.
    #[must_use]
    pub fn has_steps(&self) -> bool {
        self.record.header.journal == JournalKind::Steps
    }

    /// The size of the record, without the store's overhead.
    ///
    /// `None` for an entry of a [listing](crate::Engine::entries), which reads headers alone.
    #[must_use]
    pub fn record_bytes(&self) -> Option<usize> {
        (!self.listed).then(|| self.record.bytes().len())
    }

    /// The stored answer; `None` unless the entry is [answered](EntryState::Answered), and for an entry of a
    /// [listing](crate::Engine::entries), which reads headers alone.
    ///
    /// `decode::<serde_json::Value>()` reads the answer of any type, unless it is a response of the feature `http`.
    #[must_use]
    pub fn stored_answer(&self) -> Option<StoredAnswer> {
        let is_answered = matches!(self.state(), EntryState::Answered(_));
        (is_answered && !self.listed).then(|| {
            let (format, operation) = (&self.core.format, self.key.operation());
            let (record, key) = (self.record.clone(), self.key.digest());
            StoredAnswer::new(format, operation, key, record, self.left, false)
        })
    }

    /// Stores this answer for an effect that happened.
    ///
    /// Every later call gets it. It is kept for `ttl`, and at least for as long as the record that it settles was to be
    /// kept: a `ttl` that only the attribute of the function names need not be repeated here.
    ///
    /// The record of a released key of which nothing remains has no request. Then the answer is that of the request
    /// whose entry this is, and other arguments are a mismatch; of an entry that was made without a fingerprint, or by
    /// its digest, it is the answer to every request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongType`] if the function has values of another type than `T`; [`ErrorKind::Mismatch`] if the
    /// record is of another request than the entry; [`ErrorKind::Changed`] if the record has changed since it was
    /// shown, or holds the answer of a body; [`ErrorKind::Running`] while a claim is held; [`ErrorKind::NotStored`] if
    /// the value is too large, or its type does not write it or read it back. With each of these nothing has changed.
    /// [`ErrorKind::StoreUnavailable`] if it is not known whether it was stored: get the entry again.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the change may or may not have happened.
    pub async fn resolve<T: Replay>(self, value: &T) -> Result<(), Error> {
        let encoded = Encoded::by_hand(OutcomeKind::Value, value, &self.core.format);
        self.answer(encoded, type_name::<T>()).await
    }

    /// Stores this business error as the answer.
    ///
    /// It is kept for `error_ttl`, and at least for as long as the record that it settles was to be kept.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve); [`ErrorKind::WrongType`] also if the function keeps no errors
    /// (`on_error = release` or `unknown`).
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn resolve_error<E: Replay>(self, error: &E) -> Result<(), Error> {
        let encoded = Encoded::by_hand(OutcomeKind::Error, error, &self.core.format);
        self.answer(encoded, type_name::<E>()).await
    }

    /// Stores this JSON as the answer, without the function's type.
    ///
    /// As [`resolve`](Self::resolve), but whether the function can read the answer is not checked: `json` must be what
    /// its value serializes to, without the `Result`. An answer that it cannot read is
    /// [`ErrorKind::Undecodable`](crate::ErrorKind::Undecodable) for callers, and can be corrected. Responses of the
    /// feature `http` have no such form.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve); [`ErrorKind::NotStored`] also if `json` is not JSON.
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn resolve_json(self, json: &str) -> Result<(), Error> {
        self.answer_json(OutcomeKind::Value, json).await
    }

    /// Stores this JSON as the business error of a call.
    ///
    /// As [`resolve_error`](Self::resolve_error), with the limits of [`resolve_json`](Self::resolve_json).
    ///
    /// # Errors
    ///
    /// As [`resolve_error`](Self::resolve_error); [`ErrorKind::NotStored`] also if `json` is not JSON.
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn resolve_error_json(self, json: &str) -> Result<(), Error> {
        self.answer_json(OutcomeKind::Error, json).await
    }

    async fn answer_json(self, outcome: OutcomeKind, json: &str) -> Result<(), Error> {
        let schema = self.record.header.types.schema(outcome);
        match Encoded::json(outcome, schema, json) {
            Some(encoded) => self.answer(encoded, "JSON").await,
            None => Err(self.unchanged(ErrorKind::NotStored, "the answer is not JSON")),
        }
    }

    /// Resets the record, an answer included, and keeps its [steps](crate::step()).
    ///
    /// The next call runs the body, and counts as the first attempt. **If the effect had happened, it happens again.** The
    /// body gets the results of finished steps, and runs the others. A step whose outcome is unknown stays so: only its
    /// `reconcile`, [`reset_steps`](Self::reset_steps) or [`reset_with_steps`](Self::reset_with_steps) lets it run.
    ///
    /// The request is kept: other arguments are a mismatch as before. The types of the answers are not: the next call
    /// may be of a corrected function. If an earlier body is still alive and succeeds before the next call, its answer
    /// is stored after all. An attempt that had answered is [remembered](Self::recorded_attempts).
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve), but for answers, which may be reset.
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn reset(self) -> Result<(), Error> {
        let seen = self.journal().await?;
        let journal = self.changed(&seen, OperatorVerb::Reset);
        self.reset_to(&seen, &journal).await
    }

    /// Resets the record, and all of its steps.
    ///
    /// As [`reset`](Self::reset), but the body runs all of its steps.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset).
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn reset_with_steps(self) -> Result<(), Error> {
        let seen = self.journal().await?;
        let journal = self.changed(&seen.attempts(), OperatorVerb::ResetWithSteps);
        self.reset_to(&seen, &journal).await
    }

    /// The journal of the record, which a listing has not read.
    async fn journal(&self) -> Result<Journal, Error> {
        let journal = self.record.journal();
        if self.record.header.journal.is_none() || !journal.is_empty() {
            return Ok(journal);
        }
        let (core, key) = (&self.core, &self.key);
        let read = core.patiently(key.operation(), || core.read(key)).await?;
        match read {
            ReadReply::Found { record, .. } if record.header == self.record.header => {
                Ok(record.journal())
            }
            _ => Err(self.error(ErrorKind::Changed)),
        }
    }

    /// The journal after a change: with its last attempt, which may have written nothing, and the act.
    fn changed(&self, journal: &Journal, verb: OperatorVerb) -> Journal {
        self.changed_of(journal, verb, &[])
    }

    /// As `changed`, with an act per step, or one without a step.
    fn changed_of(
        &self,
        journal: &Journal,
        verb: OperatorVerb,
        steps: &[(StepDigest, String)],
    ) -> Journal {
        if !self.core.store.keeps_journals() {
            return journal.clone();
        }
        let attempt = self.last_attempt(journal);
        let (operator, reason) = self.signature.clone();
        let mut act = OperatorAct {
            verb,
            at: self.core.clock.calendar(),
            operator,
            reason,
            step: String::new(),
        };
        let mut with = attempt.map_or_else(|| journal.clone(), |it| journal.with(&it.entry()));
        if steps.is_empty() {
            with = with.with(&act.entry([0; 16]));
        }
        for (step, said) in steps {
            said.clone_into(&mut act.step);
            with = with.with(&act.entry(*step));
        }
        // A journal that the store would refuse to read is not written.
        let fits = self.core.takes_journal(&with);
        if fits { with } else { journal.clone() }
    }

    /// The attempt that wrote the record, unless the journal remembers it.
    ///
    /// A first attempt with an answer writes nothing, nor does an attempt that has not ended.
    fn last_attempt(&self, journal: &Journal) -> Option<Attempt> {
        let header = &self.record.header;
        let (now, age) = (self.core.clock.calendar(), self.age());
        let (end, age) = match self.state() {
            EntryState::Answered(OutcomeKind::Error) => (AttemptEnd::BusinessError, age),
            EntryState::Answered(_) => (AttemptEnd::Value, age),
            EntryState::NotStored => (AttemptEnd::NotStored, age),
            EntryState::Running { .. } | EntryState::Abandoned
                if matches!(header.state, State::Pending { .. }) =>
            {
                (AttemptEnd::ByOperator, Duration::ZERO)
            }
            _ => return None,
        };
        let is_remembered = journal
            .recorded_attempts()
            .last()
            .is_some_and(|last| last.fence == header.fence);
        // An attempt without a process is not recorded.
        if self.is_by_hand() || is_remembered || header.owner.process().is_none() {
            return None;
        }
        let ended = now.checked_sub(age).unwrap_or(now);
        Some(Attempt::new(header, end, ended, ""))
    }

    /// Ends the claim of a crashed process before its lease is over.
    ///
    /// For a [running](EntryState::Running) or [abandoned](EntryState::Abandoned) entry. The attempt counts as
    /// abandoned, the request and the [steps](crate::step()) are kept, and the next call runs the body if an attempt is
    /// left. The outcome of a reconciliation becomes unknown again.
    ///
    /// **If the body still runs, two bodies run.** The first one loses its lease at its next renewal, and its answer is
    /// stored only if no other is. An [`age`](Self::age) below a third of the lease indicates that its process renews the
    /// claim, and so is alive.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if no claim is held or abandoned, or if it has changed since it was read: nothing has
    /// changed. [`ErrorKind::StoreUnavailable`] if it is not known whether it was released: get the entry again.
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn release(self) -> Result<(), Error> {
        let (core, key, seen) = (&self.core, &self.key, self.record.header);
        let is_claim = matches!(
            seen.state,
            State::Pending { .. } | State::Reconciling { .. }
        );
        if !is_claim {
            let why = "no claim is held or abandoned";
            return Err(self.unchanged(ErrorKind::Changed, why));
        }
        let before = self.journal().await?;
        let journal = self.changed(&before, OperatorVerb::Release);
        let reply = core
            .patiently(key.operation(), || {
                let journals = (core.store.keeps_journals()).then_some((&journal, Some(&before)));
                (core.store).release(key, &seen.owner, Remains::Attempt, journals)
            })
            .await;
        core.flights.forget(key.digest());
        if reply? == ReleaseReply::Released {
            core.emit(key, EventKind::Released { counted: true });
            return Ok(());
        }
        let why = "the claim is no longer the one that was shown";
        Err(self.unchanged(ErrorKind::Changed, why))
    }

    /// Resets the record, and lets it expire in 10 seconds.
    ///
    /// For records that are no longer needed, such as those of an operation that is gone. As after
    /// [`reset`](Self::reset), the next call runs the body, and counts as the first attempt: **if the effect had
    /// happened, it happens again.** Once expired, the key counts as unused. The 10 seconds are for requests of an
    /// earlier attempt that may still be on their way.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset).
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn expire(self) -> Result<(), Error> {
        // A listing reads headers alone; a request per record would cost too much.
        let journal = self.changed(&self.record.journal().attempts(), OperatorVerb::Purge);
        let header = Header {
            retain: RELEASED_AT_LEAST,
            types: AnswerTypes::UNKNOWN,
            ..self.header(State::Released, RELEASED_AT_LEAST)
        };
        let record = Record::with_journal(header, &journal).into_bytes();
        self.send(None, record, None).await
    }

    async fn reset_to(self, seen: &Journal, journal: &Journal) -> Result<(), Error> {
        let header = Header {
            types: AnswerTypes::UNKNOWN,
            ..self.header(State::Released, self.policy.retain())
        };
        let record = Record::with_journal(header, journal).into_bytes();
        self.send(Some(seen), record, None).await
    }

    #[cfg(feature = "http")]
    pub(crate) fn format(&self) -> &crate::outcome::codec::Format {
        &self.core.format
    }

    /// `type_name`: the type that was encoded.
    pub(crate) async fn answer(self, encoded: Encoded, type_name: &str) -> Result<(), Error> {
        let answered = match self.state() {
            EntryState::Answered(_) => !self.is_by_hand(),
            state => state == EntryState::NotStored,
        };
        if answered {
            let why = "its body has answered it; only a reset can change that";
            return Err(self.error(ErrorKind::Changed).detail(why));
        }
        if !self.record.header.fingerprint.matches(self.fingerprint) {
            let why = "the record is that of another request than this entry's";
            return Err(self.unchanged(ErrorKind::Mismatch, why));
        }
        // A released key may have lost its fingerprint. Without one the answer goes to every request.
        let fingerprint = match self.record.header.fingerprint {
            lost if lost.is_none() => self.fingerprint,
            kept => kept,
        };
        let sealed = (self.core.format).seal(self.key.digest(), fingerprint, encoded);
        let Encoded::Store(sealed) = sealed else {
            let why = "an error of class system is no answer";
            return Err(self.error(ErrorKind::NotStored).detail(why));
        };
        let EncodedAnswer {
            outcome,
            schema,
            mut record,
            lost,
            life,
            ..
        } = sealed;
        if let Some(lost) = lost {
            return Err(self.error(ErrorKind::NotStored).detail(lost.to_string()));
        }
        let types = self.record.header.types;
        if outcome == OutcomeKind::Error && types.keeps_no_errors() {
            let why = "the function keeps no errors (`on_error = release` or `unknown`), and could not read this one: \
                       resolve with a value, or reset";
            return Err(self.unchanged(ErrorKind::WrongType, why));
        }
        let accepts = self.policy.reads_any_type();
        if !accepts && !types.holds(outcome, schema) {
            let why = format!(
                "`{type_name}` has another name than the type that the function returns: give it a value of that type"
            );
            return Err(self.unchanged(ErrorKind::WrongType, &why));
        }
        let verb = match outcome {
            OutcomeKind::Error => OperatorVerb::ResolveError,
            _ => OperatorVerb::Resolve,
        };
        let seen = self.journal().await?;
        let attempts = self.changed(&seen.attempts(), verb);
        let retain = self.policy.life_of(outcome, life);
        let header = Header {
            fingerprint,
            ..self.header(State::Done { outcome, schema }, retain)
        };
        let max_bytes = self.core.store.max_record_bytes();
        Record::append_attempts(&mut record, header, &attempts, max_bytes);
        self.send(Some(&seen), record.into(), Some(outcome)).await
    }

    fn header(&self, state: State, retain: Duration) -> Header {
        Header {
            state,
            // An owner of its own, so that a repeat is recognised, and no claim is taken for it.
            owner: Owner::by_hand(),
            // The `ttl` that the record was written with may be known to the operation alone.
            retain: retain.max(self.record.header.retain),
            journal: JournalKind::None,
            ..self.record.header
        }
    }

    /// Replaces the record, if it still has this journal.
    async fn send(
        self,
        journal: Option<&Journal>,
        record: Bytes,
        outcome: Option<OutcomeKind>,
    ) -> Result<(), Error> {
        let (core, key) = (&self.core, &self.key);
        let seen = self.record.header;
        // From here until the outcome of the request is known, the cache answers nothing under this key.
        let taking = core.taking(key);
        let reply = core
            .patiently(key.operation(), || {
                core.store.resolve(key, &seen, journal, &record)
            })
            .await;
        drop(taking);
        core.flights.forget(key.digest());
        let reply = reply?;
        let refuse = |kind| Err(self.error(kind));
        match reply {
            ResolveReply::Resolved => {
                core.emit(key, EventKind::Resolved { outcome });
                Ok(())
            }
            ResolveReply::Running { lease_left } => refuse(ErrorKind::Running {
                retry_after: lease_left,
            }),
            ResolveReply::Changed | ResolveReply::Absent => refuse(ErrorKind::Changed),
            ResolveReply::Unreadable(error) => {
                Err(self.error(ErrorKind::UnknownRecord).because(error))
            }
        }
    }
}

debug_fields!(Entry {
    key,
    state: |it| it.state(),
    attempts: |it| it.attempts()
});
