//! Shutdown of an engine.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::call::engine::Engine;
use crate::env::clock::deadline;

/// The work that had not ended at the deadline of a shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownError {
    /// Calls that wait for a claim or for another call's answer.
    pub waiting: usize,
    /// Bodies that run, or whose outcome is being stored. Their keys lapse with their leases.
    pub running: usize,
    /// Outcomes of vanished callers that are being stored.
    pub storing: usize,
    /// Answers of bodies that have ended, which the store has not confirmed. If the process ends now they are lost, and
    /// their calls may run again.
    pub unstored: usize,
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the engine was not idle in time; calls that wait: {}, bodies that run and lapse with their \
             leases if the process ends now: {}, outcomes that are being stored: {}, answers that are not stored, so \
             that their calls may run again if the process ends now: {}",
            self.waiting, self.running, self.storing, self.unstored
        )
    }
}

impl std::error::Error for ShutdownError {}

impl Engine {
    /// Shuts the engine down: refuses new calls and waits for running ones.
    ///
    /// New calls get [`ErrorKind::ShuttingDown`](crate::ErrorKind::ShuttingDown), except calls that a running body
    /// makes; calls that run or wait, bodies that outlived their callers (`on_cancel = finish`), and background storing
    /// are awaited for up to `within`. A shutdown cannot be undone.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, ErrorKind, store::memory::MemoryStore};
    /// use std::time::Duration;
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// engine.shutdown(Duration::from_secs(20)).await?;
    /// let late = engine.operation("pay").key(&7).begin().await.unwrap_err();
    /// assert_eq!(*late.kind(), ErrorKind::ShuttingDown);
    /// # Ok::<_, idem_runtime::ShutdownError>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] at the deadline: the work that it counts continues as long as the process lives.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again; new calls stay refused.
    pub async fn shutdown(&self, within: Duration) -> Result<(), ShutdownError> {
        let core = &self.core;
        core.closing.store(true, Ordering::SeqCst);
        let idle = async {
            loop {
                let mut idle = pin!(core.background.idle().notified());
                // Enabled before the check, so that no notification is missed.
                idle.as_mut().enable();
                if self.unfinished().is_none() {
                    return;
                }
                idle.await;
            }
        };
        let moment = core.clock.now() + within.min(crate::policy::LONG);
        match deadline(&*core.clock, moment, pin!(idle)).await {
            Ok(()) => Ok(()),
            Err(_) => self.unfinished().map_or(Ok(()), Err),
        }
    }

    fn unfinished(&self) -> Option<ShutdownError> {
        // In this order, because a call joins the counter of running calls before it leaves that of waiting ones.
        let waiting = self.core.entering.sum();
        // Read before and after, because a body with a claim may leave one behind that has none, and the other way
        // round.
        let unleased = || self.core.unleased.load(Ordering::SeqCst);
        let before = unleased();
        let (claims, storing) = self.core.background.claims_and_jobs();
        let running = claims + before.max(unleased());
        let unfinished = ShutdownError {
            waiting,
            running,
            storing,
            unstored: self.core.background.unstored(),
        };
        (waiting + running + storing > 0).then_some(unfinished)
    }
}
