//! The record of one key: its bytes and its transitions. Pure: no store, no clock, no I/O.
//!
//! A store that keeps records itself ([`memory`](crate::store::memory)) calls the transitions; a store whose server
//! decides (Redis scripts, SQL) implements the same ones there. The conformance suite requires the same replies of all
//! of them.
//!
//! # Time
//!
//! A record carries no moment, only durations. Its age follows from the time that the store will still keep it (`left`,
//! Redis' `PTTL`): a record is written to live for `retain`, so `retain - left` is its age, and a claim's lease has
//! `lease - age` left. Client clocks, time zones and steps of a client's clock therefore cannot end a lease.

pub(crate) mod transition;
pub(crate) mod unknown_cause;

mod types;
mod unreadable;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

pub use self::types::AnswerTypes;
pub use self::unreadable::Unreadable;
use crate::identity::fingerprint::Fingerprint;

/// Bytes before the body.
pub const HEADER: usize = 56;
/// The first byte of every record that this version writes and reads.
pub const LAYOUT: u8 = b'2';
/// The longest time a record can be kept other than [`FOREVER`]: the range of the field, about 34 years.
pub const MAX_RETAIN: Duration = Duration::from_millis(RETAIN_FOREVER - 1);
/// The `ttl` of an answer that is kept as long as its store: `ttl = forever`. Only a store that
/// [can](crate::store::Store::keeps_forever) takes it.
pub const FOREVER: Duration = Duration::MAX;
/// The value of the field for [`FOREVER`].
const RETAIN_FOREVER: u64 = (1 << 40) - 1;

/// Owner of a claim: 128 random bits, new for every attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// The second half of an operator's owner. Of 2⁶⁴ attempts one has it by chance.
    const BY_HAND: [u8; 8] = *b"\0by hand";

    /// A new owner.
    ///
    /// # Panics
    ///
    /// If the operating system gives no randomness, since an owner that another attempt may also have would protect
    /// nothing.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        Self(bytes)
    }

    /// A new owner for a record that an operator writes: 64 random bits, and a mark.
    pub(crate) fn by_hand() -> Self {
        let Self(mut bytes) = Self::random();
        bytes[8..].copy_from_slice(&Self::BY_HAND);
        Self(bytes)
    }

    /// Whether an operator wrote the record, by a resolution or a reset.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.0[8..] == Self::BY_HAND
    }

    /// An owner with known bytes, as a store reads it back.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes that the store compares.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes distinguish owners in a log, and do not suffice to impersonate one.
        f.write_str("Owner(")?;
        for byte in &self.0[..4] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("…)")
    }
}

/// The fencing token of a claim.
///
/// It grows with every claim of a key: microseconds of the store's clock, or the last fence plus one where that is
/// more. 56 bits are stored; microseconds stay below the 53 bits that Lua and JSON hold exactly until the year 2255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(u64);

impl Fence {
    const BITS: u32 = 56;

    /// A fence as a store reads it back; only the low 56 bits count.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number & ((1 << Self::BITS) - 1))
    }

    /// The number, for downstream systems that refuse lower ones.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fence of the next claim.
    #[must_use]
    pub fn next(self, now_us: u64) -> Self {
        Self::new(now_us.max(self.0 + 1))
    }
}

/// The kind of outcome that a done record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutcomeKind {
    /// The value of a success.
    Value,
    /// A business error.
    Error,
    /// The effect may or may not have happened. No body.
    Unknown,
    /// It happened, but the answer could not be kept. No body.
    Tombstone,
}

impl OutcomeKind {
    const fn byte(self) -> u8 {
        match self {
            Self::Value => b'D',
            Self::Error => b'E',
            Self::Unknown => b'U',
            Self::Tombstone => b'T',
        }
    }
}

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// A claim is held, or its owner vanished.
    Pending {
        /// How long the claim lasts from its last renewal.
        lease: Duration,
    },
    /// Finished; the answer follows the header.
    Done {
        /// The kind of the outcome.
        outcome: OutcomeKind,
        /// The type that was written, see [`Outcome`](crate::Outcome).
        schema: u32,
    },
    /// Released. Kept for its counter and fence.
    Released,
    /// An earlier attempt is being reconciled, or the owner of that claim vanished: then the outcome is unknown, as it
    /// was before.
    Reconciling {
        /// How long the claim lasts from its last renewal.
        lease: Duration,
    },
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The state of the record.
    pub state: State,
    /// The owner of the attempt that wrote it last.
    pub owner: Owner,
    /// The fence of that attempt.
    pub fence: Fence,
    /// Attempts that count: started, minus orderly releases.
    pub attempts: u16,
    /// How long the record was written to be kept.
    pub retain: Duration,
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The types of the answers.
    pub types: AnswerTypes,
}

