//! A record as a row.

use std::time::Duration;

use bytes::Bytes;

use super::argument::SqlArgument;
use super::columns::FOREVER_LIFE;
use super::error::SqlError;
use super::session::SqlRow;
use crate::record::{FOREVER, HEADER, JournalKind, Owner, Record, Unreadable};
use crate::store::{StoreError, StoreErrorKind};

/// A row as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    record: Bytes,
    owner: [u8; 16],
    fence: i64,
    left_us: i64,
    pub(crate) now_us: u64,
    /// Below zero: the statement that returned the row has inserted it.
    version: i64,
    /// The size of a record whose answer exceeds the read limit.
    too_large: Option<usize>,
}

/// The columns of a row, borrowed from the client.
struct RowColumns<'r> {
    layout: i64,
    state: &'r str,
    owner: &'r [u8],
    fence: i64,
    attempts: i64,
    detail: i64,
    retain_ms: i64,
    fingerprint: &'r [u8],
    body: Option<&'r [u8]>,
    left_us: i64,
    now_us: i64,
    version: i64,
    body_bytes: Option<i64>,
}

impl Row {
    /// The size of the record in bytes.
    pub(super) fn weight(&self) -> usize {
        self.record.len()
    }

    /// Reads the columns of a table's row, which come first.
    pub(crate) fn read(row: &dyn SqlRow) -> Result<Self, SqlError> {
        let state = row.text(1)?.ok_or_else(SqlError::null)?;
        let bytes = |column| row.bytes(column)?.ok_or_else(SqlError::null);
        let (owner, fingerprint, body) = (bytes(2)?, bytes(7)?, row.bytes(8)?);
        Ok(Self::new(&RowColumns {
            layout: row.number(0)?,
            state: &state,
            owner: &owner,
            fence: row.number(3)?,
            attempts: row.number(4)?,
            detail: row.number(5)?,
            retain_ms: row.number(6)?,
            fingerprint: &fingerprint,
            body: body.as_deref(),
            left_us: row.number(9)?,
            now_us: row.number(10)?,
            version: row.number(11)?,
            body_bytes: row.int(12)?,
        }))
    }

    /// Assembles the bytes of the record, with one copy of the answer.
    fn new(parts: &RowColumns<'_>) -> Self {
        // A record of another layout is refused unchanged.
        let record = match bytes(parts) {
            Some(record) => record,
            None => Bytes::copy_from_slice(parts.body.unwrap_or_default()),
        };
        Self {
            record,
            owner: parts.owner.try_into().unwrap_or_default(),
            fence: parts.fence,
            left_us: parts.left_us,
            now_us: u64::try_from(parts.now_us).unwrap_or_default(),
            version: parts.version,
            too_large: (parts.body_bytes)
                .filter(|_| parts.body.is_none())
                .and_then(|bytes| usize::try_from(bytes).ok())
                .map(|bytes| HEADER + bytes),
        }
    }

    /// Refuses a record that is alive, and larger than the read limit.
    pub(crate) fn readable(&self, most: usize) -> Result<(), StoreError> {
        let Some(bytes) = self.too_large.filter(|_| self.is_alive()) else {
            return Ok(());
        };
        Err(StoreError::new(
            StoreErrorKind::TooLarge,
            format!("the record has {bytes} bytes; `max_record_bytes` is {most}"),
        ))
    }

    /// The record and its remaining life; `None` if its life is over.
    pub(crate) fn record(&self) -> Result<Option<(Record, Duration)>, Unreadable> {
        let Ok(left) = u64::try_from(self.left_us) else {
            return Ok(None);
        };
        if left == 0 {
            return Ok(None);
        }
        let record = Record::decode(self.record.clone())?;
        let mut left = Duration::from_micros(left);
        if record.header.retain == FOREVER {
            left = FOREVER.saturating_sub(FOREVER_LIFE.saturating_sub(left));
        }
        Ok(Some((record, left)))
    }

    /// Whether its life is not over.
    pub(super) fn is_alive(&self) -> bool {
        self.left_us > 0
    }

    /// Version, owner and fence of the last write, as statements compare them.
    pub(crate) fn last_write(&self) -> [SqlArgument<'_>; 3] {
        let [version, fence] = [self.version, self.fence].map(SqlArgument::Int);
        [version, SqlArgument::Bytes(&self.owner), fence]
    }

    /// The fence of a record that this row's statement has inserted.
    pub(crate) fn fence(&self) -> i64 {
        self.fence
    }

    /// The bytes of the record.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        (self.left_us > 0).then_some(&self.record)
    }

    /// Whether this owner wrote it last.
    pub(crate) fn is_of(&self, owner: &Owner) -> bool {
        self.owner == *owner.as_bytes()
    }

    /// Whether the statement that returned this row inserted it, for this owner.
    pub(crate) fn is_fresh(&self, owner: &Owner) -> bool {
        self.version < 0 && self.is_of(owner)
    }
}

/// The bytes of a record, if it is of this layout.
///
/// `None` if it is of another, or if a column has a value outside of this one.
fn bytes(parts: &RowColumns<'_>) -> Option<Bytes> {
    let body = parts.body.unwrap_or_default();
    let mut record = Vec::with_capacity(HEADER + body.len());
    record.push(
        u8::try_from(parts.layout)
            .ok()
            .filter(|layout| JournalKind::of_layout(*layout).is_some())?,
    );
    let &[state] = parts.state.as_bytes() else {
        return None;
    };
    record.push(state);
    record.extend(parts.owner);
    for (number, bytes) in [
        (parts.fence, 7),
        (parts.attempts, 2),
        (parts.detail, 4),
        (parts.retain_ms, 5),
    ] {
        let number = u64::try_from(number)
            .ok()
            .filter(|n| n >> (bytes * 8) == 0)?;
        record.extend(&number.to_be_bytes()[8 - bytes..]);
    }
    record.extend(parts.fingerprint);
    (record.len() == HEADER && parts.owner.len() == 16).then_some(())?;
    record.extend(body);
    Some(record.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Fence, Header, LAYOUT_ATTEMPTS, OutcomeKind, State};

    #[test]
    fn the_header_of_an_answer_with_attempts_is_listed() {
        let state = State::Done {
            outcome: OutcomeKind::Value,
            schema: 7,
        };
        let owner = Owner::from_bytes([1; 16]);
        let header = Header::new(state, owner, Fence::new(9), Duration::from_hours(1));
        // As a listing reads it: without the answer.
        let row = Row::new(&RowColumns {
            layout: LAYOUT_ATTEMPTS.into(),
            state: "D",
            owner: owner.as_bytes(),
            fence: 9,
            attempts: 0,
            detail: 7,
            retain_ms: 3_600_000,
            fingerprint: &header.encode()[36..],
            body: None,
            left_us: 1_000_000,
            now_us: 1,
            version: 1,
            body_bytes: None,
        });
        assert!(matches!(row.record(), Ok(Some((record, _))) if record.header.state == state));
    }
}
