//! Listing the records of a store, one step at a time.

use std::sync::Arc;
use std::time::Duration;

use super::error::{StoreError, StoreErrorKind};
use crate::identity::operation::{Operation, RecordKey};
use crate::record::{Header, OutcomeKind, State};

/// The maximum number of records that a listing step examines.
pub(crate) const EXAMINED: usize = 1_000;

/// Which records a listing includes.
///
/// Each but [`Any`](Self::Any) and [`Exhausted`](Self::Exhausted) is one [`EntryState`](crate::admin::EntryState).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EntryFilter {
    /// Every record.
    #[default]
    Any,
    /// A claim is held: a body runs, or a reconcile hook does.
    Running,
    /// A body crashed or lost its lease; the key is unclaimed since.
    Abandoned,
    /// The key was released.
    Released,
    /// A value or a business error is stored.
    Answered,
    /// The call was done, and its answer could not be stored.
    NotStored,
    /// It is not known whether the effect happened.
    Unknown,
    /// Abandoned or released, and no attempt is left.
    Exhausted,
}

impl EntryFilter {
    /// Whether a record passes the filter.
    ///
    /// The record has this header, and is to be kept for `left`. For [`Exhausted`](Self::Exhausted) the attempts are
    /// compared by [`ListRequest::wants`].
    #[must_use]
    pub(crate) fn matches(self, header: &Header, left: Duration) -> bool {
        let pending = matches!(header.state, State::Pending { .. });
        match self {
            Self::Any => true,
            Self::Running => !header.lapsed(left),
            Self::Abandoned => pending && header.lapsed(left),
            Self::Released => header.state == State::Released,
            Self::Exhausted => header.state == State::Released || pending && header.lapsed(left),
            Self::Unknown => header.is_unknown(left),
            Self::Answered => matches!(
                header.state,
                State::Done {
                    outcome: OutcomeKind::Value | OutcomeKind::Error,
                    ..
                }
            ),
            Self::NotStored => matches!(
                header.state,
                State::Done {
                    outcome: OutcomeKind::Tombstone,
                    ..
                }
            ),
        }
    }
}

/// One step of a listing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListRequest {
    /// The prefix of the records.
    pub prefix: Arc<str>,
    /// The operation of the records; `None`: all operations.
    pub operation: Option<Operation>,
    /// Which records to include.
    pub filter: EntryFilter,
    /// Records of fewer attempts are excluded.
    pub min_attempts: u16,
    /// How many records the step gives at most, at least 1.
    pub limit: usize,
    /// The most records to examine, 1 to 1,000, if the server permits.
    pub examined: usize,
    /// Where the last step ended, as its [`next`](ListReply::next); `None`: at the start.
    pub after: Option<String>,
}

impl ListRequest {
    /// The first step of a listing of every record under this prefix.
    #[must_use]
    pub fn new(prefix: Arc<str>) -> Self {
        Self {
            prefix,
            operation: None,
            filter: EntryFilter::Any,
            min_attempts: 0,
            limit: 100,
            examined: EXAMINED,
            after: None,
        }
    }

    /// Whether a record with this header and remaining life is requested.
    #[must_use]
    pub fn wants(&self, header: &Header, left: Duration) -> bool {
        header.attempts >= self.min_attempts && self.filter.matches(header, left)
    }

    /// Whether every record under the prefix, or of the operation, is requested.
    #[cfg(feature = "_server")]
    pub(crate) fn wants_all(&self) -> bool {
        self.filter == EntryFilter::Any && self.min_attempts == 0
    }
}

/// The reply to a step of a listing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListReply {
    /// The records.
    pub found: Vec<Listed>,
    /// The number of records in this step that this version cannot read.
    pub unreadable: u64,
    /// Where the next step continues; `None`: this was the last one.
    pub next: Option<String>,
}

/// A record of a listing, without its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The key of the record.
    pub key: RecordKey,
    /// Its header.
    pub header: Header,
    /// How long it will still be kept.
    pub left: Duration,
}

impl Listed {
    /// A record with this header, to be kept for `left`.
    #[must_use]
    pub fn new(key: RecordKey, header: Header, left: Duration) -> Self {
        Self { key, header, left }
    }
}

/// The reply of a store that cannot list.
pub(super) fn unsupported(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unsupported, message)
}

/// The reply to a position that is not one of the store.
pub(crate) fn no_position() -> StoreError {
    let message = "the cursor is none of this store's; begin the listing again";
    StoreError::new(StoreErrorKind::InvalidCursor, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Fence, Owner};

    /// Every record has exactly one state; exhausted ones are abandoned or released.
    #[test]
    fn the_states_part_the_records() {
        use EntryFilter::{Abandoned, Answered, Exhausted, NotStored, Released, Running, Unknown};
        let (lease, retain) = (Duration::from_secs(30), Duration::from_secs(60 * 60));
        let done = |outcome| State::Done { outcome, schema: 7 };
        let lapsed = retain.saturating_sub(lease);
        for (state, left, expected) in [
            (State::Pending { lease }, retain, Running),
            (State::Pending { lease }, lapsed, Abandoned),
            (State::Reconciling { lease }, retain, Running),
            (State::Reconciling { lease }, lapsed, Unknown),
            (State::Released, retain, Released),
            (done(OutcomeKind::Value), retain, Answered),
            (done(OutcomeKind::Error), retain, Answered),
            (done(OutcomeKind::Unknown), retain, Unknown),
            (done(OutcomeKind::Tombstone), retain, NotStored),
        ] {
            let header = Header::new(state, Owner::from_bytes([1; 16]), Fence::new(1), retain);
            let states = [Running, Abandoned, Released, Answered, NotStored, Unknown];
            let of = states.into_iter().filter(|of| of.matches(&header, left));
            assert_eq!(of.collect::<Vec<_>>(), [expected], "{state:?}");
            assert!(EntryFilter::Any.matches(&header, left));
            let waits = matches!(expected, Abandoned | Released);
            assert_eq!(Exhausted.matches(&header, left), waits, "{state:?}");
        }
    }
}