impl Header {
    /// The 56 bytes in front of the body.
    ///
    /// ```text
    ///  0     layout, '2'
    ///  1     state: P pending, W the same and somebody waits, R released, Q reconciling;
    ///        done: D value, E error, U unknown, T tombstone
    ///  2–17  owner
    /// 18–24  fence, microseconds              all numbers big-endian
    /// 25–26  attempts
    /// 27–30  P W Q: lease, milliseconds       D E T: schema, U: cause
    /// 31–35  retain, milliseconds; all ones for ever
    /// 36–51  fingerprint
    /// 52–53  tag of the type of the value     0: not known
    /// 54–55  tag of the type of a kept error  0: not known, 1: none is kept
    /// 56–    the answer (D, E)
    /// ```
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let word = |lease| u32::try_from(millis(lease)).unwrap_or(u32::MAX);
        let (state, word) = match self.state {
            State::Pending { lease } => (b'P', word(lease)),
            State::Reconciling { lease } => (b'Q', word(lease)),
            State::Done { outcome, schema } => (outcome.byte(), schema),
            State::Released => (b'R', 0),
        };
        let mut out = [0; HEADER];
        out[0] = LAYOUT;
        out[1] = state;
        out[2..18].copy_from_slice(self.owner.as_bytes());
        out[18..25].copy_from_slice(&self.fence.get().to_be_bytes()[1..]);
        out[25..27].copy_from_slice(&self.attempts.to_be_bytes());
        out[27..31].copy_from_slice(&word.to_be_bytes());
        let retain = match self.retain {
            FOREVER => RETAIN_FOREVER,
            retain => millis(retain),
        };
        out[31..36].copy_from_slice(&retain.to_be_bytes()[3..]);
        out[36..52].copy_from_slice(self.fingerprint.as_bytes());
        out[52..].copy_from_slice(&self.types.to_bytes());
        out
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] if it is too short, of another layout, or in a state that this version does
    /// not know. Such a record is refused and never replaced.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let Some(&layout) = bytes.first() else {
            return Err(Unreadable::Short { bytes: 0 });
        };
        if layout != LAYOUT {
            return Err(Unreadable::Layout { byte: layout });
        }
        let header: &[u8; HEADER] = bytes
            .first_chunk()
            .ok_or(Unreadable::Short { bytes: bytes.len() })?;
        let word = u32::from_be_bytes(part(header, 27));
        let done = |outcome| State::Done {
            outcome,
            schema: word,
        };
        let state = match header[1] {
            // `W` marks a waiting call, which concerns only the store.
            b'P' | b'W' => State::Pending {
                lease: Duration::from_millis(word.into()),
            },
            b'Q' => State::Reconciling {
                lease: Duration::from_millis(word.into()),
            },
            b'R' => State::Released,
            b'D' => done(OutcomeKind::Value),
            b'E' => done(OutcomeKind::Error),
            b'U' => done(OutcomeKind::Unknown),
            b'T' => done(OutcomeKind::Tombstone),
            byte => return Err(Unreadable::State { byte }),
        };
        Ok(Self {
            state,
            owner: Owner(part(header, 2)),
            fence: Fence::new(number(&header[18..25])),
            attempts: u16::from_be_bytes(part(header, 25)),
            retain: match number(&header[31..36]) {
                RETAIN_FOREVER => FOREVER,
                retain => Duration::from_millis(retain),
            },
            fingerprint: Fingerprint::from_bytes(part(header, 36)),
            types: AnswerTypes::from_bytes(part(header, 52)),
        })
    }

    /// The rest of the lease, if the store will keep the record for `left` more. Zero when it has lapsed, or when no
    /// claim is held.
    #[must_use]
    pub fn lease_left(&self, left: Duration) -> Duration {
        match self.state {
            State::Pending { lease } | State::Reconciling { lease } => {
                lease.saturating_sub(self.age(left))
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether no claim is held, or its lease is over.
    #[must_use]
    pub fn lapsed(&self, left: Duration) -> bool {
        self.lease_left(left).is_zero()
    }

    /// Whether the outcome is unknown, and no reconciliation is under way.
    #[must_use]
    pub fn is_unknown(&self, left: Duration) -> bool {
        match self.state {
            State::Done { outcome, .. } => outcome == OutcomeKind::Unknown,
            State::Reconciling { .. } => self.lapsed(left),
            _ => false,
        }
    }

    /// Whether the record is a success, even one without a kept answer.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(
            self.state,
            State::Done {
                outcome: OutcomeKind::Value | OutcomeKind::Tombstone,
                ..
            }
        )
    }

    /// How long the store will still keep the record: `left`, or for ever.
    pub(crate) fn remaining(&self, left: Duration) -> Duration {
        // Of a record that is kept for ever, `left` says how old it is.
        if self.retain == FOREVER {
            FOREVER
        } else {
            left
        }
    }

    /// How long ago the record was written or renewed.
    #[must_use]
    pub fn age(&self, left: Duration) -> Duration {
        self.retain.saturating_sub(left)
    }
}

fn part<const N: usize>(header: &[u8; HEADER], at: usize) -> [u8; N] {
    *header[at..]
        .first_chunk()
        .expect("every field lies inside the header")
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn millis(duration: Duration) -> u64 {
    // Bounded by the policy's limits; the clamp keeps a direct user of the store inside the field.
    u64::try_from(duration.min(MAX_RETAIN).as_millis()).unwrap_or(u64::MAX)
}

/// A record as a store returns it: header and answer share one allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The decoded header.
    pub header: Header,
    bytes: Bytes,
}

impl Record {
    /// Takes over the bytes of a record.
    ///
    /// # Errors
    ///
    /// [`Unreadable`], as [`Header::decode`].
    pub fn decode(bytes: Bytes) -> Result<Self, Unreadable> {
        let header = Header::decode(&bytes)?;
        Ok(Self { header, bytes })
    }

    /// `header` must be that of `bytes`.
    pub(crate) fn new(header: Header, bytes: Bytes) -> Self {
        Self { header, bytes }
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The stored answer; empty unless the record is done with a value or an error.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The record as it is stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("header", &self.header)
            .field("body_bytes", &self.body().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
