//! The settings of an engine.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::call::background_thread::BackgroundThread;
use crate::call::core::{Core, EngineLimits, Protection, Recorder};
use crate::call::engine::Engine;
use crate::call::outage::Outage;
use crate::call::run_limit::RunLimit;
use crate::env::clock::{Clock, SystemClock};
use crate::env::observer::{Contained, Event, EventKind, Observer, StderrObserver};
use crate::env::striped::{Lanes, Tally};
use crate::env::wants::Wants;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::DigestKey;
use crate::identity::operation::Prefix;
use crate::identity::token::Tokens;
use crate::local::cache::{Answers, LocalCache};
use crate::local::singleflight::Flights;
use crate::outcome::codec::{AnswerFormat, Format};
use crate::policy::{
    EffectivePolicy, LONG, OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic,
    OnRunning, OnUnconfirmed, Policy, policy_setters, settings,
};
use crate::record::HEADER;
use crate::store::Store;
use crate::store::memory::MemoryStore;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Builder of an [`Engine`].
#[derive(Debug)]
#[must_use]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    prefix: String,
    policy: Policy,
    limits: EngineLimits,
    format: Format,
    tokens: Tokens,
    digests: DigestKey,
    former_digests: Option<DigestKey>,
    local_cache: Option<LocalCache>,
    max_running: Option<usize>,
    protection: Protection,
    instance: Option<String>,
    records_attempts: bool,
}

impl Engine {
    /// An engine with the defaults.
    ///
    /// # Panics
    ///
    /// Never: the defaults are within their bounds.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::builder(store)
            .build()
            .expect("the defaults are within their bounds")
    }

    /// Creates the builder of an engine on this store.
    pub fn builder(store: impl Store) -> EngineBuilder {
        EngineBuilder::new(Arc::new(store))
    }
}

/// Warning of a layered store without encryption.
const FORGED: &str = "answers are replayed from the fast store of a `LayeredStore` and are not encrypted: who can write \
                      to it can give any answer; set `EngineBuilder::encrypt`, or guard it as the database is guarded";

/// Names this instance in recorded attempts.
fn recorder(store: &dyn Store, instance: Option<String>, records: bool) -> Option<Recorder> {
    let records = records && store.keeps_journals();
    records.then(|| Recorder::new(instance.unwrap_or_else(host_name)))
}

/// The name of this machine; empty if it is not known.
fn host_name() -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let file = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = (variable("HOSTNAME").or_else(|| variable("COMPUTERNAME"))).or_else(file);
    name.unwrap_or_default().trim().to_owned()
}

