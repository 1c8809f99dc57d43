//! What an engine consists of.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::env::clock::Clock;
use crate::env::observer::{Event, EventKind, Observer};
use crate::env::striped::{Lanes, Tally};
use crate::identity::digest_key::DigestKey;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, Prefix, RecordKey};
use crate::identity::token::Tokens;
#[cfg(feature = "_sql")]
use crate::lifecycle::claimed_keys::ClaimedKeys;
use crate::lifecycle::outage::Outage;
use crate::lifecycle::renewer::Keeper;
use crate::lifecycle::run_limit::RunLimit;
use crate::local::cache::{Answers, Found, Life, LocalCacheStats, Permit, Taking};
use crate::local::singleflight::Flights;
use crate::outcome::codec::Format;
use crate::policy::{OnDuplicate, Policy};
use crate::record::Record;
use crate::store::{Hearing, Listener, Store};

/// What an engine consists of. On lines of its own: how often it is held is counted in front of it, by
/// every call.
#[repr(align(128))]
pub(crate) struct Core {
    /// Tells engines of this process apart.
    pub(crate) id: u64,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) keeper: Keeper,
    pub(crate) prefix: Arc<str>,
    /// The same for keys, one for each lane.
    pub(crate) prefixes: Lanes<Prefix>,
    pub(crate) defaults: Policy,
    pub(crate) limits: Limits,
    pub(crate) outage: Outage,
    pub(crate) format: Format,
    /// The same for answers that are handed out, one for each lane.
    pub(crate) formats: Lanes<Format>,
    pub(crate) tokens: Tokens,
    pub(crate) digests: DigestKey,
    /// Under which a call looks for its record first.
    pub(crate) former_digests: Option<DigestKey>,
    pub(crate) flights: Arc<Flights>,
    /// Of calls in transactions.
    #[cfg(feature = "_sql")]
    pub(crate) claimed_keys: ClaimedKeys,
    /// Off unless asked for.
    pub(crate) answers: Option<Arc<Answers>>,
    /// Nothing new is to be started.
    pub(crate) closing: AtomicBool,
    /// Calls between their start and their claim or answer.
    pub(crate) entering: Tally,
    /// Bodies that run without a lease.
    pub(crate) unleased: AtomicUsize,
    /// Bodies that run, where their number is limited.
    pub(crate) running: Option<Arc<RunLimit>>,
    pub(crate) protection: Protection,
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
    /// Where the record of a call stands.
    pub(crate) fn record_key(&self, operation: Operation, digest: KeyDigest) -> RecordKey {
        RecordKey::under(self.prefixes.mine().clone(), operation, digest)
    }

    pub(crate) fn tell(&self, key: &RecordKey, kind: EventKind<'_>) {
        self.observer.observe(&Event {
            operation: key.operation().as_str(),
            key: Some(key.digest()),
            kind,
        });
    }
}

impl Core {
    /// The cache, if calls of this policy are answered from it. Where duplicates are refused, they are
    /// told how long the answer will still be kept, and the store knows that best.
    fn answers(&self, policy: &Policy) -> Option<&Arc<Answers>> {
        let answers = self.answers.as_ref()?;
        (policy.on_duplicate != OnDuplicate::Reject).then_some(answers)
    }

    /// Looks for the answer of a call.
    pub(crate) fn recall(
        &self,
        key: &RecordKey,
        asked: Fingerprint,
        policy: &Policy,
        now: Duration,
    ) -> Found {
        let Some(answers) = self.answers(policy) else {
            return Found::Nothing(None);
        };
        if !answers.is_started() {
            self.listen(answers);
        }
        answers.look(key, asked, policy.dated(), now)
    }

    /// The right to keep what an operation will say that is sent after this.
    pub(crate) fn permit(&self, key: &RecordKey) -> Option<Permit> {
        self.answers.as_ref()?.permit(key)
    }

    /// Keeps an answer that the store has given.
    pub(crate) fn remember(
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

    /// An answer is about to be taken back; until this is dropped, nothing is kept under the key.
    pub(crate) fn taking(&self, key: &RecordKey) -> Option<Taking> {
        Some(self.answers.as_ref()?.take(*key.digest()))
    }

    /// Has the store tell of resolutions by others: on the engine's own thread.
    fn listen(&self, answers: &Arc<Answers>) {
        // Without that thread nothing is claimed, and nothing kept.
        if self.keeper.start().is_err() || answers.start() {
            return;
        }
        let (store, prefix) = (Arc::clone(&self.store), Arc::clone(&self.prefix));
        let listener = Arc::clone(answers) as Arc<dyn Listener>;
        self.keeper.spawn(async move {
            if !store.listen(&prefix, Arc::downgrade(&listener) as Weak<dyn Listener>) {
                listener.hearing(Hearing::Never);
            }
        });
    }

    /// Counters of the cache.
    pub(crate) fn cache_stats(&self) -> Option<LocalCacheStats> {
        self.answers.as_ref().map(|answers| answers.stats())
    }
}
