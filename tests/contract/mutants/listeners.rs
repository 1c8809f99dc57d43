//! Notification of a store's listeners about resolutions.

use std::sync::{Arc, PoisonError, Weak};

use bytes::Bytes;
use idem_runtime::store::{Header, Hearing, Listener, RecordKey, State};

use crate::flaw::Flaw;
use crate::store::Inner;

impl Inner {
    pub(crate) fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) {
        let Some(there) = listener.upgrade() else {
            return;
        };
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.push((Arc::clone(prefix), listener));
        drop(listeners);
        if !self.is(Flaw::NeverBeginsToTell) {
            there.hearing(Hearing::All);
        }
    }

    /// A resolution by this record.
    pub(crate) fn tell_listeners(&self, key: &RecordKey, record: &Bytes) {
        let is_reset = Header::decode(record).is_ok_and(|new| new.state == State::Released);
        if self.is(Flaw::TellsNoListener) || self.is(Flaw::TellsOfResetsOnly) && !is_reset {
            return;
        }
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut those: Vec<_> = (listeners.iter())
            .filter(|(prefix, _)| **prefix == *key.prefix())
            .filter_map(|(_, listener)| listener.upgrade())
            .collect();
        match self.flaw {
            Flaw::TellsOneListener => those.truncate(1),
            Flaw::TellsOfOneResolution => listeners.clear(),
            _ => {}
        }
        drop(listeners);
        for listener in those {
            listener.resolved(key.digest());
        }
    }
}
