//! The attempts that a record remembers: a flight recorder for operators.
//!
//! An entry of the [journal](super::journal) each, with a small letter, so that a version without them may ignore them.
//! Nothing decides by them. A call that succeeds at its first attempt has none.
//!
//! ```text
//!  4     kind: a ended in good order, written by the attempt; l lapsed, written with the claim that took over
//!  5–20  owner; the instance and the process are part of it, see `Owner::of_process`
//! 21–26  when it ended, milliseconds since 1970; of l: when the key was claimed again, by the store
//! 27–30  its end
//! 31–38  fence
//! 39–40  attempts that counted, with this one
//! 47–    name of the instance
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::codes::coded_words;
use super::fence::Fence;
use super::header::Header;
use super::journal::{EntryKind, Journal, JournalEntry};
use super::owner::{Owner, Process};
use crate::identity::fingerprint::Fingerprint;

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// It returned a value, which was kept.
    Value,
    /// It returned a business error, which was kept.
    BusinessError,
    /// It returned an error that is not kept: of class system, or by `on_error`. The key was released.
    SystemError,
    /// It returned an answer that could not be stored.
    NotStored,
    /// Its caller dropped it, or idem did, because its lease was lost.
    Cancelled,
    /// Its body panicked.
    Panicked,
    /// Its outcome was unknown.
    Unknown,
    /// It released its key without a result: a body that did not start, or a claim that was given back.
    Released,
    /// Its lease lapsed, and another attempt claimed the key: its process crashed, was paused, or lost its connection, or
    /// its caller went away and `on_cancel` held the key.
    Lapsed,
    /// An operator ended its claim or settled its record.
    ByOperator,
    /// An end that this version does not know.
    Other,
}

coded_words! {
    AttemptEnd: "What happened, and what of the [guarantee](crate::guide::guarantee) let a body start again, or not.",
        "a later version of idem recorded its end";
    1 Value "value":
        "it returned a value, which every later call gets: no body starts again (promise 2)";
    2 BusinessError "business-error":
        "it returned a business error, which was kept: every later call gets it (promise 2)";
    3 SystemError "system-error":
        "it returned an error that is not kept (of class system, or by `on_error`): the key was released, and the next \
         call runs the body (promise 4)";
    4 Cancelled "cancelled":
        "its body was dropped, when the caller went away or the lease was lost: by `on_cancel` the key was released, and \
         the next call runs the body (promise 4), or the outcome was recorded as unknown (promise 6)";
    5 Panicked "panicked":
        "its body panicked: by `on_panic` the key was released, and the next call runs the body (promise 4), or the \
         outcome was recorded as unknown (promise 6)";
    6 Unknown "unknown":
        "its outcome is not known: no body starts until a `reconcile` hook or an operator has settled it, or `ttl` has \
         passed (promise 6)";
    7 Lapsed "lapsed":
        "its lease lapsed before it had ended: its process died, was paused or was cut off from the store for longer than \
         the lease, its body ran for longer than `max_run`, or its caller went away (`on_cancel = hold`); the next call \
         took the key over (promises 1 and 4)";
    8 Released "released":
        "it gave its claim back: the next call runs the body (promise 4)";
    9 NotStored "not-stored":
        "it succeeded, and its answer could not be stored: later calls are refused, and no body starts again (promise 2)";
    10 ByOperator "ended-by-operator":
        "it had not ended when an operator ended its claim, or settled its record (promise 4): if its process was alive, \
         its body may have run on";
}

/// An ended attempt, as the record of its call remembers it.
///
/// Of a call at most 16 are kept: the first, and the last ones.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The owner of its claim.
    pub owner: Owner,
    /// Its fencing token: where the store grants it by its clock, the microsecond of its start.
    pub fence: Fence,
    /// The number of attempts that counted then, this one included.
    pub number: u16,
    /// How it ended.
    pub end: AttemptEnd,
    /// When it ended, by the clock of its process; of a [lapsed](AttemptEnd::Lapsed) one, when another attempt claimed
    /// the key, by the store.
    pub ended: SystemTime,
    /// The [name](crate::EngineBuilder::instance) of its instance; empty after a lapse.
    pub instance: String,
}

impl Attempt {
    /// An attempt of this claim, on this instance, that ended like this.
    #[doc(hidden)] // for the model of idem-conformance
    #[must_use]
    pub fn new(claim: &Header, end: AttemptEnd, ended: SystemTime, instance: &str) -> Self {
        Self {
            owner: claim.owner,
            fence: claim.fence,
            number: claim.attempts,
            end,
            ended,
            instance: instance.to_owned(),
        }
    }

