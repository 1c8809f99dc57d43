//! A record as a row.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::backend::Argument;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::record::{FOREVER, HEADER, Header, LAYOUT, Owner, Record, Unreadable};
use crate::store::{StoreError, StoreErrorKind};

/// The life of a record that is kept for ever, in its row.
///
/// `expires_us` lies this far ahead of the last write, so that the record's age is known as any other's. Longer than
/// any database is kept.
const AHEAD: Duration = Duration::from_hours(24 * 365 * 1_000);

/// The life of a record from now on, in the database's unit.
pub(crate) fn life_us(retain: Duration) -> i64 {
    let life = if retain == FOREVER { AHEAD } else { retain };
    i64::try_from(life.as_micros()).unwrap_or(i64::MAX / 2)
}

/// The length of a [`PrimaryKey`] in bytes.
pub(crate) const PRIMARY_KEY_LEN: usize = SPACE + 32;
const SPACE: usize = 16;

/// The primary key of a record: its [`space`], and its digest. So the records of an operation are adjacent, and a
/// listing reads their digests from it.
pub(crate) type PrimaryKey = [u8; PRIMARY_KEY_LEN];

/// The first bytes of the places of an operation: 16, whatever prefix and operation are.
fn space(prefix: &str, operation: &str) -> [u8; SPACE] {
    let mut hash = Sha256::new();
    for part in [prefix.as_bytes(), operation.as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    *hash.first_chunk().expect("32 are more than 16")
}

/// The place of a key's record.
pub(crate) fn primary_key(key: &RecordKey) -> PrimaryKey {
    primary_key_of(
        key.prefix(),
        key.operation().as_str(),
        *key.digest().as_bytes(),
    )
}

/// The first and the last place of an operation.
pub(super) fn primary_keys(prefix: &str, operation: &str) -> [PrimaryKey; 2] {
    [[0; 32], [0xff; 32]].map(|digest| primary_key_of(prefix, operation, digest))
}

fn primary_key_of(prefix: &str, operation: &str, digest: [u8; 32]) -> PrimaryKey {
    let mut primary_key = [0; PRIMARY_KEY_LEN];
    primary_key[..SPACE].copy_from_slice(&space(prefix, operation));
    primary_key[SPACE..].copy_from_slice(&digest);
    primary_key
}

/// The digest of the record at a place, if prefix and operation are these.
pub(super) fn digest_at(
    primary_key: &PrimaryKey,
    prefix: &str,
    operation: &str,
) -> Option<KeyDigest> {
    let digest = primary_key[SPACE..].try_into().ok()?;
    (primary_key[..SPACE] == space(prefix, operation)).then_some(KeyDigest::from_bytes(digest))
}

/// The operation as the table shows it to operators. It may be any text, but not every database accepts a zero byte,
/// and a column has a maximum length.
pub(crate) fn shown(key: &RecordKey) -> Cow<'_, str> {
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

    /// The arguments of a first claim, except its fence, which is the time.
    pub(crate) fn claim<'a>(&'a self, primary_key: &'a [u8], shown: &'a str) -> [Argument<'a>; 10] {
        [
            Argument::Bytes(primary_key),
            Argument::Text(shown),
            self.layout(),
            self.state(),
            self.owner(),
            self.attempts(),
            self.detail(),
            self.retain_ms(),
            self.fingerprint(),
            Argument::Int(life_us(self.retain)),
        ]
    }

    fn number(&self, from: usize, to: usize) -> i64 {
        let number = |number, byte: &u8| number << 8 | i64::from(*byte);
        self.bytes[from..to].iter().fold(0, number)
    }

    pub(crate) fn layout(&self) -> Argument<'_> {
        Argument::Int(self.bytes[0].into())
    }

    pub(crate) fn state(&self) -> Argument<'_> {
        // The state of a header is a letter.
        Argument::Text(std::str::from_utf8(&self.bytes[1..2]).unwrap_or_default())
    }

    pub(crate) fn owner(&self) -> Argument<'_> {
        Argument::Bytes(&self.bytes[2..18])
    }

    pub(crate) fn fence(&self) -> Argument<'_> {
        Argument::Int(self.number(18, 25))
    }

    pub(crate) fn attempts(&self) -> Argument<'_> {
        Argument::Int(self.number(25, 27))
    }

    pub(crate) fn detail(&self) -> Argument<'_> {
        Argument::Int(self.number(27, 31))
    }

    pub(crate) fn retain_ms(&self) -> Argument<'_> {
        Argument::Int(self.number(31, 36))
    }

    /// The fingerprint and the types of the answers, which are kept, compared and removed together.
    pub(crate) fn fingerprint(&self) -> Argument<'_> {
        Argument::Bytes(&self.bytes[36..])
    }
}

/// A row as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    record: Bytes,
    owner: [u8; 16],
    fence: i64,
    left_us: i64,
    pub(crate) now_us: u64,
    /// Below zero: the statement that returned the row has inserted it.
    pub(crate) version: i64,
    /// The size of a record whose answer exceeds the read limit.
    too_large: Option<usize>,
}

/// The columns of a row, borrowed from the driver.
pub(crate) struct RowColumns<'r> {
    pub(crate) layout: i64,
    pub(crate) state: &'r str,
    pub(crate) owner: &'r [u8],
    pub(crate) fence: i64,
    pub(crate) attempts: i64,
    pub(crate) detail: i64,
    pub(crate) retain_ms: i64,
    pub(crate) fingerprint: &'r [u8],
    pub(crate) body: Option<&'r [u8]>,
    pub(crate) left_us: i64,
    pub(crate) now_us: i64,
    pub(crate) version: i64,
    pub(crate) body_bytes: Option<i64>,
}

impl Row {
    /// The size of the record in bytes.
    pub(super) fn weight(&self) -> usize {
        self.record.len()
    }

    /// Assembles the bytes of the record, with one copy of the answer.
    pub(crate) fn new(parts: &RowColumns<'_>) -> Self {
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
            left = FOREVER.saturating_sub(AHEAD.saturating_sub(left));
        }
        Ok(Some((record, left)))
    }

    /// Whether its life is not over.
    pub(super) fn is_alive(&self) -> bool {
        self.left_us > 0
    }

    /// The owner and the fence of the last write, as the statements compare them.
    pub(crate) fn written_by(&self) -> (&[u8; 16], i64) {
        (&self.owner, self.fence)
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
            .filter(|layout| *layout == LAYOUT)?,
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
