//! The observers of the engines on a store.

use std::sync::{Arc, Weak};

use crate::env::lock::Lock;
use crate::env::observer::{Event, EventKind, Observer};

/// The observers of the engines on a store, held weakly.
#[derive(Debug, Default)]
pub(super) struct Observers(Lock<Vec<Weak<dyn Observer>>>);

impl Observers {
    pub(super) fn add(&self, observer: &Arc<dyn Observer>) {
        let mut observers = self.0.lock();
        observers.retain(|observer| observer.strong_count() > 0);
        observers.push(Arc::downgrade(observer));
    }

    pub(super) fn notify(&self, kind: EventKind<'_>) {
        let observers: Vec<_> = {
            let observers = self.0.lock();
            observers.iter().filter_map(Weak::upgrade).collect()
        };
        let event = Event::of_engine(kind);
        for observer in observers {
            observer.observe(&event);
        }
    }
}
