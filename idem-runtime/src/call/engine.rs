//! The handle of an engine.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::call::core::Core;
use crate::env::clock::Clock;
use crate::env::observer::Observer;
use crate::local::cache::LocalCacheStats;
use crate::policy::{EffectivePolicy, Policy};

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
/// # Ok::<_, idem_runtime::InstallError>(())
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

macro_rules! has_engine {
    ($($holder:ty),+) => {
        $(impl<H: HasEngine + ?Sized> HasEngine for $holder {
            fn engine(&self) -> Engine {
                (**self).engine()
            }
        })+
    };
}

has_engine!(&H, &mut H, Arc<H>, Box<H>);

impl Engine {
    /// The counters of the [local cache](crate::EngineBuilder::local_cache), if there is one.
    #[must_use]
    pub fn local_cache_stats(&self) -> Option<LocalCacheStats> {
        self.core.cache_stats()
    }

    /// The observer of this engine's events.
    ///
    /// For an integration that has events of its own, such as a consumer of a message broker.
    #[must_use]
    pub fn observer(&self) -> &dyn Observer {
        &*self.core.observer
    }

    /// The clock of this engine, for the times in such events.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.core.clock
    }

    /// The lease of a call with these settings: that of the policy, else that of the engine.
    ///
    /// `None` if a setting is out of range, so that the call would be refused. For an integration that extends a deadline
    /// of its own as long as a call holds its lease.
    #[must_use]
    pub fn lease(&self, policy: Policy) -> Option<Duration> {
        let settings = EffectivePolicy::of_call(policy, &self.core.defaults);
        settings.ok().map(|policy| policy.lease())
    }
}

debug_fields!(Engine {
    store: |it| &it.core.store,
    prefix: |it| &it.core.prefix,
    defaults: |it| &it.core.defaults
});

tokio::task_local! {
    static SCOPED: Engine;
}

static INSTALLED: RwLock<Option<Engine>> = RwLock::new(None);

/// Error of a second installation. Two stores in one process would each let the body run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstallError;

display_text!(InstallError {
    Self => "an engine is installed already; install one at start-up, and use `Engine::scope` in tests";
});

impl std::error::Error for InstallError {}

impl Engine {
    /// Makes this the default engine of the process.
    ///
    /// Call it once, at start-up.
    ///
    /// # Errors
    ///
    /// [`InstallError`]; the installed engine stays.
    pub fn install(&self) -> Result<(), InstallError> {
        let mut installed = INSTALLED.write().unwrap_or_else(PoisonError::into_inner);
        if installed.is_some() {
            return Err(InstallError);
        }
        *installed = Some(self.clone());
        Ok(())
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