    /// When it started, by the store's clock.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.fence.get())
    }

    /// The process that ran it, if its engine recorded attempts.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        self.owner.process()
    }

    pub(crate) fn entry(&self) -> JournalEntry {
        let mut input = [0; 16];
        input[..8].copy_from_slice(&self.fence.get().to_be_bytes());
        input[8..10].copy_from_slice(&self.number.to_be_bytes());
        JournalEntry {
            kind: if self.end == AttemptEnd::Lapsed {
                EntryKind::Lapsed
            } else {
                EntryKind::Attempt
            },
            step: *self.owner.as_bytes(),
            at: self.ended,
            schema: self.end.code(),
            input: Fingerprint::from_bytes(input),
            label: self.instance.clone(),
            body: Bytes::new(),
        }
    }

    pub(super) fn of(entry: JournalEntry) -> Option<Self> {
        if !entry.kind.is_attempt() {
            return None;
        }
        let input = entry.input.as_bytes();
        let fence = input
            .first_chunk()
            .map(|fence| u64::from_be_bytes(*fence))?;
        Some(Self {
            owner: Owner::from_bytes(entry.step),
            fence: Fence::new(fence),
            number: u16::from_be_bytes([input[8], input[9]]),
            end: AttemptEnd::of(entry.schema),
            ended: entry.at,
            instance: entry.label,
        })
    }
}

impl Journal {
    /// The attempts that the record remembers, from first to last.
    #[doc(hidden)] // for the model of idem-conformance
    #[must_use]
    pub fn recorded_attempts(&self) -> Vec<Attempt> {
        let entries = self.entries().map_while(Result::ok);
        entries.filter_map(Attempt::of).collect()
    }

    /// The journal with one more attempt. Of more than [`MAX_ATTEMPTS`](Self::MAX_ATTEMPTS) the first and the last ones
    /// remain.
    #[doc(hidden)] // for the model of idem-conformance
    #[must_use]
    pub fn with_attempt(&self, attempt: &Attempt) -> Self {
        self.with(&attempt.entry())
    }
}

/// The journal of a lapsed claim at another owner's claim.
pub(crate) fn lapsed(journal: &Journal, claim: &Header, now_us: u64) -> Journal {
    let ended = UNIX_EPOCH + Duration::from_millis(now_us / 1_000);
    journal.with_attempt(&Attempt::new(claim, AttemptEnd::Lapsed, ended, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u16, end: AttemptEnd) -> Attempt {
        Attempt {
            owner: Owner::from_bytes([9; 16]),
            fence: Fence::new(1_790_000_000_123_456),
            number,
            end,
            ended: UNIX_EPOCH + Duration::from_secs(1_790_000_030),
            instance: "payments-7f9c".to_owned(),
        }
    }

    #[test]
    fn attempts_come_back_in_order() {
        let all: Vec<_> = (AttemptEnd::CODES.iter().zip(1..))
            .map(|((_, end), number)| attempt(number, *end))
            .collect();
        let journal = all.iter().fold(Journal::default(), |journal, attempt| {
            journal.with(&attempt.entry())
        });
        assert_eq!(journal.recorded_attempts(), all);
        assert_eq!(journal.attempts(), journal);
        // Frozen: a history of an older release is read for ever.
        let codes = AttemptEnd::CODES.iter();
        let codes: Vec<_> = codes
            .map(|(code, end)| format!("{code} {}", end.as_str()))
            .collect();
        let frozen = "1 value, 2 business-error, 3 system-error, 4 cancelled, 5 panicked, 6 unknown, 7 lapsed, \
                      8 released, 9 not-stored, 10 ended-by-operator";
        assert_eq!(codes.join(", "), frozen);
    }

    #[test]
    fn the_first_and_the_last_take_overs_are_kept() {
        let (state, owner) = (crate::record::State::Released, Owner::from_bytes([1; 16]));
        let header = Header::new(state, owner, Fence::new(7), Duration::ZERO);
        let journal = (1..=100).fold(Journal::default(), |journal, attempts| {
            lapsed(&journal, &Header { attempts, ..header }, 5_000)
        });
        let kept = journal.compacted().recorded_attempts();
        let numbers = kept.iter().map(|attempt| attempt.number);
        assert!(numbers.eq(std::iter::once(1).chain(86..=100)));
    }

    #[test]
    fn steps_that_cannot_be_read_are_no_attempts() {
        let broken = Journal::new(Bytes::from_static(b"\0\0\0\x09Z12345678"));
        assert_eq!(broken.attempts(), Journal::default());
        let first = Journal::default().with(&attempt(1, AttemptEnd::Lapsed).entry());
        let both = [&first.as_bytes()[..], &broken.as_bytes()[..]].concat();
        assert_eq!(Journal::new(both.into()).attempts(), first);
    }
}
