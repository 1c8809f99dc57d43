//! Since when copies count.
//!
//! An answer is final until somebody resets its key, and no store in front can be relied on to have
//! heard of that: it may have been down, come back with an old snapshot, or be a cache of one process
//! among many. So copies stand under a name with a number in it, the *epoch* of their prefix. It is the
//! fence of a record of its own in the durable store, and grows with each reset of an answered key. Who
//! has not asked for it within the time of trust answers nothing from copies; who resets waits that
//! long. A reset that has returned is therefore known to everybody, whatever the fast store does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::fingerprint::Fingerprint;
use crate::key::KeyDigest;
use crate::operation::{Operation, RecordKey};
use crate::record::{MAX_RETAIN, Owner};
use crate::transition::ClaimRequest;

/// How long a prefix that nobody uses is asked about.
const IDLE: Duration = Duration::from_secs(30);

/// The epochs of the prefixes in use.
#[derive(Debug)]
pub(super) struct Epochs {
    pub(super) trust: Duration,
    prefixes: Mutex<HashMap<Arc<str>, Prefix>>,
}

#[derive(Debug)]
struct Prefix {
    known: Option<Known>,
    used: Instant,
    /// Somebody asks now and then.
    tended: bool,
}

#[derive(Debug)]
struct Known {
    number: u64,
    /// What copies of it stand under.
    copies: Arc<str>,
    /// When the question was sent.
    asked: Instant,
}

/// The epoch as far as it is known.
pub(super) struct Seen {
    pub(super) copies: Option<Arc<str>>,
    /// Known well enough to answer from copies.
    pub(super) is_fresh: bool,
    pub(super) is_tended: bool,
}

impl Epochs {
    pub(super) fn new(trust: Duration) -> Self {
        Self {
            trust,
            prefixes: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Prefix>> {
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn see(&self, prefix: &str, now: Instant) -> Seen {
        let mut prefixes = self.lock();
        let Some(prefix) = prefixes.get_mut(prefix) else {
            return Seen {
                copies: None,
                is_fresh: false,
                is_tended: false,
            };
        };
        prefix.used = now;
        let known = prefix.known.as_ref();
        Seen {
            copies: known.map(|known| Arc::clone(&known.copies)),
            is_fresh: known.is_some_and(|known| now.duration_since(known.asked) < self.trust),
            is_tended: prefix.tended,
        }
    }

    /// Takes it upon oneself to ask. `false`: somebody else does.
    pub(super) fn tend(&self, prefix: &Arc<str>, now: Instant) -> bool {
        let mut prefixes = self.lock();
        let prefix = prefixes.entry(Arc::clone(prefix)).or_insert(Prefix {
            known: None,
            used: now,
            tended: false,
        });
        !std::mem::replace(&mut prefix.tended, true)
    }

    /// Whether to go on asking; if not, the next call begins anew.
    pub(super) fn goes_on(&self, prefix: &str, now: Instant) -> bool {
        let mut prefixes = self.lock();
        let Some(prefix) = prefixes.get_mut(prefix) else {
            return false;
        };
        prefix.tended = now.duration_since(prefix.used) < IDLE.max(self.trust);
        prefix.tended
    }

    /// The durable store said this to who asked then.
    pub(super) fn learn(&self, prefix: &Arc<str>, number: u64, asked: Instant) {
        let mut prefixes = self.lock();
        let prefix_state = prefixes.entry(Arc::clone(prefix)).or_insert(Prefix {
            known: None,
            used: asked,
            tended: false,
        });
        match &mut prefix_state.known {
            // A reply that was overtaken.
            Some(known) if known.asked > asked => {}
            Some(known) if known.number == number => known.asked = asked,
            known => {
                *known = Some(Known {
                    number,
                    // `+` is in no prefix of an engine, and needs no quoting.
                    copies: format!("{prefix}:+{number:x}").into(),
                    asked,
                });
            }
        }
    }
}

/// Where the epoch of a prefix stands in the durable store.
pub(super) fn record_of(prefix: Arc<str>) -> RecordKey {
    let digest = KeyDigest::from_bytes(*b"the epoch of the copies in front");
    RecordKey::new(prefix, Operation::new("idem.epoch"), digest)
}

/// A claim that is always granted, and whose fence is the next epoch.
pub(super) fn next() -> ClaimRequest {
    ClaimRequest {
        owner: Owner::random(),
        fingerprint: Fingerprint::NONE,
        lease: Duration::ZERO,
        retain: MAX_RETAIN,
        max_attempts: None,
        reconciles: false,
        starts: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_trusted_from_when_it_was_asked_for() {
        let trust = Duration::from_secs(1);
        let (epochs, now) = (Epochs::new(trust), Instant::now());
        let prefix: Arc<str> = "shop".into();
        assert!(epochs.tend(&prefix, now) && !epochs.tend(&prefix, now));
        assert!(epochs.see("shop", now).copies.is_none());
        epochs.learn(&prefix, 31, now);
        let seen = epochs.see("shop", now + trust / 2);
        assert_eq!(seen.copies.as_deref(), Some("shop:+1f"));
        assert!(seen.is_fresh);
        let seen = epochs.see("shop", now + trust);
        assert!(!seen.is_fresh && seen.copies.is_some());
        epochs.learn(&prefix, 32, now + trust);
        epochs.learn(&prefix, 31, now + trust / 2);
        let seen = epochs.see("shop", now + trust);
        assert_eq!(seen.copies.as_deref(), Some("shop:+20"), "overtaken");
        assert!(epochs.goes_on("shop", now + trust));
        assert!(!epochs.goes_on("shop", now + trust + IDLE));
        assert!(epochs.tend(&prefix, now));
    }
}
