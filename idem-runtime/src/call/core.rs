//! The shared state of an engine.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::call::background_thread::BackgroundThread;
#[cfg(feature = "_sql")]
use crate::call::claimed_keys::ClaimedKeys;
use crate::call::outage::Outage;
use crate::call::refusal::unavailable;
use crate::call::run_limit::RunLimit;
use crate::call::step_log::MAX_JOURNAL_BYTES;
use crate::env::backoff::Backoff;
use crate::env::clock::{Clock, deadline};
use crate::env::observer::{Event, EventKind, Observer};
use crate::env::striped::{Lanes, Tally};
use crate::env::wants::Wants;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::{CallName, DigestKey};
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, Prefix, RecordKey};
use crate::identity::token::Tokens;
use crate::local::cache::{Answers, Found, Life, LocalCacheStats, Permit, Taking};
use crate::local::singleflight::Flights;
use crate::outcome::codec::Format;
use crate::outcome::stored::StoredAnswer;
use crate::policy::{EffectivePolicy, OnDuplicate};
use crate::record::label::KeyLabel;
use crate::record::{Attempt, AttemptEnd, HEADER, Header, Journal, Owner, Process, Record};
use crate::store::{Hearing, ListReply, ListRequest, Listener, ReadReply, Store, StoreError};

/// The shared state of an engine. Aligned against false sharing: every call changes the reference count in front of
/// it.
#[repr(align(128))]
pub(crate) struct Core {
    /// Distinguishes the engines of this process.
    pub(crate) id: u64,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Read from the observer once.
    pub(crate) wants: Wants,
    pub(crate) background: BackgroundThread,
    pub(crate) prefix: Arc<str>,
    /// The prefix for keys, one copy for each lane.
    pub(crate) prefixes: Lanes<Prefix>,
    pub(crate) defaults: EffectivePolicy,
    pub(crate) limits: EngineLimits,
    pub(crate) outage: Arc<Outage>,
    pub(crate) format: Format,
    /// The format for returned answers, one copy for each lane.
    pub(crate) formats: Lanes<Format>,
    pub(crate) tokens: Tokens,
    pub(crate) digests: DigestKey,
    /// The digest key under which a call looks its record up first.
    pub(crate) former_digests: Option<DigestKey>,
    pub(crate) flights: Arc<Flights>,
    /// Keys of calls in transactions.
    #[cfg(feature = "_sql")]
    pub(crate) claimed_keys: ClaimedKeys,
    /// The local cache; off unless configured.
    pub(crate) answers: Option<Arc<Answers>>,
    /// No new call may start.
    pub(crate) closing: AtomicBool,
    /// Calls between their start and their claim or answer.
    pub(crate) entering: Tally,
    /// Bodies that run without a lease.
    pub(crate) unleased: AtomicUsize,
    /// Bodies that run, where their number is limited.
    pub(crate) running: Option<Arc<RunLimit>>,
    pub(crate) protection: Protection,
    /// Records the ends of attempts, if the store keeps journals.
    pub(crate) recorder: Option<Recorder>,
}

/// Names the attempts of this process in their records.
#[derive(Debug)]
pub(crate) struct Recorder {
    instance: String,
    pub(crate) process: Process,
}

impl Recorder {
    pub(crate) fn new(instance: String) -> Self {
        Self {
            process: Process::this(&instance),
            instance,
        }
    }

    pub(crate) fn attempt(&self, claim: &Header, end: AttemptEnd, ended: SystemTime) -> Attempt {
        Attempt::new(claim, end, ended, &self.instance)
    }
}

/// Bounds of the whole engine.
#[derive(Clone, Debug)]
pub(crate) struct EngineLimits {
    pub(crate) claim_deadline: Duration,
    pub(crate) complete_deadline: Duration,
}

/// Whether an engine protects its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    On,
    /// Every call runs its body.
    Off,
    /// Every call is refused: a release build does not switch protection off.
    Refused,
}

impl Core {
    pub(crate) fn new_owner(&self, key: &RecordKey) -> Owner {
        let owner = self.store.new_owner(key);
        match &self.recorder {
            Some(recorder) => owner.of_process(recorder.process),
            None => owner,
        }
    }

