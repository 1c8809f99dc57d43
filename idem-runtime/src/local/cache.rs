//! A local cache of finished answers, in front of any store.
//!
//! # Why no stale answer is replayed
//!
//! A finished answer changes in two ways only: it expires, or it is withdrawn (a *resolution*: a reset). An entry is
//! used until `sent + min(left, max_age)`: `left` is the remaining life of the record by the store's reply, and `sent`
//! is when the request was sent, before `left` could count. So no entry outlives its record, and a withdrawn answer is
//! gone `max_age` after its withdrawal, by any engine and with or without a notification: it was read before, and so
//! its entry is older. Both times are those of the engine's clock: on macOS a suspension of the machine prolongs them.
//!
//! That bound is the promise. The following mechanism reduces it to milliseconds, or to nothing at all, nearly always.
//!
//! An entry is made of the reply to an operation of the store: a claim, a completion, a read. The operation has a
//! *permit*, drawn before it was sent, which holds how often its shard had changed by then. A resolution, a loss of the
//! connection for notifications of resolutions, and its return each count as a change; a permit from before a change is
//! void. All of it happens under the lock of the shard. So, for an operation with its permit `t`, its moment in the
//! store `o` and its entry `f` (t < o < f), and a resolution with its moment `r`, and with the moment `h` of its
//! notification here (r < h):
//!
//! - `r < o`: the reply is from after the resolution; nothing is stale.
//! - `o < r`, `f < h`: the entry is made, answers until `h`, and is removed then. From `r` to `h` the old answer is
//!   replayed: the time that the message takes.
//! - `o < r`, `t < h < f`: the permit is void; there is no entry.
//! - `h < t`: then `r < o`, as above.
//!
//! A resolution *by this engine* closes the shard from before it is sent until its reply has arrived (or its
//! caller is gone): the entry is removed, no permit is given, and older ones are void. So `h` comes before
//! `r` as well as after it, and the old answer is not replayed here from before `r` on. If the reply never arrives and
//! the resolution takes effect later, then it is like one of another process: notified, or bounded by `max_age`.
//!
//! While notifications of other engines' resolutions do *not* arrive (the connection is down, or not there yet) the
//! cache is empty and closed: no permit is given, and nothing is answered. It opens when the server has confirmed the
//! subscription, so that for every operation that is sent after that, each later resolution is notified.
//! Where the store sends no notifications at all, it is open from the start, and only `max_age` counts.
//!
//! Of two entries for one key, the entry whose operation was sent later stays.
//!
//! A claim without the request to be [dated](crate::store::ClaimRequest::dated) may be answered with less than the
//! remaining life, or with more by the error of an estimate. Its entry ends a second sooner, and does not answer calls
//! that report how old their answer is.
//!
//! # Outcomes without an entry
//!
//! - An outcome that is not final: an unknown outcome, a claim. And a tombstone, which is no answer.
//! - The answer of a call that compares no fingerprint, when that call itself made it: the record in the store may
//!   carry the fingerprint of an earlier attempt, and then other requests are a mismatch. The first replay shows it.
//! - A late completion: it is stored under the header of a later claim.

mod settings;
mod shard;
mod stats;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

pub use self::settings::LocalCache;
use self::shard::CacheShard;
pub(crate) use self::shard::{Found, Life, Permit};
pub use self::stats::LocalCacheStats;
use crate::env::lock::Lock;
use crate::env::observer::{Event, EventKind, Observer};
use crate::env::striped::Padded;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::local::singleflight::Flights;
use crate::record::{OutcomeKind, Record, State};
use crate::store::{Hearing, Listener};

/// The finished answers that this engine has seen.
pub(crate) struct Answers {
    shards: Vec<Padded<Lock<CacheShard>>>,
    max_age: Duration,
    observer: Arc<dyn Observer>,
    flights: Arc<Flights>,
    /// Whether the store was requested to notify this cache.
    started: AtomicBool,
}

/// How much sooner an entry expires whose life is not exact.
const MARGIN: Duration = Duration::from_secs(1);

impl Answers {
    pub(crate) fn new(
        settings: &LocalCache,
        observer: Arc<dyn Observer>,
        flights: Arc<Flights>,
    ) -> Arc<Self> {
        let (shards, entries, bytes) = settings.shards();
        Arc::new(Self {
            shards: (0..shards)
                .map(|_| Padded(Lock::new(CacheShard::new(entries, bytes))))
                .collect(),
            max_age: settings.max_age,
            observer,
            flights,
            started: AtomicBool::new(false),
        })
    }

    fn shard(&self, key: &KeyDigest) -> MutexGuard<'_, CacheShard> {
        // A digest is as good as random, and its first byte selects the shard of the flights.
        let shard = usize::from(key.as_bytes()[1]) % self.shards.len();
        self.shards[shard].lock()
    }

    pub(crate) fn get(
        &self,
        key: &RecordKey,
        fingerprint: Fingerprint,
        dated: bool,
        now: Duration,
    ) -> Found {
        self.shard(key.digest()).get(key, fingerprint, dated, now)
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

    /// Whether the store was requested to notify this cache.
    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// The same, and sets it.
    pub(crate) fn start(&self) -> bool {
        self.started.swap(true, Ordering::Relaxed)
    }

    /// Announces the withdrawal of an answer; until the guard is dropped, nothing is cached under the key.
    pub(crate) fn take(self: &Arc<Self>, key: KeyDigest) -> Taking {
        self.shard(&key).take(&key);
        Taking {
            answers: Arc::clone(self),
            key,
        }
    }

    fn each(&self, act: impl Fn(&mut CacheShard)) {
        for shard in &self.shards {
            act(&mut shard.lock());
        }
    }

    pub(crate) fn stats(&self) -> LocalCacheStats {
        let mut stats = LocalCacheStats::default();
        for shard in &self.shards {
            shard.lock().count(&mut stats);
        }
        stats
    }
}

impl Listener for Answers {
    fn hearing(&self, hearing: Hearing) {
        match hearing {
            Hearing::All | Hearing::Never => self.each(CacheShard::open),
            Hearing::Nothing => self.each(CacheShard::close),
        }
    }

    fn resolved(&self, key: &KeyDigest) {
        self.shard(key).forget(key);
        self.flights.forget(key);
    }

    fn warn(&self, message: &str) {
        self.observer
            .observe(&Event::of_engine(EventKind::Warning { message }));
    }
}

debug_fields!(Answers {
    stats: |it| it.stats()
});

/// An answer that this engine is withdrawing: nothing is cached under its key.
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
