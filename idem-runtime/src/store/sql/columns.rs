//! The columns of a header, as arguments of a statement.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use super::argument::SqlArgument;
use crate::identity::operation::RecordKey;
use crate::record::{FOREVER, HEADER, Header, State};

/// The life of a permanent record, in its row.
///
/// `expires_us` lies this far ahead of the last write, so that the record's age is known as any other's. Longer than
/// any database is kept.
pub(super) const FOREVER_LIFE: Duration = Duration::from_secs(1_000 * 365 * 24 * 60 * 60);

/// The life of a record from now on, in the database's unit.
pub(crate) fn life_us(retain: Duration) -> i64 {
    let life = if retain == FOREVER {
        FOREVER_LIFE
    } else {
        retain
    };
    i64::try_from(life.as_micros()).unwrap_or(i64::MAX / 2)
}

/// The operation as the table shows it to operators.
///
/// It may be any text, but not every database accepts a zero byte,
/// and a column has a maximum length.
#[allow(
    clippy::incompatible_msrv,
    reason = "sqlx needs a newer compiler than the crate"
)]
pub(crate) fn displayed_operation(key: &RecordKey) -> Cow<'_, str> {
    let name = key.operation().as_str();
    let name = &name[..name.floor_char_boundary(255)];
    if name.contains('\0') {
        name.replace('\0', "\u{fffd}").into()
    } else {
        name.into()
    }
}

/// The column `fingerprint` of a record that was released with nothing remaining.
pub(crate) const NO_FINGERPRINT: [u8; 20] = [0; 20];

/// The columns of a header.
pub(crate) struct HeaderColumns {
    bytes: [u8; HEADER],
    pub(crate) retain: Duration,
}

impl HeaderColumns {
    pub(crate) fn new(header: &Header) -> Self {
        Self {
            bytes: header.encode(),
            retain: header.retain,
        }
    }

    /// The arguments of a first claim, except its fence, the time.
    pub(crate) fn claim<'a>(
        &'a self,
        primary_key: &'a [u8],
        shown: &'a str,
    ) -> [SqlArgument<'a>; 10] {
        let [layout, state, owner, _, attempts, detail, retain, print] = self.all();
        let (key, shown) = (SqlArgument::Bytes(primary_key), SqlArgument::Text(shown));
        let life = SqlArgument::Int(life_us(self.retain));
        [
            key, shown, layout, state, owner, attempts, detail, retain, print, life,
        ]
    }

    /// Layout, state, owner, fence, attempts, detail, `retain_ms`, and fingerprint.
    ///
    /// The last one has the types of the answers too, which are kept, compared and removed with it.
    pub(crate) fn all(&self) -> [SqlArgument<'_>; 8] {
        let number = |number, byte: &u8| number << 8 | i64::from(*byte);
        let int = |at: Range<usize>| SqlArgument::Int(self.bytes[at].iter().fold(0, number));
        [
            int(0..1),
            // The state of a header is a letter.
            SqlArgument::Text(std::str::from_utf8(&self.bytes[1..2]).unwrap_or_default()),
            SqlArgument::Bytes(&self.bytes[2..18]),
            int(18..25),
            int(25..27),
            int(27..31),
            int(31..36),
            SqlArgument::Bytes(&self.bytes[36..]),
        ]
    }
}

/// The answer or the journal, for records that have one.
pub(super) fn stored_body<'a>(header: &Header, body: &'a [u8]) -> SqlArgument<'a> {
    let done = matches!(header.state, State::Done { .. });
    if done || !header.journal.is_none() {
        SqlArgument::Bytes(body)
    } else {
        SqlArgument::Null
    }
}