    /// The digest key under which a record has its name. `plain` is the plain digest of its call.
    pub(crate) fn digests_of(&self, key: &RecordKey, plain: &KeyDigest) -> &DigestKey {
        match &self.former_digests {
            Some(former) if former.name(plain) == *key.digest() => former,
            _ => &self.digests,
        }
    }

    /// The plain digest of a record's; `None` if digests are keyed.
    pub(crate) fn plain_of(&self, digest: &KeyDigest) -> Option<KeyDigest> {
        let is_plain = self.former_digests.is_none() && !self.digests.is_keyed();
        is_plain.then_some(*digest)
    }

    /// The key of a call's record.
    pub(crate) fn record_key(&self, operation: Operation, digest: KeyDigest) -> RecordKey {
        RecordKey::under(self.prefixes.mine().clone(), operation, digest)
    }

    /// The name of a call's record under this digest key.
    pub(crate) fn name(
        &self,
        digests: &DigestKey,
        operation: Operation,
        (plain, fingerprint): (KeyDigest, Fingerprint),
    ) -> CallName {
        CallName {
            key: self.record_key(operation, digests.name(&plain)),
            fingerprint: digests.fingerprint(&plain, fingerprint),
            plain: digests.is_keyed().then(|| Box::new(plain)),
        }
    }

    pub(crate) fn emit(&self, key: &RecordKey, kind: EventKind<'_>) {
        self.emit_labelled(key, None, kind);
    }

    pub(crate) fn emit_labelled(
        &self,
        key: &RecordKey,
        label: Option<&KeyLabel>,
        kind: EventKind<'_>,
    ) {
        self.observer.observe(&Event {
            operation: key.operation().as_str(),
            key: Some(key.digest()),
            label: label.map(KeyLabel::as_str),
            kind,
        });
    }

    /// Notifies the observer of a refusal.
    pub(crate) fn refused(&self, error: &Error) {
        let refused = EventKind::Refused { error };
        self.observer
            .observe(&Event::new(error.operation(), refused));
    }

    /// An answer as a caller of this operation and digest reads it.
    pub(crate) fn stored(
        &self,
        (operation, digest): (&Operation, &KeyDigest),
        record: Record,
        left: Duration,
        waited: bool,
    ) -> StoredAnswer {
        StoredAnswer::new(self.formats.mine(), operation, digest, record, left, waited)
    }

    /// Notifies a shutdown that one call fewer is left.
    pub(crate) fn left(&self) {
        if self.closing.load(Ordering::SeqCst) {
            self.background.idle().notify_waiters();
        }
    }

    /// The longest journal of steps that the store takes.
    pub(crate) fn max_journal_bytes(&self) -> usize {
        let record = self.store.max_record_bytes();
        record.map_or(MAX_JOURNAL_BYTES, |bytes| {
            bytes.saturating_sub(HEADER).min(MAX_JOURNAL_BYTES)
        })
    }

    /// Whether the store would read a record with this journal alone again.
    pub(crate) fn takes_journal(&self, journal: &Journal) -> bool {
        let max = self.store.max_record_bytes();
        max.is_none_or(|max| HEADER + journal.as_bytes().len() <= max)
    }

    /// The cache, if calls of this policy are answered from it. A refused duplicate reports how long the answer will
    /// still be kept, and the store has the exact value.
    fn answers(&self, policy: &EffectivePolicy) -> Option<&Arc<Answers>> {
        let answers = self.answers.as_ref()?;
        (policy.on_duplicate() != OnDuplicate::Reject).then_some(answers)
    }

    /// Looks up the cached answer of a call.
    pub(crate) fn cached_answer(
        &self,
        key: &RecordKey,
        fingerprint: Fingerprint,
        policy: &EffectivePolicy,
        now: Duration,
    ) -> Found {
        let Some(answers) = self.answers(policy) else {
            return Found::Nothing(None);
        };
        if !answers.is_started() {
            self.listen(answers);
        }
        answers.get(key, fingerprint, policy.dated(), now)
    }

