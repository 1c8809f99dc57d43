//! The header of a record, and its 56 bytes. The bytes after it: `outcome/codec/layout.rs`.

use std::time::Duration;

use super::answer_types::AnswerTypes;
use super::fence::Fence;
use super::journal::JournalKind;
use super::outcome_kind::OutcomeKind;
use super::owner::Owner;
use super::unreadable::Unreadable;
use crate::identity::fingerprint::Fingerprint;

/// Bytes before the body.
pub const HEADER: usize = 56;
/// The longest time a record can be kept other than [`FOREVER`]: the range of the field, about 34 years.
pub const MAX_RETAIN: Duration = Duration::from_millis(RETAIN_FOREVER - 1);
/// The `ttl` of an answer kept as long as its store: `ttl = forever`. Only a store that
/// [can](crate::store::Store::keeps_forever) takes it.
pub const FOREVER: Duration = Duration::MAX;
/// The value of the field for [`FOREVER`].
const RETAIN_FOREVER: u64 = (1 << 40) - 1;

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// A claim is held, or its owner crashed.
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
    /// An attempt is being reconciled, or that claim's owner crashed: then the outcome is unknown, as it was before.
    Reconciling {
        /// How long the claim lasts from its last renewal.
        lease: Duration,
    },
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// The kind of its [`Journal`](super::Journal), which follows the header, or the answer.
    pub journal: JournalKind,
}

impl Header {
    /// The header of a first attempt, without a fingerprint and types.
    #[must_use]
    pub const fn new(state: State, owner: Owner, fence: Fence, retain: Duration) -> Self {
        Self {
            state,
            owner,
            fence,
            attempts: 1,
            retain,
            fingerprint: Fingerprint::NONE,
            types: AnswerTypes::UNKNOWN,
            journal: JournalKind::None,
        }
    }

    /// The 56 bytes in front of the body.
    ///
    /// ```text
    ///  0     layout, '2'; '3' with a journal of steps; '4' with a journal of attempts alone
    ///  1     state: P pending, W the same with a follower, R released, Q reconciling;
    ///        done: D value, E error, U unknown, T tombstone
    ///  2–17  owner
    /// 18–24  fence, microseconds              all numbers big-endian
    /// 25–26  attempts
    /// 27–30  P W Q: lease, milliseconds       D E T: schema, U: cause
    /// 31–35  retain, milliseconds; all ones for ever
    /// 36–51  fingerprint
    /// 52–53  tag of the type of the value     0: not known
    /// 54–55  tag of the type of a kept error  0: not known, 1: none is kept
    /// 56–    the answer (D, E); with layouts '3' and '4' the journal (P, R, Q, U); with layout '4' the answer, the
    ///        journal, and the length of that in 4 bytes (D, E, T)
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
        out[0] = self.journal.layout();
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
        let Some(journal) = JournalKind::of_layout(layout) else {
            return Err(Unreadable::Layout { byte: layout });
        };
        let header: &[u8; HEADER] = bytes
            .first_chunk()
            .ok_or(Unreadable::Short { bytes: bytes.len() })?;
        let word = u32::from_be_bytes(part(header, 27));
        let done = |outcome| State::Done {
            outcome,
            schema: word,
        };
        let state = match header[1] {
            // Steps and an answer are not in one record.
            byte @ (b'D' | b'E' | b'T') if journal == JournalKind::Steps => {
                return Err(Unreadable::State { byte });
            }
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
            owner: Owner::from_bytes(part(header, 2)),
            fence: Fence::new(number(&header[18..25])),
            attempts: u16::from_be_bytes(part(header, 25)),
            retain: match number(&header[31..36]) {
                RETAIN_FOREVER => FOREVER,
                retain => Duration::from_millis(retain),
            },
            fingerprint: Fingerprint::from_bytes(part(header, 36)),
            types: AnswerTypes::from_bytes(part(header, 52)),
            journal,
        })
    }

    /// The rest of the lease of a record with `left` to live. Zero when it has lapsed, or when no claim is held.
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

    /// Whether the record is done, even with an unkept answer.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.state, State::Done { .. }) && !self.is_done_unknown()
    }

    /// Whether the record is done with an unknown outcome.
    pub(crate) fn is_done_unknown(&self) -> bool {
        matches!(
            self.state,
            State::Done {
                outcome: OutcomeKind::Unknown,
                ..
            }
        )
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
        // Of a record that is kept for ever, `left` only measures its age.
        if self.retain == FOREVER {
            FOREVER
        } else {
            left
        }
    }

    /// How long ago the record was written or renewed.
    #[must_use]
    pub(crate) fn age(&self, left: Duration) -> Duration {
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
