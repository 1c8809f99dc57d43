//! Waiting for a key to change, told rather than asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::identity::operation::RecordKey;

/// Who watches which key of a store in this process: what a store builds [`Store::watch`] from.
///
/// Clones are the same. Where nobody watches, telling costs one look at a counter.
///
/// ```
/// use idem_runtime::store::{RecordKey, Watchers};
/// use idem_runtime::{KeyDigest, Operation};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let digest = KeyDigest::from_bytes([7; 32]);
/// let key = RecordKey::new("shop".into(), Operation::new("payments.pay"), digest);
/// let watchers = Watchers::default();
/// let mut watch = watchers.watch(&key);
/// watchers.wake(&key);
/// watch.changed().await;
/// # });
/// ```
///
/// [`Store::watch`]: crate::store::Store::watch
#[derive(Clone, Default)]
pub struct Watchers(Arc<Hub>);

/// Where a store hears of changes, if that has to know which keys are watched.
///
/// Both are called by whoever watches: they may take a lock and wake a task, and return.
pub trait Feed: Send + Sync {
    /// Nobody watched this key any more a moment ago. Somebody may do so again.
    fn left(&self, key: &RecordKey);

    /// A watched key had changed and nobody told.
    fn missed(&self);
}

#[derive(Default)]
struct Hub {
    /// How many keys are watched. A count of its own, so that telling takes no lock where nobody
    /// watches.
    watched: AtomicUsize,
    keys: Mutex<HashMap<RecordKey, Watched>>,
    feed: Option<Weak<dyn Feed>>,
}

struct Watched {
    state: Arc<KeyState>,
    watches: usize,
}

#[derive(Default)]
struct KeyState {
    changes: AtomicU64,
    lapses: AtomicU64,
    told: Notify,
}

/// Somebody who watches a key until this is dropped.
pub struct Watch {
    key: RecordKey,
    state: Arc<KeyState>,
    seen: u64,
    /// How often all watches of the key had lapsed when this one began.
    lapses: u64,
    watchers: Watchers,
}

impl Watchers {
    /// Watchers of keys whose changes come from `feed`, which is told when a key is no longer
    /// watched, and when it failed to tell.
    #[must_use]
    pub fn fed_by(feed: Weak<dyn Feed>) -> Self {
        Self(Arc::new(Hub {
            feed: Some(feed),
            ..Hub::default()
        }))
    }

    /// Watches a key from now on.
    #[must_use]
    pub fn watch(&self, key: &RecordKey) -> Watch {
        let mut keys = self.0.lock();
        let watched = keys.entry(key.clone()).or_insert_with(|| {
            self.0.watched.fetch_add(1, Ordering::SeqCst);
            Watched {
                state: Arc::default(),
                watches: 0,
            }
        });
        watched.watches += 1;
        let state = Arc::clone(&watched.state);
        Watch {
            key: key.clone(),
            seen: state.changes.load(Ordering::Acquire),
            lapses: state.lapses.load(Ordering::Acquire),
            state,
            watchers: self.clone(),
        }
    }

    /// Whether anybody watches the key.
    #[must_use]
    pub fn is_watched(&self, key: &RecordKey) -> bool {
        !self.0.nobody_watches() && self.0.lock().contains_key(key)
    }

    /// Tells everybody who watches the key that its record has changed. Called when it has: who
    /// begins to watch later finds the change by looking.
    pub fn wake(&self, key: &RecordKey) {
        if let Some(state) = self.state(key) {
            state.wake();
        }
    }

    /// Tells everybody who watches the key that nothing will be heard of it here any more: where its
    /// changes are told has moved, and whoever still cares watches it again.
    pub fn lapse(&self, key: &RecordKey) {
        if let Some(state) = self.state(key) {
            state.lapse();
        }
    }

    /// The same for all keys.
    pub fn lapse_all(&self) {
        let states: Vec<_> = {
            let keys = self.0.lock();
            keys.values().map(|key| Arc::clone(&key.state)).collect()
        };
        for state in states {
            state.lapse();
        }
    }

    /// The state of a key that somebody watches. It is changed without the lock: a waker is somebody
    /// else's code.
    fn state(&self, key: &RecordKey) -> Option<Arc<KeyState>> {
        if self.0.nobody_watches() {
            return None;
        }
        let keys = self.0.lock();
        keys.get(key).map(|watched| Arc::clone(&watched.state))
    }

    /// Whether nobody watches anything.
    #[cfg(feature = "redis")]
    pub(crate) fn is_idle(&self) -> bool {
        self.0.nobody_watches()
    }

    fn feed(&self) -> Option<Arc<dyn Feed>> {
        self.0.feed.as_ref().and_then(Weak::upgrade)
    }
}

impl KeyState {
    fn wake(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.told.notify_waiters();
    }

    fn lapse(&self) {
        self.lapses.fetch_add(1, Ordering::Release);
        self.wake();
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, HashMap<RecordKey, Watched>> {
        // Nothing panics while it is held.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nobody_watches(&self) -> bool {
        // Whoever watches counts first and looks at the record then; whoever changes the record
        // looks here after that. One of the two sees the other.
        self.watched.load(Ordering::SeqCst) == 0
    }
}

impl Watch {
    /// Waits until the key has changed since this was last asked, or since the watch began. Several
    /// changes at once are one. A key may seem to have changed when it has not.
    ///
    /// # Cancel safety
    ///
    /// A change is not lost when this is dropped.
    pub async fn changed(&mut self) {
        loop {
            // From here on no message is missed, though this is awaited only later.
            let told = self.state.told.notified();
            let changes = self.state.changes.load(Ordering::Acquire);
            if changes != self.seen {
                self.seen = changes;
                return;
            }
            told.await;
        }
    }

    /// Whether nothing will be heard here any more, so that the key must be watched again. It seems
    /// to have changed when that happens.
    #[must_use]
    pub fn has_lapsed(&self) -> bool {
        self.state.lapses.load(Ordering::Acquire) != self.lapses
    }

    /// Says that the key has changed and nobody told: what tells may be broken. The store then looks
    /// after it, if it can; a thousand who miss something cost no more than one.
    pub fn missed(&self) {
        if let Some(feed) = self.watchers.feed() {
            feed.missed();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let hub = &self.watchers.0;
        let mut keys = hub.lock();
        let Some(watched) = keys.get_mut(&self.key) else {
            return;
        };
        watched.watches -= 1;
        if watched.watches > 0 {
            return;
        }
        keys.remove(&self.key);
        hub.watched.fetch_sub(1, Ordering::SeqCst);
        drop(keys);
        if let Some(feed) = self.watchers.feed() {
            feed.left(&self.key);
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
            .field("keys", &self.0.watched.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
