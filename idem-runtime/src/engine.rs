//! Store, defaults and observer in one handle.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU16;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use crate::backoff::Backoff;
use crate::call::CallBuilder;
use crate::claim::{Claim, Orphan, Stored, granted, unavailable};
use crate::clock::{Clock, SystemClock, deadline};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::keeper::Keeper;
use crate::key::KeyDigest;
use crate::observer::{Contained, Event, EventKind, Observer, StderrObserver};
use crate::on_error::Classified;
use crate::operation::{Operation, RecordKey};
use crate::policy::{LONG, OnDuplicate, OnRunning, Policy};
use crate::record::{OutcomeKind, Owner, Record, State};
use crate::store::Store;
use crate::transition::{ClaimReply, ClaimRequest};

tokio::task_local! {
    static SCOPED: Engine;
}

static INSTALLED: RwLock<Option<Engine>> = RwLock::new(None);

/// Store, defaults and observer. Cheap to clone; clones are the same engine.
///
/// A call finds its engine in this order: `engine = …` of the attribute, the engine that its task
/// runs in the [`scope`](Self::scope) of, the [`install`](Self::install)ed one.
///
/// ```
/// use idem_runtime::{Engine, store::memory::MemoryStore};
///
/// let engine = Engine::new(MemoryStore::new());
/// engine.install()?;
/// # Ok::<_, idem_runtime::AlreadyInstalled>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

/// What an engine consists of.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) keeper: Keeper,
    pub(crate) prefix: Arc<str>,
    pub(crate) defaults: Policy,
    pub(crate) limits: Limits,
}

/// Bounds of the whole engine.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) claim_deadline: Duration,
    pub(crate) complete_deadline: Duration,
    pub(crate) max_value_bytes: usize,
}

/// Gives an engine away: what `engine = …` takes.
///
/// Implement it for your application's state, and write `engine = self` or `engine = state`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no idempotency engine",
    label = "no engine here",
    note = "give an `idem_runtime::Engine`, or implement `idem_runtime::HasEngine` for `{Self}`"
)]
pub trait HasEngine {
    /// The engine; a clone, which is cheap.
    fn engine(&self) -> Engine;
}

impl HasEngine for Engine {
    fn engine(&self) -> Engine {
        self.clone()
    }
}

#[diagnostic::do_not_recommend]
impl<H: HasEngine + ?Sized> HasEngine for &H {
    fn engine(&self) -> Engine {
        (**self).engine()
    }
}

#[diagnostic::do_not_recommend]
impl<H: HasEngine + ?Sized> HasEngine for &mut H {
    fn engine(&self) -> Engine {
        (**self).engine()
    }
}

#[diagnostic::do_not_recommend]
impl<H: HasEngine + ?Sized> HasEngine for Arc<H> {
    fn engine(&self) -> Engine {
        (**self).engine()
    }
}

#[diagnostic::do_not_recommend]
impl<H: HasEngine + ?Sized> HasEngine for Box<H> {
    fn engine(&self) -> Engine {
        (**self).engine()
    }
}

/// An engine is installed already. Two stores in one process would each let the body run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyInstalled;

impl fmt::Display for AlreadyInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an engine is installed already; install one at start-up, and use `Engine::scope` in tests",
        )
    }
}

impl std::error::Error for AlreadyInstalled {}

/// Sets up an [`Engine`].
#[derive(Debug)]
#[must_use]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    prefix: String,
    defaults: Policy,
    limits: Limits,
}

