//! Store, defaults and observer in one handle.

mod builder;
mod disabled;
mod shutdown;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

pub use self::builder::EngineBuilder;
pub(crate) use self::disabled::Protection;
pub use self::shutdown::Unfinished;
use crate::call::CallBuilder;
use crate::env::clock::Clock;
use crate::env::observer::{Event, EventKind, Observer};
use crate::env::striped::{Lanes, Tally};
use crate::identity::digest_key::DigestKey;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, Prefix, RecordKey};
use crate::identity::token::Tokens;
use crate::lifecycle::outage::Outage;
use crate::lifecycle::renewer::Keeper;
use crate::lifecycle::run_limit::RunLimit;
use crate::local::cache::{Answers, LocalCacheStats};
use crate::local::singleflight::Flights;
use crate::outcome::codec::Format;
use crate::outcome::on_error::Classified;
use crate::policy::Policy;
use crate::store::Store;

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
    pub(crate) claimed_keys: crate::call::ClaimedKeys,
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

impl<H: HasEngine + ?Sized> HasEngine for &H {
    fn engine(&self) -> Engine {
        (**self).engine()
    }
}

impl<H: HasEngine + ?Sized> HasEngine for &mut H {
    fn engine(&self) -> Engine {
        (**self).engine()
    }
}

impl<H: HasEngine + ?Sized> HasEngine for Arc<H> {
    fn engine(&self) -> Engine {
        (**self).engine()
    }
}

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
        EngineBuilder::new(Arc::new(store))
    }

    /// Makes this the engine of every call in this process that has no other. Once, at start-up.
    ///
    /// # Errors
    ///
    /// [`AlreadyInstalled`]; the installed engine stays.
    pub fn install(&self) -> Result<(), AlreadyInstalled> {
        let mut installed = INSTALLED.write().unwrap_or_else(PoisonError::into_inner);
        if installed.is_some() {
            return Err(AlreadyInstalled);
        }
        *installed = Some(self.clone());
        Ok(())
    }

    /// Begins a call of this operation: what `#[idempotent]` expands to, for everybody. Calls of one name share
    /// keys and answers, wherever they are made: give each thing that is done a name of its own.
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

    /// What the [local cache](EngineBuilder::local_cache) has done, if there is one.
    #[must_use]
    pub fn local_cache_stats(&self) -> Option<LocalCacheStats> {
        self.core.cache_stats()
    }

    /// Runs a future with this as the engine of its calls: for tests, and for parts of an
    /// application with a store of their own. Tasks that the future spawns are outside.
    ///
    /// # Cancel safety
    ///
    /// As the future's.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SCOPED.scope(self.clone(), future).await
    }

    /// The engine that a call without `engine = …` uses: the scoped, else the installed one.
    #[must_use]
    pub fn current() -> Option<Self> {
        let installed = || {
            let installed = INSTALLED.read();
            installed.unwrap_or_else(PoisonError::into_inner).clone()
        };
        Self::scoped().or_else(installed)
    }

    /// The engine that this task is in the scope of.
    pub(crate) fn scoped() -> Option<Self> {
        SCOPED.try_with(Clone::clone).ok()
    }
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

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("store", &self.core.store)
            .field("prefix", &self.core.prefix)
            .field("defaults", &self.core.defaults)
            .finish_non_exhaustive()
    }
}
