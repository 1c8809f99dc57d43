//! The context of a running body.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::core::{Core, Protection};
use crate::call::lease::Lease;
use crate::call::reconcile::pending::PendingReconcile;
use crate::call::steps::Steps;
use crate::env::observer::{DerivedKey, EventKind};
use crate::error::{Error, ErrorKind};
use crate::identity::derived_key;
use crate::identity::digest_key::CallName;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, RecordKey};
use crate::local::singleflight::LocalLease as _;
use crate::policy::LONG;
use crate::record::{Fence, Header};

tokio::task_local! {
    static CONTEXT: Context;
}

/// The call that a body runs for. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<RunningCall>);

struct RunningCall {
    state: CallState,
    reconcile: Option<Box<PendingReconcile>>,
    /// The call in whose body this one was made.
    outer: Option<Context>,
}

/// The resources of a call while its body runs.
enum CallState {
    Lease(Steps),
    /// Boxed, as the due reconciliation is: nearly every call has a lease and nothing to reconcile, and each of them would carry
    /// the space.
    Bare(Box<Bare>),
}

/// How the steps of a call are kept.
pub(crate) enum StepsOf<'c> {
    /// In its record.
    Record(&'c Steps),
    /// Not at all: the transaction undoes them.
    Transaction,
    /// Not at all: the store could not be queried.
    Unprotected,
    /// Not at all: this engine is disabled.
    Disabled(
        #[cfg_attr(
            not(feature = "_sql"),
            allow(dead_code, reason = "a step in a transaction reads it")
        )]
        &'c Arc<Core>,
    ),
}

/// A call that runs without protection, or in a transaction.
struct Bare {
    core: Arc<Core>,
    name: CallName,
    /// The claim of a call that runs in a transaction.
    within: Option<Header>,
    /// When `max_run` is over.
    until: Instant,
    is_disabled: bool,
}

/// Returns the context of the running body.
///
/// # Panics
///
/// Outside of an idempotent body. A task that a body spawns is outside; pass the context on, or use
/// [`try_context`].
#[must_use]
pub fn context() -> Context {
    try_context().expect("`idem_runtime::context()` is asked inside an `#[idempotent]` body")
}

/// The context of the running body; `None` outside of one.
#[must_use]
pub fn try_context() -> Option<Context> {
    CONTEXT.try_with(Clone::clone).ok()
}

/// Whether a body of this task, or an outer one, is such.
fn runs(mut is_of: impl FnMut(&RunningCall) -> bool) -> bool {
    let runs = |context: &Context| {
        let mut next = Some(context);
        while let Some(Context(call)) = next {
            if is_of(call) {
                return true;
            }
            next = call.outer.as_ref();
        }
        false
    };
    CONTEXT.try_with(runs).unwrap_or(false)
}

/// Whether this task runs a body of this engine for this key: a call that waits for it waits for itself.
pub(crate) fn is_held(engine: u64, key: &RecordKey) -> bool {
    runs(|call| call.core().id == engine && call.key() == key)
}

/// Whether a body of this engine runs in this task.
pub(crate) fn runs_in(engine: u64) -> bool {
    runs(|call| call.core().id == engine)
}

/// Binds the enclosing call of this task to its request: an inner call acts for that request.
pub(crate) fn bind_outer() {
    // Outside of a body there is nothing to bind.
    let _ = CONTEXT.try_with(Context::bind);
}

/// Whether a body runs in this task.
pub(crate) fn is_inside() -> bool {
    CONTEXT.try_with(|_| ()).is_ok()
}

impl RunningCall {
    fn core(&self) -> &Arc<Core> {
        match &self.state {
            CallState::Lease(steps) => &steps.core,
            CallState::Bare(call) => &call.core,
        }
    }

    /// The digest from which derived keys follow.
    fn plain(&self) -> &KeyDigest {
        match &self.state {
            CallState::Lease(steps) => steps.lease.plain(),
            CallState::Bare(call) => call.name.plain(),
        }
    }

    fn key(&self) -> &RecordKey {
        match &self.state {
            CallState::Lease(steps) => &steps.lease.key,
            CallState::Bare(call) => &call.name.key,
        }
    }
}

impl Context {
    pub(crate) fn new(
        core: Arc<Core>,
        lease: Arc<Lease>,
        reconcile: Option<PendingReconcile>,
    ) -> Self {
        Self::of(CallState::Lease(Steps { core, lease }), reconcile)
    }

