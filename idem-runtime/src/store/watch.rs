//! Waiting for a key to change, told rather than asked for.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::key::KeyDigest;

/// Who watches which key of a store in this process. Clones are the same.
#[derive(Clone, Default)]
pub struct Watchers(Arc<Mutex<HashMap<KeyDigest, Watched>>>);

struct Watched {
    state: Arc<KeyState>,
    watches: usize,
}

#[derive(Default)]
struct KeyState {
    changes: AtomicU64,
    missed: AtomicBool,
    told: Notify,
}

/// Somebody who watches a key until this is dropped.
pub struct Watch {
    key: KeyDigest,
    state: Arc<KeyState>,
    seen: u64,
    watchers: Watchers,
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, HashMap<KeyDigest, Watched>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a key.
    #[must_use]
    pub fn watch(&self, key: &KeyDigest) -> Watch {
        let mut keys = self.lock();
        let watched = keys.entry(*key).or_insert_with(|| Watched {
            state: Arc::default(),
            watches: 0,
        });
        watched.watches += 1;
        let state = Arc::clone(&watched.state);
        Watch {
            key: *key,
            seen: state.changes.load(Ordering::Acquire),
            state,
            watchers: self.clone(),
        }
    }

    /// Tells everybody who watches the key.
    pub fn wake(&self, key: &KeyDigest) {
        if let Some(watched) = self.lock().get(key) {
            watched.state.changes.fetch_add(1, Ordering::Release);
            watched.state.told.notify_waiters();
        }
    }
}

impl Watch {
    /// Waits until the key has changed since this was last asked, or since the watch began.
    ///
    /// # Cancel safety
    ///
    /// A change is not lost when this is dropped.
    pub async fn changed(&mut self) {
        loop {
            let mut told = pin!(self.state.told.notified());
            // From here on no message is missed.
            told.as_mut().enable();
            let changes = self.state.changes.load(Ordering::Acquire);
            if changes != self.seen {
                self.seen = changes;
                return;
            }
            told.await;
        }
    }

    /// Says that the key has changed and nobody told: what tells may be broken.
    pub fn missed(&self) {
        self.state.missed.store(true, Ordering::Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut keys = self.watchers.lock();
        if let Some(watched) = keys.get_mut(&self.key) {
            watched.watches -= 1;
            if watched.watches == 0 {
                keys.remove(&self.key);
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers")
            .field("keys", &self.lock().len())
            .finish_non_exhaustive()
    }
}
