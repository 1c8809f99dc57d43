//! The engine: store, defaults and observer in one handle.

mod builder;
mod disabled;
mod entries;
mod shutdown;
#[cfg(feature = "tokens")]
mod tokens;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

pub use self::builder::EngineBuilder;
pub use self::shutdown::Unfinished;
use crate::lifecycle::core::Core;
use crate::local::cache::LocalCacheStats;
use crate::store::Store;

tokio::task_local! {
    static SCOPED: Engine;
}

static INSTALLED: RwLock<Option<Engine>> = RwLock::new(None);

/// Store, defaults and observer. Cheap to clone; clones are the same engine.
///
/// A call finds its engine in this order: `engine = …` of the attribute, the engine whose [`scope`](Self::scope) its
/// task runs in, the [`install`](Self::install)ed one.
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

/// Access to an engine: the trait that `engine = …` requires.
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

/// Error of a second installation. Two stores in one process would each let the body run.
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

    /// Creates the builder of an engine on this store.
    pub fn builder(store: impl Store) -> EngineBuilder {
        EngineBuilder::new(Arc::new(store))
    }

    /// Makes this the engine of every call in this process that has no other.
    ///
    /// Call it once, at start-up.
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

    /// The counters of the [local cache](EngineBuilder::local_cache), if there is one.
    #[must_use]
    pub fn local_cache_stats(&self) -> Option<LocalCacheStats> {
        self.core.cache_stats()
    }

    /// Runs a future with this as the engine of its calls.
    ///
    /// For tests, and for parts of an application with a store of their own. Tasks that the future spawns are outside.
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

    /// The engine whose scope this task runs in.
    pub(crate) fn scoped() -> Option<Self> {
        SCOPED.try_with(Clone::clone).ok()
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
