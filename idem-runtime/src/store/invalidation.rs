//! Notifications of answers that are resolved or reset.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::env::lock::Lock;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;

/// Receives the resolutions of answers, for a cache of them.
///
/// An engine with a [local cache](crate::cache::LocalCache) is one. The methods are called by the resolving caller, or by the
/// task that receives the notification: they take a lock, and return.
pub trait Listener: Send + Sync {
    /// States which notifications arrive from now on.
    fn hearing(&self, hearing: Hearing);

    /// The record of this key was resolved or reset.
    fn resolved(&self, key: &KeyDigest);

    /// A warning for an operator.
    fn warn(&self, message: &str);
}

/// Which resolutions a [`Listener`] receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hearing {
    /// Every later resolution is notified.
    All,
    /// For now resolutions may happen without a notification. Cached answers may be wrong.
    Nothing,
    /// The server does not permit a subscription. As if the store could not notify.
    Never,
}

/// The listeners to a store in this process.
///
/// Clones share one list.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<ListenerList>);

type Listening = (Arc<str>, Weak<dyn Listener>);

#[derive(Default)]
struct ListenerList {
    /// A separate count: without listeners a resolution takes no lock.
    count: AtomicUsize,
    listeners: Lock<Vec<Listening>>,
}

impl Listeners {
    /// Notifies a listener from now on of resolutions of this prefix.
    pub(crate) fn add(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) {
        let Some(there) = listener.upgrade() else {
            return;
        };
        {
            let mut listeners = self.0.listeners.lock();
            listeners.retain(|(_, listener)| listener.strong_count() > 0);
            listeners.push((Arc::clone(prefix), listener));
            self.0.count.store(listeners.len(), Ordering::SeqCst);
        }
        there.hearing(Hearing::All);
    }

    /// A record was resolved. Called after the write and before its caller has the reply.
    pub(crate) fn resolved(&self, key: &RecordKey) {
        // A listener is counted before it reads any record, so that either this count includes it or it reads the new
        // record.
        if self.0.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        // Notify without the lock, because a listener is code of the user.
        let those: Vec<_> = (self.0.listeners.lock().iter())
            .filter(|(prefix, _)| **prefix == *key.prefix())
            .filter_map(|(_, listener)| listener.upgrade())
            .collect();
        for listener in those {
            listener.resolved(key.digest());
        }
    }
}

debug_fields!(Listeners {
    count: |it| it.0.count.load(Ordering::Relaxed)
});
