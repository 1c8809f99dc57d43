//! The handle of an engine.

use std::fmt;
use std::sync::Arc;

use crate::lifecycle::core::Core;
use crate::local::cache::LocalCacheStats;

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

impl Engine {
    /// The counters of the [local cache](crate::EngineBuilder::local_cache), if there is one.
    #[must_use]
    pub fn local_cache_stats(&self) -> Option<LocalCacheStats> {
        self.core.cache_stats()
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
