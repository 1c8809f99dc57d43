//! The shared state of an engine.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use crate::call::background_thread::BackgroundThread;
#[cfg(feature = "_sql")]
use crate::call::claimed_keys::ClaimedKeys;
use crate::call::outage::Outage;
use crate::call::run_limit::RunLimit;
use crate::env::clock::Clock;
use crate::env::observer::{Event, EventKind, Observer};
use crate::env::striped::{Lanes, Tally};
use crate::env::wants::Wants;
use crate::identity::digest_key::{CallName, DigestKey, Identity};
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, Prefix, RecordKey};
use crate::identity::token::Tokens;
use crate::local::cache::{Answers, Found, Life, LocalCacheStats, Permit, Taking};
use crate::local::singleflight::Flights;
use crate::outcome::codec::Format;
use crate::policy::{EffectivePolicy, OnDuplicate};
use crate::record::label::KeyLabel;
use crate::record::{Attempt, AttemptEnd, Header, Owner, Process, Record};
use crate::store::{Hearing, Listener, Store};

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
    pub(crate) limits: Limits,
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
    /// Records how attempts end, unless that is switched off or the store keeps no journals.
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
        Attempt {
            owner: claim.owner,
            fence: claim.fence,
            number: claim.attempts,
            end,
            ended,
            instance: self.instance.clone(),
        }
    }
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
}

/// Bounds of the whole engine.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
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
    /// The key of a call's record.
    pub(crate) fn record_key(&self, operation: Operation, digest: KeyDigest) -> RecordKey {
        RecordKey::under(self.prefixes.mine().clone(), operation, digest)
    }

    /// The name of a call's record under this digest key.
    pub(crate) fn name(
        &self,
        digests: &DigestKey,
        operation: Operation,
        plain: Identity,
    ) -> CallName {
        let identity = digests.identify(plain);
        CallName {
            key: self.record_key(operation, identity.digest),
            fingerprint: identity.fingerprint,
            plain: digests.is_keyed().then(|| Box::new(plain.digest)),
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

    /// The right to cache the reply to an operation that is sent after this.
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

    /// Subscribes the cache to resolutions by other engines, on the engine's own thread.
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
}
