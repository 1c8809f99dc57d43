//! What an engine told its observer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_runtime::{Event, EventKind, Observer};
use tokio::sync::Notify;

use crate::patiently;

/// Remembers every event as text: `Claimed { attempt: 1, … }`. Clones share their memory.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    seen: Mutex<Vec<String>>,
    more: Notify,
}

impl Events {
    /// The events so far whose text begins with `start`.
    #[must_use]
    pub fn of(&self, start: &str) -> Vec<String> {
        let seen = self.lock();
        let matching = seen.iter().filter(|text| text.starts_with(start));
        matching.cloned().collect()
    }

    /// Waits until that many events begin with `start`.
    pub async fn wait(&self, start: &str, count: usize) {
        let enough = async {
            loop {
                let more = self.0.more.notified();
                if self.of(start).len() >= count {
                    return;
                }
                more.await;
            }
        };
        patiently(&format!("{count} events `{start}`"), enough).await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        let text = match &event.kind {
            EventKind::Refused { error } => format!("Refused {error}"),
            kind => format!("{kind:?}"),
        };
        self.lock().push(text);
        self.0.more.notify_waiters();
    }
}

/// How long anything that must happen may take before a test fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