impl EngineBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock),
            observer: Arc::new(StderrObserver),
            prefix: "idem".to_owned(),
            policy: Policy::new(),
            limits: EngineLimits {
                claim_deadline: Duration::from_secs(2),
                complete_deadline: Duration::from_secs(2),
            },
            format: Format::default(),
            tokens: Tokens::default(),
            digests: DigestKey::default(),
            former_digests: None,
            local_cache: None,
            max_running: None,
            protection: Protection::On,
            instance: None,
            records_attempts: true,
        }
    }

    /// Separates the records of this application from others in a shared store; default `idem`. 1 to 64 letters, digits
    /// and `.:_-`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    settings!(policy_setters! { |it| it.policy; });

    /// The name of this instance in the [attempts](crate::admin::Attempt) that records remember; default the name of
    /// the machine.
    ///
    /// Operators read it: in a container it is best the name of the pod. At most 64 bytes are kept. Never a secret: it
    /// stands in the store in plain text, `encrypt` or not.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Whether records remember how earlier attempts ended; default `true`.
    ///
    /// [`Entry::recorded_attempts`](crate::admin::Entry::recorded_attempts) and the `idem why` command show them: which
    /// instance and process ran each, when, and whether it failed, was cancelled, panicked, or its lease lapsed. A call
    /// that succeeds at its first attempt writes nothing for it, and no call makes a further round trip: a release or an
    /// unknown outcome brings about 70 bytes, a take-over adds 48, and an answer after them keeps at most 16 of them
    /// behind itself. The owner of each claim names instance and process in 6 of its 16 bytes.
    ///
    /// Stores that keep no [journals](crate::store::Store::keeps_journals) remember nothing, and neither do calls in
    /// transactions.
    pub fn record_attempts(mut self, records: bool) -> Self {
        self.records_attempts = records;
        self
    }

    /// The limit of concurrently running bodies of this engine; default none, at least 1.
    ///
    /// For bodies that outlive their callers (`on_cancel = finish`,
    /// [`CallBuilder::finish`](crate::CallBuilder::finish), the HTTP layer): a limit around the caller counts callers,
    /// and a client that hangs up frees its place there while its body continues. Here the body is counted, with or
    /// without its caller, from before its claim until its answer is stored, released or left to the background. Bodies
    /// without protection ([`OnOutage::Run`]) and reconcile hooks count, and so does a [`Claim`](crate::claim::Claim)
    /// until it is settled or dropped.
    ///
    /// At the limit a call that would run its body gets [`ErrorKind::TooManyRunning`](crate::ErrorKind::TooManyRunning)
    /// with [`retry_after`](crate::Error::retry_after), and nothing is claimed or run. A call whose answer is stored
    /// still gets it, in the one round trip of a replay; a duplicate of a running call waits as always, without a
    /// place.
    ///
    /// A call that a body of this engine makes in its own task counts, and is never refused, because a refusal would
    /// fail the outer body. So the number of bodies may exceed the limit by those of inner calls. Not counted are calls
    /// in the caller's transaction, whose bodies end with their callers.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error, ErrorKind, claim::Acquired, store::memory::MemoryStore};
    ///
    /// let engine = Engine::builder(MemoryStore::new()).max_running(1).build()?;
    /// let pay = |order: u32| engine.operation("payments.pay").key(&order);
    /// let Acquired::Run(running) = pay(1).begin().await? else { unreachable!("it is the first") };
    ///
    /// let refused: Result<u32, Error> = pay(2).run(|_| async { Ok(2) }).await;
    /// assert_eq!(*refused.unwrap_err().kind(), ErrorKind::TooManyRunning);
    ///
    /// running.release().await;
    /// let paid: Result<u32, Error> = pay(2).run(|_| async { Ok(2) }).await;
    /// assert_eq!(paid?, 2);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn max_running(mut self, max_running: usize) -> Self {
        self.max_running = Some(max_running);
        self
    }

    /// How long a claim is tried while the store does not answer; default 2 s.
    ///
    /// Then the call fails with [`ErrorKind::StoreUnavailable`] and the body does not run.
    ///
    /// A store with a queue in front of its connections refuses a claim that could not be sent in this time
    /// immediately, with [`Error::retry_after`](crate::Error::retry_after). A claim that waited there and was sent has
    /// this time again for its reply.
    ///
    /// Once a claim has received nothing but errors for all of this time (a server that refuses connections, for
    /// example), the following claims retry for an eighth of it, and 250 ms at least: each makes an attempt of its own,
    /// so that the first one after the store is back succeeds. With [`OnOutage::Run`] a call runs unprotected after
    /// that shorter time. This ends with a reply to any claim, or when no claim was made for eight times this time. A
    /// store that is silent costs every claim all of it.
    pub fn claim_deadline(mut self, deadline: Duration) -> Self {
        self.limits.claim_deadline = deadline;
        self
    }

    /// How long a caller waits for the storing of its answer; default 2 s.
    ///
    /// It applies while the store does not answer. Then the caller gets the reply of
    /// [`on_unconfirmed`](Self::on_unconfirmed), and storing continues in the background, for as long as the answer
    /// would be kept.
    pub fn complete_deadline(mut self, deadline: Duration) -> Self {
        self.limits.complete_deadline = deadline;
        self
    }

    /// The longest answer, in bytes; default 256 KiB.
    ///
    /// It applies to the serialized answer, before it is compressed, and to the stored one: other formats than JSON add
    /// 1 byte, encryption 45. A longer answer goes to its caller and leaves a tombstone, so that duplicates get
    /// [`ErrorKind::NotStored`]. At most 512 MiB, and no more than the store reads back (for Redis `max_record_bytes`,
    /// 8 MiB). Responses of an HTTP layer have a limit of their own, `IdempotencyLayer::max_response_bytes`.
    pub fn max_value_bytes(mut self, max_value_bytes: usize) -> Self {
        self.format.max_value_bytes = max_value_bytes;
        self
    }

    /// The serialization of answers; default [`AnswerFormat::Json`].
    ///
    /// Answers in another format are still read. Turn another format on once every process has a build with its
    /// feature: one without refuses such an answer as [`ErrorKind::Undecodable`], and runs nothing.
    pub fn answer_format(mut self, format: AnswerFormat) -> Self {
        self.format.write = format;
        self
    }

    /// Compresses answers longer than this, where that makes them smaller; default never.
    ///
    /// The limit is in bytes of the serialized answer. Compression begins to pay at a few hundred bytes.
    ///
    /// Compressed answers are read whatever is set here, if they decompress to no more than 8 MiB or `max_value_bytes`,
    /// whichever is more. Turn it on once every process has a build with the feature `zstd`: one without refuses such
    /// an answer as [`ErrorKind::Undecodable`], and runs nothing.
    ///
    /// The length of a compressed answer reveals something about its content, even where it is encrypted as well. Leave
    /// it off where an attacker chooses a part of an answer that also holds a secret, and can observe the length of
    /// records.
    #[cfg(feature = "zstd")]
    pub fn compress_above(mut self, bytes: usize) -> Self {
        self.format.compression.above = Some(bytes);
        self
    }

    /// Encrypts stored answers with XChaCha20-Poly1305; default not.
    ///
    /// It covers values and kept errors. See [`EncryptionKeys`](crate::codec::EncryptionKeys) for changing keys.
    ///
    /// A reader of the store, or of a copy of it, then learns of an answer its length, its type's digest, whether it is
    /// a value or an error, and its layout; and of the request its [fingerprint](Self::digest_key).
    ///
    /// An answer is bound to its key and to its record's metadata: the engine's prefix, the digest of the key (which
    /// covers operation, scope and key), the fingerprint, the type, and whether it is a value or an error. An answer
    /// that was changed, copied to another key or prefix, or given another fingerprint, is refused as
    /// [`ErrorKind::Undecodable`], and nothing runs.
    ///
    /// Encryption does not prevent a *writer* of the store from actions without a new answer: delete a record, so that
    /// the body runs again; change a counter, a lease or a life; restore an older answer of the same call and request;
    /// end a record as unknown. The answers of a call that compares no fingerprint are answers to every request, with
    /// any fingerprint in the record.
    ///
    /// An answer that is not encrypted is refused as [`ErrorKind::Undecodable`], and nothing runs: a writer of the
    /// store could have planted it. A store that holds plaintext answers already needs
    /// [`accept_plaintext`](Self::accept_plaintext) for a while.
    #[cfg(feature = "encryption")]
    pub fn encrypt(mut self, keys: crate::codec::EncryptionKeys) -> Self {
        self.format.encryption.keys = Some(Arc::new(keys));
        self
    }

    /// Reads plaintext answers beside encrypted ones, while encryption is introduced; default refused.
    ///
    /// **For a limited time**: meanwhile a writer of the store can plant a plaintext answer under any key, and it is
    /// replayed. To introduce encryption without a refused answer, deploy everywhere
    ///
    /// 1. a build with the feature `encryption`, without keys;
    /// 2. `.encrypt(keys).accept_plaintext()`: every process encrypts its answers, and reads both forms;
    /// 3. `.encrypt(keys)` alone, once the longest `ttl` has passed since the end of step 2. Put that date into the
    ///    code beside the call.
    ///
    /// `build` fails without [`encrypt`](Self::encrypt).
    #[cfg(feature = "encryption")]
    pub fn accept_plaintext(mut self) -> Self {
        self.format.encryption.accepts_plaintext = true;
        self
    }

    /// Hashes keys and requests with a secret; default without a secret.
    ///
    /// Without a secret the name of a record is a SHA-256 of operation, scope and key, and its fingerprint one of the
    /// request. A reader of the store, of a backup or of a log tries millions of guesses a second against each: a card
    /// number, a date of birth or a short id is found. With a secret both are HMAC-SHA-256 (RFC 2104), and a guess
    /// cannot be tried without it. Every process that shares records needs the same secret.
    ///
    /// Keys that bodies [derive](crate::Context::derive_key) do not depend on the secret: they stay the same when it
    /// changes, and **a reader of one of them can confirm a guess of the key**. Operation names, counters and times are
    /// not hashed.
    ///
    /// A record has the name that its secret gives it: processes of different secrets (or of one and of none) that run
    /// at once run a body each. [`former_digest_key`](Self::former_digest_key) describes how to change or introduce the
    /// secret. The secret is 32 random bytes from your secret store, the same in every process; not the key of
    /// [`encrypt`](Self::encrypt), nor the secret of tokens.
    ///
    /// ```
    /// use idem_runtime::{Engine, store::memory::MemoryStore};
    ///
    /// let secret = [7; 32]; // from your secret store
    /// let engine = Engine::builder(MemoryStore::new()).digest_key(secret).build()?;
    /// # Ok::<_, idem_runtime::Error>(())
    /// ```
    #[cfg(feature = "digest-key")]
    pub fn digest_key(mut self, secret: [u8; 32]) -> Self {
        self.digests = DigestKey::new(secret);
        self
    }

    /// The digest key of records that were written before its change; default none.
    ///
    /// A call reads the record under its former name first. An existing record is replayed, waited for, or taken over
    /// under that name; otherwise the call continues under the name of the present [digest key](Self::digest_key). No
    /// call begins a record under the former name.
    ///
    /// To introduce ([`formerly_without_digest_key`](Self::formerly_without_digest_key)), change or give up (no
    /// `digest_key`) the secret:
    ///
    /// 1. **Stop every process that shares the records**, and wait until the server shows none of their connections: a
    ///    proxy may finish a client's command after the client has ended. A process without the new secret begins
    ///    records that the others do not look up, and **two bodies run for one key**. There is no rolling change.
    /// 2. Start them with `.digest_key(new).former_digest_key(old)`. To go back, stop them again and swap the two
    ///    secrets.
    /// 3. Leave the former key out, process by process, once the longest life of a record has passed since step 2,
    ///    since the last [`FormerDigestKey`](EventKind::FormerDigestKey), and since a record from before was last
    ///    resolved or reset. A life is the longest of `ttl`, `error_ttl` and the life of tokens, and counts from the
    ///    answer: add `max_run`. With `ttl = forever` it does not end. The secret is changed again after this step, not
    ///    before.
    ///
    /// Meanwhile a call that queries the store takes one round trip more; a call under a limit or a quota takes two.
    /// Answers under the former name are not kept in the [local cache](Self::local_cache). A call in a
    /// [transaction](crate::CallBuilder::in_tx) reads the former record by a connection of the store's. It replays an
    /// answer, and is refused as [`ErrorKind::Running`] where the record is unfinished: a call outside of a transaction
    /// takes it over, or [`Entry::resolve`](crate::admin::Entry::resolve) resolves it; a reset leaves it unfinished.
    /// [`Engine::entry`] finds a record by the digest that was logged,
    /// [`CallBuilder::entry`](crate::CallBuilder::entry) under both names.
    ///
    /// A store that loses a record while its body runs (a failover, an eviction) lets a second body begin, as always;
    /// here the two complete under two names, and later calls get the answer of the former one.
    ///
    /// ```
    /// use idem_runtime::{Engine, store::memory::MemoryStore};
    ///
    /// let (new, old) = ([8; 32], [7; 32]); // from your secret store
    /// let engine = Engine::builder(MemoryStore::new())
    ///     .digest_key(new)
    ///     .former_digest_key(old)
    ///     .build()?;
    /// # Ok::<_, idem_runtime::Error>(())
    /// ```
    #[cfg(feature = "digest-key")]
    pub fn former_digest_key(mut self, secret: [u8; 32]) -> Self {
        self.former_digests = Some(DigestKey::new(secret));
        self
    }

    /// As [`former_digest_key`](Self::former_digest_key), for records written without a key.
    ///
    /// It introduces a [digest key](Self::digest_key).
    #[cfg(feature = "digest-key")]
    pub fn formerly_without_digest_key(mut self) -> Self {
        self.former_digests = Some(DigestKey::Plain);
        self
    }

    /// The issuer that signs and verifies one-time tokens; default none.
    #[cfg(feature = "tokens")]
    pub fn tokens(mut self, issuer: crate::token::TokenIssuer) -> Self {
        self.tokens = Tokens::new(issuer);
        self
    }

    /// Replays this engine's known answers without a request to the store; default never.
    ///
    /// [`LocalCache`] describes the effect on an answer that an operator revokes.
    pub fn local_cache(mut self, cache: LocalCache) -> Self {
        self.local_cache = Some(cache);
        self
    }

    /// The observer that receives the engine's events; default [`StderrObserver`]. Several observers are a tuple or a
    /// `Vec<Arc<dyn Observer>>`. [Metrics and traces](crate::guide::observing) are observers of this crate.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Arc::new(Contained(observer));
        self
    }

    /// No protection, for tests of business code: as [`Engine::disabled`], with this builder's observer and settings.
    ///
    /// Every call runs its body and the store is not used. In a release build the engine refuses every call with
    /// [`ErrorKind::NoEngine`](crate::ErrorKind::NoEngine).
    pub fn disabled(self) -> Self {
        self.disabled_in(cfg!(debug_assertions))
    }

    pub(super) fn disabled_in(self, debug_build: bool) -> Self {
        self.protection(if debug_build {
            Protection::Off
        } else {
            Protection::Refused
        })
    }

    fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        // The tokens that it issues are valid in this engine only.
        self.tokens = Tokens::random();
        self
    }

    /// The source of time; default the machine's. A test that sets a [`ManualClock`](crate::clock) gives the same one
    /// to its [memory store](crate::store::memory::MemoryStoreBuilder::clock), by which records end: see
    /// [testing](crate::guide::testing).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the engine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidPolicy`], naming the setting that is out of its bounds.
    pub fn build(self) -> Result<Engine, Error> {
        let refuse = |what: String| Error::new(ErrorKind::InvalidPolicy, "engine").detail(what);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:_-".contains(&byte);
        if !(1..=64).contains(&self.prefix.len()) || !self.prefix.bytes().all(plain) {
            return Err(refuse(
                "`prefix` must be 1 to 64 letters, digits and `.:_-`".to_owned(),
            ));
        }
        let mut format = self.format;
        format.check().map_err(refuse)?;
        format.encryption = format.encryption.under(&self.prefix);
        self.tokens.check().map_err(refuse)?;
        // An answer that the store would not read back is not written: duplicates learn that it is not stored.
        if let Some(most) = self.store.max_record_bytes() {
            format.max_stored_bytes = most.saturating_sub(HEADER);
            format.max_value_bytes = format.max_value_bytes.min(format.max_stored_bytes);
        }
        let mut limits = self.limits;
        limits.claim_deadline = limits.claim_deadline.min(LONG);
        limits.complete_deadline = limits.complete_deadline.min(LONG);
        let defaults = EffectivePolicy::of_engine(self.policy).map_err(refuse)?;
        defaults
            .kept_by(self.store.keeps_forever())
            .map_err(refuse)?;
        if let Some(cache) = &self.local_cache {
            cache.check().map_err(refuse)?;
        }
        if let Some(former) = &self.former_digests
            && former.is(&self.digests)
        {
            return Err(refuse(
                "the former digest key is the present one; give the secret of the records from before the change".to_owned(),
            ));
        }
        if self.max_running == Some(0) {
            return Err(refuse(
                "`max_running` is 0, and no body could run; it must be at least 1".to_owned(),
            ));
        }
        let flights = Flights::new();
        let answers = (self.local_cache.as_ref())
            .map(|cache| Answers::new(cache, Arc::clone(&self.observer), Arc::clone(&flights)));
        let outage = Arc::new(Outage::default());
        // A store that was connected a moment ago is available.
        outage.record_reply(self.clock.now());
        let background = BackgroundThread::new(
            Arc::clone(&self.store),
            Arc::clone(&self.clock),
            Arc::clone(&self.observer),
            Arc::clone(&outage),
        );
        let core = Core {
            recorder: recorder(&*self.store, self.instance, self.records_attempts),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            store: self.store,
            clock: self.clock,
            wants: Wants::of(&*self.observer),
            observer: self.observer,
            background,
            prefixes: Lanes::of(|| Prefix::new(&self.prefix)),
            prefix: self.prefix.into(),
            defaults,
            limits,
            outage,
            formats: Lanes::of(|| format.apart()),
            format,
            tokens: self.tokens,
            digests: self.digests,
            former_digests: self.former_digests,
            flights,
            #[cfg(feature = "_sql")]
            claimed_keys: crate::call::claimed_keys::ClaimedKeys::default(),
            answers,
            closing: AtomicBool::new(false),
            entering: Tally::default(),
            unleased: AtomicUsize::new(0),
            running: self.max_running.map(RunLimit::new),
            protection: self.protection,
        };
        let disabled = match core.protection {
            Protection::On => None,
            Protection::Off => Some(
                "DISABLED (`Engine::disabled` in a debug build): every call runs its body, nothing is stored and \
                 nothing is replayed",
            ),
            Protection::Refused => Some(
                "`Engine::disabled` refuses every call in a release build: build an engine with a store",
            ),
        };
        let disabled = disabled.map(ToOwned::to_owned).into_iter();
        let forged =
            (core.store.trusts_copies() && !core.format.encrypts()).then(|| FORGED.to_owned());
        core.store.observed_by(&core.background.observer());
        for message in disabled.chain(core.store.warnings()).chain(forged) {
            core.observer
                .observe(&Event::of_engine(EventKind::Warning { message: &message }));
        }
        Ok(Engine {
            core: Arc::new(core),
        })
    }
}

