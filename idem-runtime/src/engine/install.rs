//! The engine of calls that name none: the scoped, else the installed one.

use std::fmt;
use std::sync::{PoisonError, RwLock};

use super::handle::Engine;

tokio::task_local! {
    static SCOPED: Engine;
}

static INSTALLED: RwLock<Option<Engine>> = RwLock::new(None);

/// Error of a second installation. Two stores in one process would each let the body run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstallError;

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an engine is installed already; install one at start-up, and use `Engine::scope` in tests",
        )
    }
}

impl std::error::Error for InstallError {}

impl Engine {
    /// Makes this the engine of every call in this process that has no other.
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