impl EngineBuilder {
    /// Separates the records of this application from others in a shared store; default `idem`.
    /// 1 to 64 letters, digits and `.:_-`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The life of a stored answer; default 24 h, 1 s to 10 years.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.defaults.ttl = ttl;
        self
    }

    /// The life of a kept business error; default that of a value.
    pub fn error_ttl(mut self, ttl: Duration) -> Self {
        self.defaults.error_ttl = Some(ttl);
        self
    }

    /// How long a claim lasts unless renewed; default 30 s, 100 ms to 24 h. It is renewed every third
    /// of this, so it is the time after which a crash is noticed, not a bound on the body.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.defaults.lease = lease;
        self
    }

    /// What a duplicate of a finished call gets; default [`OnDuplicate::Replay`].
    pub fn on_duplicate(mut self, on_duplicate: OnDuplicate) -> Self {
        self.defaults.on_duplicate = on_duplicate;
        self
    }

    /// What a duplicate does while the first call runs; default [`OnRunning::Wait`] for 5 s, or
    /// [`OnRunning::Reject`] where duplicates are refused anyway.
    pub fn on_running(mut self, on_running: OnRunning) -> Self {
        self.defaults.on_running = Some(on_running);
        self
    }

    /// How many attempts may be abandoned (crashed, panicked, dropped) before the key answers
    /// [`ErrorKind::Exhausted`]; default 5, `None` for no limit. 1: a body starts at most once.
    pub fn max_attempts(mut self, max_attempts: Option<NonZeroU16>) -> Self {
        self.defaults.max_attempts = max_attempts;
        self
    }

    /// How long a body's lease is renewed; default 15 min. A body that hangs for longer loses it.
    pub fn max_run(mut self, max_run: Duration) -> Self {
        self.defaults.max_run = max_run;
        self
    }

    /// How long a claim is tried while the store does not answer; default 2 s. Then the call fails
    /// with [`ErrorKind::StoreUnavailable`] and the body does not run.
    pub fn claim_deadline(mut self, deadline: Duration) -> Self {
        self.limits.claim_deadline = deadline;
        self
    }

    /// How long a caller waits for its answer to be stored while the store does not answer; default
    /// 2 s. Then it gets its answer, and storing goes on in the background.
    pub fn complete_deadline(mut self, deadline: Duration) -> Self {
        self.limits.complete_deadline = deadline;
        self
    }

    /// The longest answer that is stored, in bytes; default 256 KiB. A longer one goes to its caller
    /// and leaves a tombstone, so that duplicates get [`ErrorKind::NotStored`].
    pub fn max_value_bytes(mut self, max_value_bytes: usize) -> Self {
        self.limits.max_value_bytes = max_value_bytes;
        self
    }

    /// Who is told what happens; default [`StderrObserver`].
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Arc::new(Contained(observer));
        self
    }

    /// The sense of time; default the machine's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The engine.
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
        if self.limits.max_value_bytes > 512 << 20 {
            return Err(refuse(
                "`max_value_bytes` must be at most 512 MiB".to_owned(),
            ));
        }
        let mut limits = self.limits;
        limits.claim_deadline = limits.claim_deadline.min(LONG);
        limits.complete_deadline = limits.complete_deadline.min(LONG);
        let defaults = self.defaults.checked().map_err(refuse)?;
        let keeper = Keeper::new(
            Arc::clone(&self.store),
            Arc::clone(&self.clock),
            Arc::clone(&self.observer),
        );
        let core = Core {
            store: self.store,
            clock: self.clock,
            observer: self.observer,
            keeper,
            prefix: self.prefix.into(),
            defaults,
            limits,
        };
        for message in core.store.warnings() {
            core.observer.observe(&Event {
                operation: "",
                key: None,
                kind: EventKind::Warning { message: &message },
            });
        }
        Ok(Engine {
            core: Arc::new(core),
        })
    }
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

    /// Sets up an engine on this store.
    pub fn builder(store: impl Store) -> EngineBuilder {
        EngineBuilder {
            store: Arc::new(store),
            clock: Arc::new(SystemClock),
            observer: Arc::new(StderrObserver),
            prefix: "idem".to_owned(),
            defaults: Policy::default(),
            limits: Limits {
                claim_deadline: Duration::from_secs(2),
                complete_deadline: Duration::from_secs(2),
                max_value_bytes: 256 << 10,
            },
        }
    }

    /// Makes this the engine of every call in this process that has no other. Once, at start-up.
    ///
    /// # Errors
    ///
    /// [`AlreadyInstalled`]; the installed engine stays.
    pub fn install(&self) -> Result<(), AlreadyInstalled> {
        let mut installed = INSTALLED
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if installed.is_some() {
            return Err(AlreadyInstalled);
        }
        *installed = Some(self.clone());
        Ok(())
    }

    /// Begins a call of this operation: what `#[idempotent]` expands to, for everybody.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error, store::memory::MemoryStore};
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// let pay = || engine.operation("payments.pay").key(&("shop-1", 7)).fingerprint(&1_250);
    /// let first = pay().run(|cx| async move { Ok::<_, Error>(cx.attempt()) }).await?;
    /// let again = pay().run(|_| async { unreachable!("the answer is replayed") }).await;
    /// assert_eq!(Ok::<_, Error>(first), again);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn operation(&self, name: impl Into<Cow<'static, str>>) -> CallBuilder<Classified> {
        CallBuilder::new(self.clone(), Operation::new(name))
    }

    /// Runs a future with this as the engine of its calls: for tests, and for parts of an
    /// application with a store of their own. Tasks that the future spawns are outside.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SCOPED.scope(self.clone(), future).await
    }

    /// The engine that a call without `engine = …` uses: the scoped, else the installed one.
    #[must_use]
    pub fn current() -> Option<Self> {
        SCOPED.try_with(Clone::clone).ok().or_else(|| {
            let installed = INSTALLED.read();
            installed
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone()
        })
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("store", &self.core.store)
            .field("prefix", &self.core.prefix)
            .field("defaults", &self.core.defaults)
            .finish_non_exhaustive()
    }
}

