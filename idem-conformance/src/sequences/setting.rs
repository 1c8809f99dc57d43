//! The keys and owners of a history.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::admin::EntryFilter;
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::{
    Header, Journal, JournalKind, OutcomeKind, Owner, Record, RecordKey, State, Store, Watch,
};

use super::call::{Call, Listing, Reply, encoded};
use crate::fixture::Fixture;
use crate::notified::{NotificationLog, in_time, listen};

/// Two of one operation that differ in the last bit, and one of an operation whose name goes on.
pub(super) const KEYS: usize = 3;
pub(super) const OWNERS: usize = 6;

/// What the printed code of a [`History`](super::History) begins with: a store, with keys and owners.
pub struct Setting {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its keys: two of one operation, and one of another operation.
    pub keys: [RecordKey; KEYS],
    /// Owners that the store made: four of claims, two of resolutions.
    pub owners: [Owner; OWNERS],
    /// A journal of one label, which is no step.
    pub label: Journal,
    pub(super) fixture: Arc<dyn Fixture>,
    listener: Mutex<Option<Arc<NotificationLog>>>,
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting")
            .field("store", &self.store)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl Setting {
    /// The setting of a test of its own.
    ///
    /// # Panics
    ///
    /// If the store gives two callers one owner.
    #[must_use]
    pub fn new(fixture: &Arc<dyn Fixture>) -> Self {
        Self::of_run(fixture, 0)
    }

    /// Many runs share a fixture.
    pub(super) fn of_run(fixture: &Arc<dyn Fixture>, run: u64) -> Self {
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
            listener: Mutex::default(),
        }
    }

    /// Whether `left` is this many milliseconds, less what the store's clock advances by itself.
    #[must_use]
    pub fn is_left(&self, left: Duration, ms: u64) -> bool {
        let expected = Duration::from_millis(ms);
        left <= expected && left + self.fixture.drift() >= expected
    }

    /// Whether `left` is no more than this many milliseconds, as a copy in front of the store reports it.
    #[must_use]
    pub fn is_at_most(&self, left: Duration, ms: u64) -> bool {
        left <= Duration::from_millis(ms + 1) + self.fixture.drift()
    }

    /// Whether the watch is notified in time.
    pub async fn is_notified(&self, watch: &mut Watch) -> bool {
        in_time(self.fixture.patience(), watch.changed()).await
    }

    /// Subscribes a listener, if the store notifies listeners.
    ///
    /// # Panics
    ///
    /// If the store says that it does, and does not begin to.
    pub async fn listen(&self) {
        let (store, prefix) = (&*self.store, self.fixture.prefix());
        let log = listen(store, &prefix, self.fixture.patience()).await;
        *self.lock() = log;
    }

    /// Forgets earlier notifications of the listener.
    pub(super) fn clear(&self) {
        if let Some(log) = &*self.lock() {
            log.clear();
        }
    }

    /// Whether the listener, if there is one, is notified of a resolution of this key in time.
    pub async fn is_told(&self, key: usize) -> bool {
        let log = self.lock().clone();
        match log {
            Some(log) => {
                let digest = *self.keys[key].digest();
                log.is_told(self.fixture.patience(), digest).await
            }
            None => true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<NotificationLog>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A listing of the first two keys' operation: headers and remaining lives by the number of the key, and how many
    /// records were unreadable. `None`: the store does not list.
    ///
    /// # Panics
    ///
    /// If it fails, or has another key.
    pub async fn listed(
        &self,
        filter: EntryFilter,
        min_attempts: u16,
        limit: usize,
    ) -> Option<(BTreeMap<usize, (Header, Duration)>, u64)> {
        let listing = Listing {
            filter,
            min_attempts,
            limit,
        };
        match Call::List(listing).send(self).await {
            Reply::Listed(listed) => Some(listed),
            Reply::CannotList => None,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a record is this one.
    #[must_use]
    pub fn is_record(record: &Record, expected: &Header, body: &[u8], journal: &Journal) -> bool {
        // The bytes behind a header without an answer are its journal.
        let has_body = is_answered(expected.state) || journal.is_empty();
        record.header == *expected
            && record.journal() == *journal
            && (!has_body || record.body() == body)
    }

    /// Whether a record is this one, as a caller gets it: a store may leave out the journal of a record without an
    /// answer.
    #[must_use]
    pub fn is_answer(record: &Record, expected: &Header, body: &[u8], journal: &Journal) -> bool {
        let mut bare = *expected;
        bare.journal = JournalKind::None;
        Self::is_record(record, expected, body, journal)
            || !is_answered(expected.state)
                && Self::is_record(record, &bare, b"", &Journal::default())
    }

    /// Whether a record is this one, as a waiting call gets it: a copy of a claim may have a shorter lease and life.
    #[must_use]
    pub fn is_polled(record: &Record, expected: &Header, body: &[u8], journal: &Journal) -> bool {
        let mut copied = *expected;
        copied.state = match (record.header.state, expected.state) {
            (State::Pending { lease }, State::Pending { .. }) => State::Pending { lease },
            (State::Reconciling { lease }, State::Reconciling { .. }) => {
                State::Reconciling { lease }
            }
            _ => return Self::is_answer(record, expected, body, journal),
        };
        (copied.retain, copied.journal) = (record.header.retain, record.header.journal);
        record.header == copied
    }

    /// The bytes of a record.
    #[must_use]
    pub fn record(header: &Header, body: &[u8], journal: &Journal) -> Bytes {
        encoded(header, body, journal)
    }
}

fn is_answered(state: State) -> bool {
    matches!(state, State::Done { outcome, .. } if outcome != OutcomeKind::Unknown)
}