impl Engine {
    /// An engine without protection, for tests of business code.
    ///
    /// Every call runs its body; nothing is stored, and nothing is replayed. The observer is notified when the engine
    /// is built, and of every call ([`Unprotected`](crate::observe::EventKind::Unprotected)).
    ///
    /// [`EngineBuilder::disabled`](crate::EngineBuilder::disabled) takes an observer of your own.
    ///
    /// In a release build this engine refuses every call with [`ErrorKind::NoEngine`](crate::ErrorKind::NoEngine),
    /// so that it cannot reach production. No environment variable disables an engine.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error};
    ///
    /// let engine = Engine::disabled();
    /// let run = |n| engine.operation("pay").key(&7).run(move |_| async move { Ok::<_, Error>(n) });
    /// # if cfg!(debug_assertions) {
    /// assert_eq!((run(1).await?, run(2).await?), (1, 2));
    /// # }
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Never: the defaults are within their bounds.
    #[must_use]
    pub fn disabled() -> Self {
        Self::disabled_in(cfg!(debug_assertions))
    }

    fn disabled_in(debug_build: bool) -> Self {
        Self::builder(MemoryStore::new())
            .disabled_in(debug_build)
            .build()
            .expect("the defaults are within their bounds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};

    async fn answer(engine: &Engine) -> Result<u8, Error> {
        let call = engine.operation("pay").key(&7);
        call.run(|_| async { Ok::<_, Error>(1) }).await
    }

    #[tokio::test]
    async fn a_release_build_refuses_every_call() {
        assert_eq!(answer(&Engine::disabled_in(true)).await.unwrap(), 1);
        let refused = answer(&Engine::disabled_in(false)).await.unwrap_err();
        assert_eq!(refused.kind(), &ErrorKind::NoEngine);
        assert!(refused.to_string().contains("release build"), "{refused}");
    }
}