    /// The context of a call without a lease. `within` is the claim of a call in a transaction; without one the call
    /// runs without protection.
    pub(crate) fn unleased(
        core: &Arc<Core>,
        name: CallName,
        within: Option<Header>,
        max_run: Duration,
    ) -> Self {
        let call = Bare {
            core: Arc::clone(core),
            is_disabled: core.protection == Protection::Off,
            name,
            within,
            until: Instant::now() + max_run,
        };
        Self::of(CallState::Bare(Box::new(call)), None)
    }

    fn of(state: CallState, reconcile: Option<PendingReconcile>) -> Self {
        let outer = try_context();
        // This call acts for the request of the outer one.
        if let Some(outer) = &outer {
            outer.bind();
        }
        Self(Arc::new(RunningCall {
            state,
            reconcile: reconcile.map(Box::new),
            outer,
        }))
    }

    /// Binds the key to its request, also after a release.
    fn bind(&self) {
        if let Some(lease) = self.lease() {
            lease.bind();
        }
    }

    /// Runs `body`, or a part of it, in this context.
    pub(crate) fn enter<T>(&self, body: impl FnOnce() -> T) -> T {
        CONTEXT.sync_scope(self.clone(), body)
    }

    pub(crate) fn reconcile(&self) -> Option<&PendingReconcile> {
        self.0.reconcile.as_deref()
    }

    pub(crate) fn lease(&self) -> Option<&Arc<Lease>> {
        match &self.0.state {
            CallState::Lease(steps) => Some(&steps.lease),
            CallState::Bare(_) => None,
        }
    }