/// One call, ready to ask for its claim.
pub(crate) struct Ask {
    pub(crate) operation: Operation,
    pub(crate) digest: KeyDigest,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) policy: Policy,
}

/// What asking led to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Begun {
    /// The body is yours to run.
    Claimed(Claim),
    /// It was done before; this is the answer.
    Done(Stored),
}

impl Core {
    pub(crate) fn tell(&self, key: &RecordKey, kind: EventKind<'_>) {
        self.observer.observe(&Event {
            operation: key.operation().as_str(),
            key: Some(key.digest()),
            kind,
        });
    }

    /// Claims the key, waits for its answer, or says why neither is to be had.
    pub(crate) async fn begin(self: &Arc<Self>, ask: Ask) -> Result<Begun, Error> {
        let key = RecordKey::new(Arc::clone(&self.prefix), ask.operation, ask.digest);
        let begun = self.claim(&key, ask.fingerprint, ask.policy).await;
        if let Err(error) = &begun {
            self.tell(&key, EventKind::Refused { error });
        }
        begun
    }

    async fn claim(
        self: &Arc<Self>,
        key: &RecordKey,
        fingerprint: Fingerprint,
        policy: Policy,
    ) -> Result<Begun, Error> {
        let operation = key.operation();
        let refuse = |kind| Err(Error::new(kind, operation.clone()));
        if let Err(error) = self.keeper.start() {
            let detail = format!("the thread that renews leases cannot be started: {error}");
            return Err(Error::new(ErrorKind::StoreUnavailable, operation.clone()).detail(detail));
        }
        let clock = &*self.clock;
        let request = ClaimRequest {
            owner: Owner::random(),
            fingerprint,
            lease: policy.lease,
            retain: policy.retain(),
            max_attempts: policy.max_attempts,
        };
        let mut backoff = Backoff::new(&request.owner);
        let mut orphan = Orphan::new(self, key, request.owner);
        let started = clock.now();
        let patience = started + policy.wait();
        let mut silent_until = started + self.limits.claim_deadline;
        let (mut waited, mut failure, mut late) = (false, None, false);
        loop {
            let sent = clock.now();
            if sent >= silent_until
                && let Some(error) = failure
            {
                return Err(unavailable(operation, error));
            }
            orphan.arm();
            let reply = deadline(clock, silent_until, self.store.claim(key, &request)).await;
            let reply = match reply {
                Ok(Ok(reply)) => {
                    orphan.disarm();
                    reply
                }
                Ok(Err(error)) => {
                    let now = clock.now();
                    if !error.is_transient() || now >= silent_until {
                        return Err(unavailable(operation, error));
                    }
                    let pause = backoff.retry().min(silent_until.saturating_sub(now));
                    clock.sleep_until(now + pause).await;
                    failure = Some(error);
                    continue;
                }
                Err(_) => {
                    // What the store said before it fell silent says more than the silence.
                    return Err(failure.map_or_else(
                        || self.silent(operation),
                        |error| unavailable(operation, error),
                    ));
                }
            };
            return match reply {
                // Nobody knows whose the claim is by now. Asking again tells, and renews it.
                ClaimReply::Granted { .. } if clock.now() >= sent + policy.lease => {
                    orphan.arm();
                    if late && clock.now() >= silent_until {
                        return Err(slow(operation));
                    }
                    if !late {
                        late = true;
                        silent_until = clock.now() + self.limits.claim_deadline;
                    }
                    continue;
                }
                ClaimReply::Granted { fence, attempt } => {
                    let header = granted(request.owner, fence, attempt, &policy, fingerprint);
                    let claim = Claim::new(self, key.clone(), header, policy, sent);
                    Ok(Begun::Claimed(claim))
                }
                ClaimReply::Running { lease_left } => {
                    let now = clock.now();
                    if now >= patience {
                        let retry_after = lease_left;
                        refuse(ErrorKind::Running { retry_after })
                    } else {
                        waited = true;
                        let pause = backoff
                            .poll()
                            .min(lease_left)
                            .min(patience.saturating_sub(now));
                        clock.sleep_until(now + pause).await;
                        silent_until = clock.now() + self.limits.claim_deadline;
                        failure = None;
                        continue;
                    }
                }
                ClaimReply::Done { record, left } => {
                    self.answer(key, record, left, policy.on_duplicate, waited)
                }
                ClaimReply::Mismatch => refuse(ErrorKind::Mismatch),
                ClaimReply::Exhausted { attempts } => {
                    let attempts = attempts.into();
                    refuse(ErrorKind::Exhausted { attempts })
                }
                ClaimReply::Unreadable(error) => {
                    Err(Error::new(ErrorKind::UnknownRecord, operation.clone()).because(error))
                }
            };
        }
    }

