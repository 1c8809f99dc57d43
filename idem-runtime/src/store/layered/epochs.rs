//! Epochs: which copies are valid.
//!
//! An answer is final until its key is reset, and no store in front can be relied on to have received that reset: it
//! may have been down, come back with an old snapshot, or be a cache of one process among many. So a copy's name
//! contains a number, the *epoch* of its prefix: the fence of a record of its own in the durable store. A process that
//! has not read that record within the time of trust answers nothing from copies.
//!
//! A reset of an answer *closes* the epoch first, by a claim of that record, which begins a new number; waits until no
//! process trusts the earlier epoch; then resets the key; and opens the epoch, by releasing the record, unless another
//! reset has closed it before or meanwhile. While it is closed nothing is copied and nothing answered from copies. An
//! epoch that stays closed, because of several resets at a time, or because the process that closed it is gone or does
//! not know whether it has reset the key, is opened by any process that notices.
//!
//! A process that was stalled after closing the epoch closes it again before its reset. A reset that the durable store
//! executes later than that finds the epoch open, with copies of the answer, and its process closes it again *after* the
//! reset: until then, and for as long as the copies live if that process ends in between, they give the old answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::env::lock::Lock;
use crate::env::moment::Moment;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, Prefix, RecordKey};
use crate::record::transition::ClaimRequest;
use crate::record::{Header, MAX_RETAIN, Owner, State};
use crate::store::ReadReply;

/// How long after the trust only the closing process opens an epoch.
const ABANDONED: Duration = Duration::from_secs(10);
/// How long the epoch of an unused prefix is still read.
const IDLE: Duration = Duration::from_secs(30);

/// The epochs of the prefixes in use.
#[derive(Debug)]
pub(super) struct Epochs {
    pub(super) trust: Duration,
    prefixes: Lock<HashMap<Arc<str>, PrefixEpoch>>,
}

#[derive(Debug)]
struct PrefixEpoch {
    known: Option<EpochReading>,
    used: Instant,
    /// Whether a task reads the epoch periodically.
    tended: bool,
}

#[derive(Debug)]
struct EpochReading {
    epoch: Epoch,
    /// The prefix of its copies, while it is open.
    copies: Option<Prefix>,
    /// When the request of the last reading was sent.
    asked: Moment,
    /// When the request of the first reading of this epoch was sent.
    since: Instant,
}

/// The epoch as stored in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Epoch {
    Open(u64),
    Closed(Header),
}

impl Epoch {
    /// `None` if the record is not one of an epoch.
    pub(super) fn of(reply: &ReadReply) -> Option<Self> {
        match reply {
            ReadReply::Absent => Some(Self::Open(0)),
            ReadReply::Found { record, .. } => {
                let header = record.header;
                match header.state {
                    State::Released => Some(Self::Open(header.fence.get())),
                    State::Pending { .. } => Some(Self::Closed(header)),
                    _ => None,
                }
            }
            ReadReply::Unreadable(_) => None,
        }
    }
}

/// How long a reading of an epoch is trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    asked: Moment,
    lasts: Duration,
}

impl Trust {
    /// Whether calls are answered from copies at this moment.
    ///
    /// By both clocks, because another process resets a key while this one is suspended and its monotonic clock stops.
    pub(super) fn holds(self, now: Moment) -> bool {
        now.is_within(self.lasts, self.asked)
    }
}

/// The epoch as far as it is known.
pub(super) struct Seen {
    pub(super) copies: Option<Prefix>,
    pub(super) trust: Option<Trust>,
    pub(super) is_tended: bool,
}

impl Epochs {
    pub(super) fn new(trust: Duration) -> Self {
        Self {
            trust,
            prefixes: Lock::default(),
        }
    }

    pub(super) fn see(&self, prefix: &str, now: Instant) -> Seen {
        let mut prefixes = self.prefixes.lock();
        let Some(prefix) = prefixes.get_mut(prefix) else {
            return Seen {
                copies: None,
                trust: None,
                is_tended: false,
            };
        };
        prefix.used = now;
        let known = prefix.known.as_ref();
        Seen {
            copies: known.and_then(|known| known.copies.clone()),
            trust: known.map(|known| Trust {
                asked: known.asked,
                lasts: self.trust,
            }),
            is_tended: prefix.tended,
        }
    }

