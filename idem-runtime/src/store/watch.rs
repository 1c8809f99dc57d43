//! Notifications of changes of a key, in place of polling.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::env::lock::Lock;
use crate::identity::operation::RecordKey;

/// The watches on the keys of a store in this process.
///
/// A store builds [`Store::watch`] from it. Clones share the watches. While no key is watched, a wake costs one load of
/// a counter.
///
/// ```
/// use idem_runtime::store::author::Watchers;
/// use idem_runtime::store::RecordKey;
/// use idem_runtime::key::{KeyDigest, Operation};
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

/// The source of a store's changes, if it needs the watched keys.
///
/// Both methods are called by the thread of the watcher: they may take a lock and wake a task, and return.
pub trait Feed: Send + Sync {
    /// The last watch of this key has just ended. A new one may have begun meanwhile.
    fn left(&self, key: &RecordKey);

    /// A watched key had changed and no notification came.
    fn missed(&self);
}

#[derive(Default)]
struct Hub {
    /// The number of watched keys. A separate count, so that a wake takes no lock while no key is watched.
    watched: AtomicUsize,
    keys: Lock<HashMap<RecordKey, Watched>>,
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

/// A watch of a key, which ends when it is dropped.
pub struct Watch {
    key: RecordKey,
    state: Arc<KeyState>,
    seen: u64,
    /// The number of lapses of the key when this watch began.
    lapses: u64,
    watchers: Watchers,
}

impl Watchers {
    /// Watchers of keys whose changes come from `feed`.
    ///
    /// The feed is notified when a key is no longer watched, and when it missed a change.
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
        let mut keys = self.0.keys.lock();
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

    /// Whether the key is watched.
    #[must_use]
    pub fn is_watched(&self, key: &RecordKey) -> bool {
        !self.0.nobody_watches() && self.0.keys.lock().contains_key(key)
    }

    /// Notifies all watchers of the key that its record has changed.
    ///
    /// Called after the change: a watcher that begins later finds the change when it reads the record.
    pub fn wake(&self, key: &RecordKey) {
        if let Some(state) = self.state(key) {
            state.wake();
        }
    }

    /// Notifies all watchers of the key that their watch has lapsed.
    ///
    /// No more changes of it will arrive here, because the source of its changes has moved: a watcher that still needs
    /// them watches the key again.
    #[cfg(feature = "redis")]
    pub(crate) fn lapse(&self, key: &RecordKey) {
        if let Some(state) = self.state(key) {
            state.lapse();
        }
    }

    /// The same for all keys.
    #[cfg(feature = "redis")]
    pub(crate) fn lapse_all(&self) {
        let states: Vec<_> = {
            let keys = self.0.keys.lock();
            keys.values().map(|key| Arc::clone(&key.state)).collect()
        };
        for state in states {
            state.lapse();
        }
    }

    /// The state of a watched key. It is changed without the lock, because a waker is code of the user.
    fn state(&self, key: &RecordKey) -> Option<Arc<KeyState>> {
        if self.0.nobody_watches() {
            return None;
        }
        let keys = self.0.keys.lock();
        keys.get(key).map(|watched| Arc::clone(&watched.state))
    }

    /// Whether no key is watched.
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

    #[cfg(feature = "redis")]
    fn lapse(&self) {
        self.lapses.fetch_add(1, Ordering::Release);
        self.wake();
    }
}

impl Hub {
    fn nobody_watches(&self) -> bool {
        // A watcher is counted first and reads the record then; a writer changes the record first and reads this count
        // after that. One of the two sees the other.
        self.watched.load(Ordering::SeqCst) == 0
    }
}

impl Watch {
    /// Waits for a change of the key.
    ///
    /// A change counts from the last return of this method on, or from the beginning of the watch. Several changes at
    /// once count as one. It may return without a change of the key.
    ///
    /// # Cancel safety
    ///
    /// A change is not lost when this is dropped.
    pub async fn changed(&mut self) {
        loop {
            // From here on no notification is missed, though this is awaited only later.
            let told = self.state.told.notified();
            let changes = self.state.changes.load(Ordering::Acquire);
            if changes != self.seen {
                self.seen = changes;
                return;
            }
            told.await;
        }
    }

    /// Whether the watch has lapsed.
    ///
    /// Then no more changes will arrive, and the key must be watched again. A lapse wakes [`changed`](Self::changed).
    #[must_use]
    pub fn has_lapsed(&self) -> bool {
        self.state.lapses.load(Ordering::Acquire) != self.lapses
    }

    /// Reports a change of the key that was not notified.
    ///
    /// The source may be broken. The store then checks it, if it can. A thousand such reports cost no more than one.
    /// Without effect if a notification has arrived since the last return of [`changed`](Self::changed).
    pub fn missed(&self) {
        let notified = self.state.changes.load(Ordering::Acquire) != self.seen;
        if !notified && let Some(feed) = self.watchers.feed() {
            feed.missed();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let hub = &self.watchers.0;
        let mut keys = hub.keys.lock();
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

debug_fields!(Watch { key });

debug_fields!(Watchers {
    keys: |it| it.0.watched.load(Ordering::Relaxed)
});

#[cfg(test)]
mod tests;