    /// How the steps of the call are kept.
    pub(crate) fn steps(&self) -> StepsOf<'_> {
        match &self.0.state {
            CallState::Lease(steps) => StepsOf::Record(steps),
            CallState::Bare(call) if call.within.is_some() => StepsOf::Transaction,
            CallState::Bare(call) if call.is_disabled => StepsOf::Disabled(&call.core),
            CallState::Bare(_) => StepsOf::Unprotected,
        }
    }

    /// The key of a step of this call for the other side. It follows from the plain digest, as all derived keys do.
    pub(crate) fn step_key(&self, name: &KeyDigest) -> KeyDigest {
        derived_key::of_step(self.0.plain(), name)
    }

    /// Emits that a key for another party was derived.
    pub(crate) fn sends(&self, label: &str, derived: &KeyDigest) {
        let plain = self.0.plain();
        let digest = || {
            let digests = self.0.core().digests_of(self.0.key(), plain);
            derived_key::shown(digests, plain, derived)
        };
        let derived = DerivedKey::new(label, &digest);
        self.emit(EventKind::KeyDerived { derived });
    }

    /// The refusal of a step whose name or input cannot be written. The body may discard it.
    pub(crate) fn refused_step(
        &self,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        let error = self
            .operation()
            .error(ErrorKind::InvalidStep)
            .because(cause);
        self.emit(EventKind::Refused { error: &error });
        error
    }

    pub(crate) fn emit(&self, kind: EventKind<'_>) {
        let label = self.lease().and_then(|lease| lease.policy.label.as_ref());
        self.0.core().emit_labelled(self.0.key(), label, kind);
    }

    pub(crate) fn is_same_call(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The operation of the call.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        self.0.key().operation()
    }

    /// The digest of operation, scope and key, which names the record.
    ///
    /// A reader of a log can try guesses against it, unless the engine has a
    /// [digest key](crate::EngineBuilder::digest_key).
    #[must_use]
    pub fn key(&self) -> &KeyDigest {
        self.0.key().digest()
    }

    fn claim(&self) -> Option<Header> {
        match &self.0.state {
            CallState::Lease(steps) => Some(steps.lease.claim()),
            CallState::Bare(call) => call.within,
        }
    }

    /// The number of this attempt, starting at 1. An attempt that released the key in good order is not counted. In a
    /// reconcile hook: the number of attempts that were started before and are not accounted for.
    /// 0 where the call runs [without protection](crate::OnOutage::Run).
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.claim().map_or(0, |claim| claim.attempts)
    }

    /// The fencing token, which grows with every claim of this key.
    ///
    /// A downstream system that remembers the highest one refuses a late write of an overtaken body. It does not stop a
    /// second effect; [`derive_key`](Self::derive_key) does.
    ///
    /// It grows for certain while the key has a record: for the `ttl` after an attempt that was abandoned or has
    /// answered, and for a lease, at least 10 seconds, after a failed one of which nothing remains. After that it is
    /// the store's time in microseconds, which is higher unless the store's clock was set back meanwhile.
    ///
    /// It is fetched only where it is needed: a store may grant a claim without a number, and fetch it here in one
    /// round trip. The stores of this version have it from the claim.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StoreUnavailable`](crate::ErrorKind::StoreUnavailable) if it cannot be fetched, and
    /// where the call runs [without protection](crate::OnOutage::Run).
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    #[allow(clippy::unused_async, reason = "a store may need a round trip for it")]
    pub async fn fence(&self) -> Result<Fence, Error> {
        match self.claim() {
            Some(claim) => Ok(claim.fence),
            None => Err(unprotected(self.operation())),
        }
    }

    /// Resolves once the claim is lost, or may be.
    ///
    /// That is when a renewal was refused, the lease ran out unrenewed by the local clock, or the body ran for longer
    /// than `max_run`. From then on another body may run for the same key; after `max_run` not before the rest of the
    /// lease is over. Never resolves before.
    ///
    /// ```
    /// # async fn step() {}
    /// # async fn body() -> Result<(), std::io::Error> {
    /// let cx = idem_runtime::context();
    /// tokio::select! {
    ///     () = step() => Ok(()),
    ///     () = cx.lease_lost() => Err(std::io::ErrorKind::Interrupted.into()),
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub fn lease_lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let lease = self.lease().cloned();
        async move {
            match lease {
                Some(lease) => lease.until_lost().await,
                // There is no lease to lose.
                None => std::future::pending().await,
            }
        }
    }

    /// How long no other attempt is granted the key, without a renewal.
    ///
    /// To be checked before a step that cannot be taken back. Zero when the lease is lost, and where there is none
    /// because the call runs [without protection](crate::OnOutage::Run). 10 years in a transaction (`tx = …`): no other
    /// attempt is granted the key before that is committed or rolled back. It catches most pauses of a process and
    /// guarantees nothing, since a pause may come right after, and since the lease ends by the server's clock, which
    /// may [step](crate::store#the-clock-of-the-server).
    #[must_use]
    pub fn lease_remaining(&self) -> Duration {
        match &self.0.state {
            CallState::Lease(steps) => steps.lease.remaining(),
            CallState::Bare(call) if call.within.is_none() => Duration::ZERO,
            CallState::Bare(_) => LONG,
        }
    }

    /// When `max_run` is over: the lease is then renewed no longer.
    ///
    /// ```
    /// # async fn send() {}
    /// # async fn body() {
    /// let cx = idem_runtime::context();
    /// let sent = tokio::time::timeout_at(cx.deadline().into(), send()).await;
    /// # }
    /// ```
    #[must_use]
    pub fn deadline(&self) -> Instant {
        match &self.0.state {
            CallState::Lease(steps) => Instant::now() + steps.lease.run_left(),
            CallState::Bare(call) => call.until,
        }
    }

    /// The idempotency key for a downstream call: 43 characters.
    ///
    /// It is the same for every attempt of this call, and another for every label. With it the other side recognises a
    /// repeat.
    ///
    /// It follows from operation, scope and key alone, so it is the same after `ttl`, after a reset, and under another
    /// [digest key](crate::EngineBuilder::digest_key): where a call is then meant to have its effect again, put the
    /// distinction (a date, say) into the key or the label.
    ///
    /// Its event `key derived`, of level `DEBUG`, has the label in plain text, and a digest of the key.
    ///
    /// A reader with the key and its label can confirm a guess of the call's key, whatever the engine's
    /// [digest key](crate::EngineBuilder::digest_key).
    ///
    /// The other side may know this request under that key from now on. So the call's key stays with its request:
    /// after a system error it takes no other one ([`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch)). In a
    /// transaction (`tx = …`) the error undoes the claim as well, and nothing keeps the request.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, store::memory::MemoryStore, Error};
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// let key = engine
    ///     .operation("payments.pay")
    ///     .key("order-7")
    ///     .run(|cx| async move { Ok::<_, Error>(cx.derive_key("stripe.charge")) })
    ///     .await?;
    /// assert_eq!(key.len(), 43);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn derive_key(&self, label: &str) -> String {
        self.bind();
        let derived = derived_key::of_label(self.0.plain(), label);
        self.sends(label, &derived);
        let mut text = String::with_capacity(43);
        derived.text(&mut text);
        text
    }
}

fn unprotected(operation: &Operation) -> Error {
    operation
        .error(ErrorKind::StoreUnavailable)
        .detail("the call runs without protection, so it has no fence")
}

debug_fields!(Context {
    key: |it| it.0.key(),
    attempt: |it| it.attempt()
});
