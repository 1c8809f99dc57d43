//! Read caches in front of a store.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::future::StoreFuture;
use super::watch::Watch;
use crate::identity::operation::RecordKey;
use crate::record::{Header, OutcomeKind, Owner, Record, State};

/// A copy of a record, and its remaining life.
pub type Copied = Option<(Record, Duration)>;

/// Keeps copies of the records of another store.
///
/// See [`LayeredStore`](crate::store::layered::LayeredStore). A front decides nothing. A copy may be lost at any time, and a
/// failed operation costs time only.
pub trait ReadCache: Send + Sync + fmt::Debug + 'static {
    /// The copy under a key. An unreadable copy counts as none.
    ///
    /// On the path of calls.
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied>;

    /// Keeps a copy for `left`, if it [`supersedes`] the one in place.
    ///
    /// `left` may be shorter than the copy's header says; the bytes are kept unchanged. An unreadable copy in place is
    /// not replaced. Watchers of the key are notified of a copy that is done, kept or not.
    fn keep<'a>(
        &'a self,
        key: &'a RecordKey,
        copy: &'a Bytes,
        left: Duration,
    ) -> StoreFuture<'a, ()>;

    /// Removes a copy, if it has this owner or none is named.
    ///
    /// Watchers of the key are notified in either case.
    fn forget<'a>(&'a self, key: &'a RecordKey, owner: Option<&'a Owner>) -> StoreFuture<'a, ()>;

    /// As [`look`](Self::look), for waiting calls, on the engine's own thread.
    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        self.look(key)
    }

    /// As [`Store::watch`](super::Store::watch).
    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        let _ = key;
        StoreFuture::ready(Ok(None))
    }

    /// As [`Store::max_record_bytes`](super::Store::max_record_bytes).
    fn max_record_bytes(&self) -> Option<usize> {
        None
    }

    /// Whether other processes can write to it. `true`, the default, is right for every server.
    fn is_shared(&self) -> bool {
        true
    }

    /// As [`Store::warnings`](super::Store::warnings).
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Whether a copy replaces the one in place (`there`).
///
/// It does if it is of a later claim, by the fence, or if it is of the same claim and `there` is not done. Copies have
/// many writers and arrive in any order.
#[must_use]
pub fn supersedes(copy: &Header, there: &Header) -> bool {
    let is_claim = matches!(
        there.state,
        State::Pending { .. } | State::Reconciling { .. }
    );
    copy.fence > there.fence || copy.fence == there.fence && is_claim
}

/// Whether a record is an answer that only a reset removes.
///
/// An unknown outcome is not final: a success may replace it.
#[must_use]
pub fn is_final(header: &Header) -> bool {
    matches!(
        header.state,
        State::Done {
            outcome: OutcomeKind::Value | OutcomeKind::Error | OutcomeKind::Tombstone,
            ..
        }
    )
}
