//! Waiting for what must happen.

use std::future::Future;
use std::time::Duration;

use crate::events::Events;

/// How long anything that must happen may take before a test fails instead of hanging.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until something has happened so many times.
pub async fn happened(events: &Events, start: &str, times: usize) {
    patiently(start, events.wait_for(start, times)).await;
}

/// Awaits something that must happen.
pub async fn patiently<F: Future>(what: &str, work: F) -> F::Output {
    let outcome = tokio::time::timeout(PATIENCE, work).await;
    outcome.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// Waits for something that another process does without telling us.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let polling = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    patiently(what, polling).await;
}