    fn silent(&self, operation: &Operation) -> Error {
        Error::new(ErrorKind::StoreUnavailable, operation.clone()).detail(format!(
            "no reply to a claim within {:?}",
            self.limits.claim_deadline
        ))
    }

    /// What a finished record means for a duplicate.
    pub(crate) fn answer(
        &self,
        key: &RecordKey,
        record: Record,
        left: Duration,
        on_duplicate: OnDuplicate,
        waited: bool,
    ) -> Result<Begun, Error> {
        let operation = key.operation();
        let refuse = |kind| Err(Error::new(kind, operation.clone()));
        let State::Done { outcome, .. } = record.header.state else {
            return refuse(ErrorKind::UnknownRecord);
        };
        let age = record.header.age(left);
        match outcome {
            OutcomeKind::Unknown => refuse(ErrorKind::Unknown {
                since: (self.clock.calendar().checked_sub(age))
                    // A clock before 1970 is wrong, and such a time could not be serialized.
                    .map_or(SystemTime::UNIX_EPOCH, |since| {
                        since.max(SystemTime::UNIX_EPOCH)
                    }),
            }),
            _ if on_duplicate == OnDuplicate::Reject => {
                refuse(ErrorKind::Duplicate { retry_after: left })
            }
            OutcomeKind::Tombstone => refuse(ErrorKind::NotStored),
            OutcomeKind::Value | OutcomeKind::Error => {
                self.tell(
                    key,
                    EventKind::Replayed {
                        outcome,
                        age,
                        waited,
                    },
                );
                Ok(Begun::Done(Stored {
                    operation: operation.clone(),
                    record,
                    left,
                }))
            }
        }
    }
}

fn slow(operation: &Operation) -> Error {
    Error::new(ErrorKind::StoreUnavailable, operation.clone())
        .detail("the store takes longer to grant the claim than its lease lasts")
}
