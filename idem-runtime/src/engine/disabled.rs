//! An engine without protection, for tests of business code.

use super::handle::Engine;
use crate::store::memory::MemoryStore;

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
