//! The keys and owners of a history.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{Journal, Owner};
use idem_runtime::store::{RecordKey, Store};

use crate::fixture::Fixture;
use crate::notified::{NotificationLog, listen};

/// Keys that may be confused: two that differ in the last bit, and one of an operation with a longer name.
pub(super) const KEYS: usize = 3;
pub(super) const OWNERS: usize = 6;

pub(super) struct Setting {
    pub(super) store: Arc<dyn Store>,
    pub(super) keys: [RecordKey; KEYS],
    /// Owners that the store made: four of claims, two of resolutions.
    pub(super) owners: [Owner; OWNERS],
    /// A journal of one label, which is no step.
    pub(super) label: Journal,
    pub(super) fixture: Arc<dyn Fixture>,
    /// The time limit of a notification.
    pub(super) patience: Duration,
    listener: Mutex<Option<Arc<NotificationLog>>>,
}

impl Setting {
    /// The keys of this number, of which many runs share a fixture.
    pub(super) fn of_run(fixture: &Arc<dyn Fixture>, run: u64, patience: Duration) -> Self {
        let store = fixture.store();
        let key = |more: &str, last: u8| {
            let mut digest = [0x2a; 32];
            digest[..8].copy_from_slice(&run.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            digest[31] = last;
            let operation = Operation::new(format!("history.{run}{more}"));
            RecordKey::new(fixture.prefix(), operation, KeyDigest::from_bytes(digest))
        };
        let keys = [key("", 0), key("", 1), key(".more", 0)];
        let owners: [Owner; OWNERS] = std::array::from_fn(|_| store.new_owner(&keys[0]));
        let is_new = |n: usize| !owners[..n].contains(&owners[n]);
        assert!(
            (0..OWNERS).all(is_new),
            "the store gave two callers one owner"
        );
        Self {
            store,
            keys,
            owners,
            label: Journal::default().with_label("order 4711"),
            fixture: Arc::clone(fixture),
            patience,
            listener: Mutex::default(),
        }
    }

    /// Subscribes a listener, if the store notifies listeners.
    pub(super) async fn listen(&self) {
        let (store, prefix) = (&*self.store, self.fixture.prefix());
        let log = listen(store, &prefix, self.patience).await;
        *self.lock() = log;
    }

    /// Forgets earlier notifications of the listener.
    pub(super) fn clear(&self) {
        if let Some(log) = &*self.lock() {
            log.clear();
        }
    }

    /// Whether a listener is notified of this key's resolution in time.
    pub(super) async fn is_told(&self, key: usize) -> bool {
        let log = self.lock().clone();
        match log {
            Some(log) => {
                let digest = *self.keys[key].digest();
                log.is_told(self.patience, digest).await
            }
            None => true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<NotificationLog>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