    /// Takes over the reading of the epoch. `false`: a task reads it already.
    pub(super) fn tend(&self, prefix: &Arc<str>, now: Instant) -> bool {
        let mut prefixes = self.prefixes.lock();
        let prefix = prefixes.entry(Arc::clone(prefix)).or_insert(PrefixEpoch {
            known: None,
            used: now,
            tended: false,
        });
        !std::mem::replace(&mut prefix.tended, true)
    }

    /// Whether to continue reading.
    pub(super) fn goes_on(&self, prefix: &str, now: Instant) -> bool {
        let prefixes = self.prefixes.lock();
        let prefix = prefixes.get(prefix);
        prefix.is_some_and(|prefix| now.duration_since(prefix.used) < IDLE.max(self.trust))
    }

    /// Ends the reading of the epoch: the next call begins anew.
    pub(super) fn untend(&self, prefix: &str) {
        if let Some(prefix) = self.prefixes.lock().get_mut(prefix) {
            prefix.tended = false;
        }
    }

    /// Stores a reading by a request that was sent at `asked`.
    pub(super) fn learn(&self, prefix: &Arc<str>, epoch: Epoch, asked: Moment) {
        let mut prefixes = self.prefixes.lock();
        let prefix_state = prefixes.entry(Arc::clone(prefix)).or_insert(PrefixEpoch {
            known: None,
            used: asked.monotonic,
            tended: false,
        });
        match &mut prefix_state.known {
            // A reply to an earlier request than the known one.
            Some(known) if known.asked.monotonic > asked.monotonic => {}
            Some(known) if known.epoch == epoch => known.asked = asked,
            known => {
                let copies = match epoch {
                    // No prefix of an engine contains `+`, and it needs no quoting.
                    Epoch::Open(number) => Some(Prefix::new(&format!("{prefix}:+{number:x}"))),
                    Epoch::Closed(_) => None,
                };
                *known = Some(EpochReading {
                    epoch,
                    copies,
                    asked,
                    since: asked.monotonic,
                });
            }
        }
    }

    /// Whether an epoch closed so long ago is still closed.
    ///
    /// Half of the time in which none does is left for the reset.
    pub(super) fn is_surely_closed(&self, passed: Duration) -> bool {
        passed < ABANDONED / 2 + self.trust
    }

    /// The header of an epoch whose closing process must be gone.
    ///
    /// It has been closed for too long.
    pub(super) fn abandoned(&self, prefix: &str, now: Instant) -> Option<Header> {
        let prefixes = self.prefixes.lock();
        let known = prefixes.get(prefix)?.known.as_ref()?;
        let patience = ABANDONED + self.trust;
        match known.epoch {
            Epoch::Closed(header) if now.duration_since(known.since) >= patience => Some(header),
            _ => None,
        }
    }
}

/// The key of a prefix's epoch record in the durable store.
pub(super) fn record_of(prefix: Arc<str>) -> RecordKey {
    let digest = KeyDigest::from_bytes(*b"the epoch of the copies in front");
    RecordKey::new(prefix, Operation::new("idem.epoch"), digest)
}

/// A claim that is always granted; its fence is the next epoch.
pub(super) fn closing() -> ClaimRequest {
    ClaimRequest::new(Owner::random(), Duration::ZERO, MAX_RETAIN)
}