    /// The right to cache the reply to the next operation.
    pub(crate) fn cache_permit(&self, key: &RecordKey) -> Option<Permit> {
        self.answers.as_ref()?.permit(key)
    }

    pub(crate) fn cache_answer(
        &self,
        permit: Option<Permit>,
        key: &RecordKey,
        record: &Record,
        life: Life,
    ) {
        if let (Some(permit), Some(answers)) = (permit, &self.answers) {
            answers.keep(permit, key, record, life);
        }
    }

    /// Announces the withdrawal of an answer; until the guard is dropped, nothing is cached under the key.
    pub(crate) fn taking(&self, key: &RecordKey) -> Option<Taking> {
        Some(self.answers.as_ref()?.take(*key.digest()))
    }

    /// Subscribes the cache to resolutions by other engines.
    fn listen(&self, answers: &Arc<Answers>) {
        // Without that thread nothing is claimed, and nothing cached.
        if self.background.start().is_err() || answers.start() {
            return;
        }
        let (store, prefix) = (Arc::clone(&self.store), Arc::clone(&self.prefix));
        let listener = Arc::clone(answers) as Arc<dyn Listener>;
        self.background.spawn(async move {
            if !store.listen(&prefix, Arc::downgrade(&listener) as Weak<dyn Listener>) {
                listener.hearing(Hearing::Never);
            }
        });
    }

    pub(crate) fn cache_stats(&self) -> Option<LocalCacheStats> {
        self.answers.as_ref().map(|answers| answers.stats())
    }

    /// Reads on the engine's thread, where a store has its second connection.
    pub(crate) async fn read(self: &Arc<Self>, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let (store, there) = (Arc::clone(&self.store), key.clone());
        match self
            .on_own_thread(async move { store.read(&there).await })
            .await
        {
            Some(reply) => reply,
            None => self.store.read(key).await,
        }
    }

    /// Lists on that thread as well.
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListReply, StoreError> {
        let (store, step) = (Arc::clone(&self.store), request.clone());
        match self
            .on_own_thread(async move { store.list(&step).await })
            .await
        {
            Some(reply) => reply,
            None => self.store.list(request).await,
        }
    }

    /// Runs a request on that thread while its caller waits: a store that never replies would keep the engine alive for
    /// ever. `None`: there is no such thread.
    async fn on_own_thread<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (mut sender, receiver) = oneshot::channel();
        self.background.start().ok()?;
        self.background.spawn(async move {
            let mut request = pin!(request);
            let reply = poll_fn(|cx| match sender.poll_closed(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => request.as_mut().poll(cx).map(Some),
            });
            if let Some(reply) = reply.await {
                let _ = sender.send(reply);
            }
        });
        receiver.await.ok()
    }

    /// Repeats a request for `claim_deadline` and the store's pause.
    pub(crate) async fn patiently<T, F>(
        &self,
        operation: &Operation,
        send: impl Fn() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let patience = self.limits.claim_deadline + self.store.reset_pause();
        let until = self.clock.now() + patience;
        let mut backoff = Backoff::new(&Owner::random());
        let reply = self.retry_until(until, &mut backoff, send).await;
        reply.map_err(|cause| match cause {
            Some(cause) => unavailable(operation, cause),
            None => operation
                .error(ErrorKind::StoreUnavailable)
                .detail(format!("no reply within {patience:?}")),
        })
    }

    /// Repeats a request until a reply, a permanent error or the moment. The error is the last failure, if there was
    /// one: its cause is worth more than the silence of a later attempt.
    pub(crate) async fn retry_until<T, F>(
        &self,
        moment: Duration,
        backoff: &mut Backoff,
        send: impl Fn() -> F,
    ) -> Result<T, Option<StoreError>>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let clock = &*self.clock;
        let mut failure = None;
        loop {
            match deadline(clock, moment, pin!(send())).await {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => {
                    let now = clock.now();
                    if now >= moment || !error.is_transient() {
                        return Err(Some(error));
                    }
                    failure = Some(error);
                    clock.sleep_until((now + backoff.retry()).min(moment)).await;
                }
                Err(_) => return Err(failure),
            }
        }
    }
}
