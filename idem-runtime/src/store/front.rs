//! What a store can do in front of another.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::{Header, OutcomeKind, Owner, Record, RecordKey, State, StoreFuture, Watch};

/// A record that stands in front, and how long it will still stand there.
pub type Copied = Option<(Record, Duration)>;

/// Keeps copies of records, in front of the store that has them: see
/// [`layered`](crate::store::layered::layered).
///
/// It decides nothing. A copy may be lost at any time, and whatever fails costs time only.
pub trait Front: Send + Sync + fmt::Debug + 'static {
    /// The copy that stands under a key. What cannot be read is none.
    ///
    /// On the path of calls.
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied>;

    /// Keeps a copy for `left`, which may be shorter than its header says, byte by byte as it is, if
    /// it [`supersedes`] what stands there. What cannot be read stays. Whoever watches the key is told
    /// of a copy that is done, kept or not.
    fn keep<'a>(
        &'a self,
        key: &'a RecordKey,
        copy: &'a Bytes,
        left: Duration,
    ) -> StoreFuture<'a, ()>;

    /// Removes a copy, if it is of this owner or no owner is named, and tells whoever watches the key
    /// in any case.
    fn forget<'a>(&'a self, key: &'a RecordKey, owner: Option<&'a Owner>) -> StoreFuture<'a, ()>;

    /// As [`look`](Self::look), for calls that wait: on the engine's own thread.
    fn glance<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
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

    /// Whether others than this process can write to it. `true`, the default, is right for every server.
    fn is_shared(&self) -> bool {
        true
    }

    /// As [`Store::warnings`](super::Store::warnings).
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Whether a copy takes the place of the one that is `there`: of a later claim, by the fence; or of the
/// same claim, unless that is done. Copies are written by many and arrive in any order.
#[must_use]
pub fn supersedes(copy: &Header, there: &Header) -> bool {
    let is_claim = matches!(
        there.state,
        State::Pending { .. } | State::Reconciling { .. }
    );
    copy.fence > there.fence || copy.fence == there.fence && is_claim
}

/// Whether a record is an answer that nothing but a reset takes back. An unknown outcome is none: a
/// success may take its place.
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