/// The header that opens an epoch closed by this claim.
pub(super) fn opening(closed: &Header) -> Header {
    Header {
        state: State::Released,
        owner: Owner::random(),
        attempts: 0,
        ..*closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Fence, OutcomeKind, Record};

    fn after(moment: Moment, monotonic: Duration, calendar: Duration) -> Moment {
        Moment {
            monotonic: moment.monotonic + monotonic,
            calendar: moment.calendar + calendar,
        }
    }

    #[test]
    fn a_reading_is_not_trusted_after_a_suspension() {
        let (epochs, asked) = (Epochs::new(Duration::from_secs(1)), Moment::now());
        epochs.learn(&"shop".into(), Epoch::Open(31), asked);
        let trust = epochs.see("shop", asked.monotonic).trust.unwrap();
        let (half, one) = (Duration::from_millis(500), Duration::from_secs(1));
        assert!(trust.holds(asked));
        assert!(trust.holds(after(asked, half, half)));
        assert!(!trust.holds(after(asked, one, one)));
        // The monotonic clock stops while the machine sleeps for 10 s.
        assert!(!trust.holds(after(asked, half, half + 10 * one)));
    }

    #[test]
    fn a_reading_is_trusted_from_its_request_on() {
        let trust = Duration::from_secs(1);
        let (epochs, asked) = (Epochs::new(trust), Moment::now());
        let now = asked.monotonic;
        let prefix: Arc<str> = "shop".into();
        assert!(epochs.tend(&prefix, now) && !epochs.tend(&prefix, now));
        assert!(epochs.see("shop", now).copies.is_none());
        epochs.learn(&prefix, Epoch::Open(31), asked);
        let seen = epochs.see("shop", now + trust / 2);
        assert_eq!(seen.copies.as_deref(), Some("shop:+1f"));
        let later = |passed| after(asked, passed, passed);
        assert!(epochs.see("shop", now + trust).copies.is_some());
        epochs.learn(&prefix, Epoch::Open(32), later(trust));
        epochs.learn(&prefix, Epoch::Open(31), later(trust / 2));
        let seen = epochs.see("shop", now + trust);
        assert_eq!(seen.copies.as_deref(), Some("shop:+20"), "overtaken");
        assert!(seen.trust.unwrap().holds(later(trust)), "read again");
        assert!(epochs.goes_on("shop", now + trust));
        assert!(!epochs.goes_on("shop", now + trust + IDLE));
        assert!(!epochs.tend(&prefix, now));
        epochs.untend("shop");
        assert!(epochs.tend(&prefix, now));
    }

    fn closed_header() -> Header {
        let lease = Duration::ZERO;
        let owner = Owner::from_bytes([1; 16]);
        Header::new(State::Pending { lease }, owner, Fence::new(7), MAX_RETAIN)
    }

    #[test]
    fn a_record_is_an_epoch_while_it_is_claimed_or_released() {
        let closed = closed_header();
        let completed = Header {
            state: State::Done {
                outcome: OutcomeKind::Value,
                schema: 0,
            },
            ..closed
        };
        for (header, epoch) in [
            (closed, Some(Epoch::Closed(closed))),
            (opening(&closed), Some(Epoch::Open(7))),
            (completed, None),
        ] {
            let reply = ReadReply::Found {
                record: Record::decode(header.encode().to_vec().into()).unwrap(),
                left: MAX_RETAIN,
            };
            assert_eq!(Epoch::of(&reply), epoch, "{header:?}");
        }
        assert_eq!(Epoch::of(&ReadReply::Absent), Some(Epoch::Open(0)));
    }

    #[test]
    fn a_closed_epoch_has_no_copies_and_counts_as_abandoned_later() {
        let (epochs, asked) = (Epochs::new(Duration::from_secs(1)), Moment::now());
        let (prefix, now): (Arc<str>, _) = ("shop".into(), asked.monotonic);
        let closed = closed_header();
        epochs.learn(&prefix, Epoch::Closed(closed), asked);
        assert!(epochs.see("shop", now).copies.is_none());
        let unsure = ABANDONED / 2 + epochs.trust;
        assert!(epochs.is_surely_closed(unsure.saturating_sub(Duration::from_nanos(1))));
        assert!(!epochs.is_surely_closed(unsure));
        assert!(epochs.abandoned("shop", now + ABANDONED).is_none());
        let abandoned = ABANDONED + epochs.trust;
        let again = after(asked, abandoned, abandoned);
        let later = again.monotonic;
        epochs.learn(&prefix, Epoch::Closed(closed), again);
        assert_eq!(epochs.abandoned("shop", later), Some(closed));
        epochs.learn(&prefix, Epoch::Open(7), again);
        assert!(
            epochs
                .abandoned("shop", later + later.duration_since(now))
                .is_none()
        );
        let seen = epochs.see("shop", later);
        assert_eq!(seen.copies.as_deref(), Some("shop:+7"));
    }
}
