//! A local cache of finished answers, in front of any store.
//!
//! # Why nothing stale is answered
//!
//! A finished answer changes in two ways only: its life ends, or somebody takes it back (a *resolution*:
//! a reset). An entry is used until `sent + min(left, max_age)`: `left` is what the store said that the
//! record has left, and `sent` is when it was asked, before it could count. So no entry outlives its
//! record, and an answer that was taken back, by whomever and whether or not that is heard of here, is
//! gone `max_age` after that: it was read before, and so its entry is older.
//!
//! That bound is the promise. What follows makes it milliseconds, or nothing at all, nearly always.
//!
//! An entry is made of what an operation of the store said: a claim, a completion, a look. Whoever makes
//! it has a *permit*, drawn before the operation was sent, which says how often its shard had changed by
//! then. A resolution, a loss of the connection on which resolutions are heard, and its return each count
//! as a change; a permit from before a change is void. All of it happens under the lock of the shard. So,
//! for an operation with its permit `t`, its moment in the store `o` and its entry `f` (t < o < f), and a
//! resolution with its moment `r`, and with the moment `h` when it is heard of here (r < h):
//!
//! - `r < o`: the store says what holds since; there is nothing stale.
//! - `o < r`, `f < h`: the entry is made, answers until `h`, and is removed then. From `r` to `h` the old
//!   answer is replayed: the time that the message takes.
//! - `o < r`, `t < h < f`: the permit is void; there is no entry.
//! - `h < t`: then `r < o`, as above.
//!
//! A resolution *by this engine* closes the shard from before it is sent until its reply has come (or its
//! caller is gone): the entry is removed, no permit is given, and older ones are void. So `h` comes before
//! `r` as well as after it, and the old answer is not replayed here from before `r` on. If the reply never
//! comes and the resolution takes effect later, then it is like one of another process: heard of, or
//! bounded by `max_age`.
//!
//! While resolutions of others are *not* heard (the connection is down, or not there yet) the cache is
//! empty and closed: no permit is given, and nothing is answered. It opens when the server has confirmed
//! the subscription, so that of an operation that is sent after that, every resolution that comes after
//! the operation is heard. Where the store does not tell at all, it is open from the start, and only
//! `max_age` counts.
//!
//! Of two entries for one key the one whose operation was sent later stays.
//!
//! A claim that was not asked to be [dated](crate::store::ClaimRequest::dated) may be answered with less
//! than what is left, or with more by the error of an estimate. An entry of it ends a second sooner, and
//! does not answer calls that tell how old their answer is.
//!
//! # What is no entry
//!
//! - What is not final: an unknown outcome, a claim. And a tombstone, which is no answer.
//! - The answer of a call that compares no fingerprint, when that call itself made it: the record in the
//!   store may carry the fingerprint of an earlier attempt, and then others are a mismatch. The first
//!   replay tells.
//! - A late completion: it stands under the header of a later claim.

mod settings;
mod shard;
mod stats;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::settings::LocalCache;
use self::shard::Shard;
pub use self::stats::LocalCacheStats;
use crate::env::observer::{Event, EventKind, Observer};
use crate::env::striped::Padded;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::local::singleflight::Flights;
use crate::record::{OutcomeKind, Record, State};
use crate::store::{Hearing, Listener};

/// The answers that this engine has seen.
pub(crate) struct Answers {
    shards: Vec<Padded<Mutex<Shard>>>,
    max_age: Duration,
    observer: Arc<dyn Observer>,
    flights: Arc<Flights>,
    /// The store has been asked to notify it.
    started: AtomicBool,
}

/// The right to make an entry of what an operation says that is sent after this was drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit(u64);

/// What a store says of the life of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// How long it is still kept, from `sent` on.
    pub(crate) left: Duration,
    /// When the operation was sent that says so.
    pub(crate) sent: Duration,
    /// Whether that is exact; if not, the record is older than it seems, or nearly so.
    pub(crate) dated: bool,
}

/// How much sooner an entry ends of whose life the store was not asked to be exact.
const MARGIN: Duration = Duration::from_secs(1);

/// What a look finds.
pub(crate) enum Found {
    Answer {
        record: Record,
        left: Duration,
    },
    /// `None`: nothing may be kept for now.
    Nothing(Option<Permit>),
}

impl Answers {
    pub(crate) fn new(
        settings: &LocalCache,
        observer: Arc<dyn Observer>,
        flights: Arc<Flights>,
    ) -> Arc<Self> {
        let (shards, entries, bytes) = settings.shards();
        Arc::new(Self {
            shards: (0..shards)
                .map(|_| Padded(Mutex::new(Shard::new(entries, bytes))))
                .collect(),
            max_age: settings.max_age,
            observer,
            flights,
            started: AtomicBool::new(false),
        })
    }

    fn shard(&self, key: &KeyDigest) -> MutexGuard<'_, Shard> {
        // A digest is as good as random, and its first byte chooses among the flights.
        let shard = usize::from(key.as_bytes()[1]) % self.shards.len();
        lock(&self.shards[shard])
    }

    pub(crate) fn look(
        &self,
        key: &RecordKey,
        asked: Fingerprint,
        dated: bool,
        now: Duration,
    ) -> Found {
        self.shard(key.digest()).look(key, asked, dated, now)
    }

    pub(crate) fn permit(&self, key: &RecordKey) -> Option<Permit> {
        self.shard(key.digest()).permit()
    }

    pub(crate) fn keep(&self, permit: Permit, key: &RecordKey, record: &Record, life: Life) {
        let is_answer = matches!(
            record.header.state,
            State::Done {
                outcome: OutcomeKind::Value | OutcomeKind::Error,
                ..
            }
        );
        if is_answer {
            let margin = if life.dated { Duration::ZERO } else { MARGIN };
            let until = life.sent + life.left.saturating_sub(margin).min(self.max_age);
            let mut shard = self.shard(key.digest());
            shard.keep(permit, key, record, life, until);
        }
    }

    /// Whether the store has been asked to notify this cache.
    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// The same, and from now on it has been.
    pub(crate) fn start(&self) -> bool {
        self.started.swap(true, Ordering::Relaxed)
    }

    /// An answer is about to be taken back; until this is dropped, nothing is kept under the key.
    pub(crate) fn take(self: &Arc<Self>, key: KeyDigest) -> Taking {
        self.shard(&key).take(&key);
        Taking {
            answers: Arc::clone(self),
            key,
        }
    }

    fn each(&self, act: impl Fn(&mut Shard)) {
        for shard in &self.shards {
            act(&mut lock(shard));
        }
    }

    pub(crate) fn stats(&self) -> LocalCacheStats {
        let mut stats = LocalCacheStats::default();
        for shard in &self.shards {
            lock(shard).count(&mut stats);
        }
        stats
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // Nothing panics while it is held.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener for Answers {
    fn hearing(&self, hearing: Hearing) {
        match hearing {
            Hearing::All | Hearing::Never => self.each(Shard::open),
            Hearing::Nothing => self.each(Shard::close),
        }
    }

    fn resolved(&self, key: &KeyDigest) {
        self.shard(key).forget(key);
        self.flights.forget(key);
    }

    fn warn(&self, message: &str) {
        self.observer.observe(&Event {
            operation: "",
            key: None,
            kind: EventKind::Warning { message },
        });
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// An answer that is being taken back by this engine: nothing is kept under its key.
pub(crate) struct Taking {
    answers: Arc<Answers>,
    key: KeyDigest,
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.answers.shard(&self.key).taken();
    }
}

#[cfg(test)]
mod tests;
