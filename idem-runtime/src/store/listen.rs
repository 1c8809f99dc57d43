//! Hearing of answers that are taken back.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;

/// Who keeps answers, and has to hear when one is taken back: an engine with a
/// [local cache](crate::LocalCache).
///
/// Called by whoever resolves or hears of it: these take a lock, and return.
pub trait Listener: Send + Sync {
    /// What is heard from now on.
    fn hearing(&self, hearing: Hearing);

    /// The record of this key was resolved or reset.
    fn resolved(&self, key: &KeyDigest);

    /// Something that an operator should know.
    fn warn(&self, message: &str);
}

/// What a [`Listener`] hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hearing {
    /// Every resolution that happens after this is told.
    All,
    /// For now some may happen and not be told. What is kept may be wrong.
    Nothing,
    /// The server does not let us hear. As if the store could not tell.
    Never,
}

/// Who listens to a store in this process: what a store that hears of every resolution itself builds
/// [`Store::listen`] from. Clones are the same.
///
/// ```
/// use std::sync::{Arc, Weak, atomic::{AtomicUsize, Ordering}};
/// use idem_runtime::store::{Hearing, Listener, Listeners, RecordKey};
/// use idem_runtime::{KeyDigest, Operation};
///
/// #[derive(Default)]
/// struct Counts(AtomicUsize);
/// impl Listener for Counts {
///     fn hearing(&self, _: Hearing) {}
///     fn resolved(&self, _: &KeyDigest) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
///     fn warn(&self, _: &str) {}
/// }
///
/// let counts: Arc<Counts> = Arc::default();
/// let listener: Arc<dyn Listener> = counts.clone();
/// let listeners = Listeners::default();
/// listeners.add(&"shop".into(), Arc::downgrade(&listener));
/// let digest = KeyDigest::from_bytes([7; 32]);
/// listeners.resolved(&RecordKey::new("shop".into(), Operation::new("payments.pay"), digest));
/// listeners.resolved(&RecordKey::new("other".into(), Operation::new("payments.pay"), digest));
/// assert_eq!(counts.0.load(Ordering::Relaxed), 1);
/// ```
///
/// [`Store::listen`]: crate::store::Store::listen
#[derive(Clone, Default)]
pub struct Listeners(Arc<Inner>);

type Listening = (Arc<str>, Weak<dyn Listener>);

#[derive(Default)]
struct Inner {
    /// A count of its own, so that telling takes no lock where nobody listens.
    count: AtomicUsize,
    listeners: Mutex<Vec<Listening>>,
}

impl Listeners {
    fn lock(&self) -> MutexGuard<'_, Vec<Listening>> {
        // Nothing panics while it is held.
        let listeners = self.0.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a listener from now on of the records of this prefix.
    pub fn add(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) {
        let Some(there) = listener.upgrade() else {
            return;
        };
        {
            let mut listeners = self.lock();
            listeners.retain(|(_, listener)| listener.strong_count() > 0);
            listeners.push((Arc::clone(prefix), listener));
            self.0.count.store(listeners.len(), Ordering::SeqCst);
        }
        there.hearing(Hearing::All);
    }

    /// A record was resolved. Called when it has been, and before whoever did so is told.
    pub fn resolved(&self, key: &RecordKey) {
        // Who listens is counted before it looks at any record; so one of the two sees the other.
        if self.0.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        // Told without the lock: what a listener does is somebody else's code.
        let those: Vec<_> = (self.lock().iter())
            .filter(|(prefix, _)| **prefix == *key.prefix())
            .filter_map(|(_, listener)| listener.upgrade())
            .collect();
        for listener in those {
            listener.resolved(key.digest());
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners")
            .field("count", &self.0.count.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
